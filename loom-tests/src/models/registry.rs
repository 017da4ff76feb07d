//! Checks that all callers with the same name get the same core, and never an evicted one.
//!
//! *Threads*: two callers that open a missing name; a caller that opens it while the last user leaves and the
//! core is evicted. Preemptions are unbounded in the creation, and bounded in the eviction, because callers
//! retry after an eviction.
//!
//! *Bugs it catches*: an insert that replaces an entry; an eviction that misses a new user.

use loom::thread;

use crate::explore::{UNBOUNDED, explore};
use crate::harness::models;
use crate::state::core::Core;
use crate::state::registry::Registry;
use crate::sync::Arc;
use crate::world::{name, settings};

models![a_name_has_one_core, evicted_core_is_never_returned];

fn find_or_create(registry: &Registry) -> Arc<Core> {
    registry.find_or_create(&name(), || Core::new(name(), Arc::new(settings(1, 0, 100))))
}

fn a_name_has_one_core() {
    explore(500, UNBOUNDED, || {
        let registry = Arc::new(Registry::new());
        let other = {
            let registry = registry.clone();
            thread::spawn(move || find_or_create(&registry))
        };
        let mine = find_or_create(&registry);
        let others = other.join().unwrap();
        assert!(Arc::ptr_eq(&mine, &others), "one name has two cores");
        assert_eq!(registry.len(), 1);
        mine.leave();
        assert!(!mine.evict(), "the core has one user left");
        others.leave();
        assert!(mine.evict());
    });
}

fn evicted_core_is_never_returned() {
    explore(600, Some(3), || {
        let registry = Arc::new(Registry::new());
        let old = find_or_create(&registry);
        let newcomer = {
            let registry = registry.clone();
            thread::spawn(move || find_or_create(&registry))
        };
        old.leave();
        let evicted = old.evict();
        if evicted {
            registry.forget(&old);
        }
        let found = newcomer.join().unwrap();
        assert_eq!(evicted, !Arc::ptr_eq(&found, &old), "the old core is found unless it was evicted");
        let kept = registry.find(&name()).expect("a core is registered");
        assert!(Arc::ptr_eq(&kept, &found), "a core in use was removed from the registry");
    });
}
