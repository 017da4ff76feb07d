//! A store that is restored, with a witness beside it and without.

mod common;

use std::fs;

use common::{Place, Ran};

const STORE: &str = "sqlite:ids.db";
const GUARDED: &str = "sqlite:ids.db?guard=file:ids.witness";

fn next(place: &Place, store: &str, count: &str) -> Ran {
    place.run(&["next", "orders", "-n", count, "--store", store])
}

/// The ids 1 to 5 are drawn, the file is copied, 6 to 10 are drawn, and the copy is put back.
fn restored(store: &str) -> Place {
    let place = Place::new();
    let [file, copy] = ["ids.db", "copy.db"].map(|file| place.path().join(file));
    assert_eq!(next(&place, store, "5").ids(), [1, 2, 3, 4, 5]);
    fs::copy(&file, &copy).unwrap();
    assert_eq!(next(&place, store, "5").ids(), [6, 7, 8, 9, 10]);
    fs::rename(&copy, &file).unwrap();
    place
}

#[test]
fn without_a_witness_a_copy_that_is_put_back_repeats_ids() {
    let place = restored(STORE);
    assert_eq!(next(&place, STORE, "3").ids(), [6, 7, 8]);
}

#[test]
fn with_a_witness_it_goes_on_above_what_was_handed_out_and_says_so() {
    let place = restored(GUARDED);
    let healed = next(&place, GUARDED, "3");
    assert_eq!(healed.ids(), [11, 12, 13]);
    assert!(healed.err.contains("the store went back in time"), "{}", healed.err);
    assert!(healed.err.contains("orders"), "{}", healed.err);
    // Once is enough: the store was raised.
    let after = next(&place, GUARDED, "3");
    assert_eq!(after.ids(), [14, 15, 16]);
    assert!(!after.err.contains("went back"), "{}", after.err);
}

#[test]
fn a_store_that_is_gone_is_refused_until_somebody_decides() {
    let place = restored(GUARDED);
    fs::remove_file(place.path().join("ids.db")).unwrap();
    let refused = next(&place, GUARDED, "1");
    assert_eq!((refused.code, refused.out.as_str()), (1, ""), "{refused:?}");
    assert!(refused.err.contains("another sequence of this name"), "{}", refused.err);
    // With the guard, so that the witness hears of it.
    let removed = place.run(&["remove", "orders", "--yes", "--store", GUARDED]);
    assert_eq!(removed.code, 0, "{removed:?}");
    // Above all that was claimed, and without a false alarm.
    let next = next(&place, GUARDED, "2");
    assert_eq!(next.ids(), [11, 12]);
    assert!(!next.err.contains("went back"), "{}", next.err);
}

#[test]
fn forgotten_name_starts_again_and_only_with_a_guard() {
    let place = restored(GUARDED);
    let removed = place.run(&["remove", "orders", "--yes", "--forget", "--store", GUARDED]);
    assert_eq!(removed.code, 0, "{removed:?}");
    assert_eq!(next(&place, GUARDED, "2").ids(), [1, 2]);
    let refused = place.run(&["remove", "orders", "--yes", "--forget", "--store", STORE]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert_eq!(next(&place, GUARDED, "1").ids(), [3]);
}

#[test]
fn revocation_of_a_restored_store_repeats_nothing() {
    let place = restored(GUARDED);
    assert_eq!(place.run(&["revoke", "orders", "--store", GUARDED]).code, 0);
    let doctor = place.run(&["doctor", "--store", GUARDED]);
    assert!(doctor.code != 0 && doctor.out.contains("went_back"), "{doctor:?}");
    assert_eq!(next(&place, GUARDED, "5").ids(), [11, 12, 13, 14, 15]);
}

#[test]
fn refused_removal_permits_nothing() {
    let place = restored(GUARDED);
    let read_only = "sqlite:ids.db?mode=ro&guard=file:ids.witness";
    let refused = place.run(&["remove", "orders", "--yes", "--store", read_only]);
    assert_ne!(refused.code, 0, "{refused:?}");
    for file in place.files() {
        if file.starts_with("ids.db") {
            fs::remove_file(place.path().join(file)).unwrap();
        }
    }
    let refused = next(&place, GUARDED, "5");
    assert_eq!((refused.code, refused.out.as_str()), (1, ""), "{refused:?}");
    assert!(refused.err.contains("another sequence of this name"), "{}", refused.err);
}

#[test]
fn set_backwards_through_the_guard_is_followed() {
    let place = restored(GUARDED);
    let set = place.run(&["set", "orders", "--next", "3", "--backwards", "--store", GUARDED]);
    assert_eq!(set.code, 0, "{set:?}");
    let after = next(&place, GUARDED, "2");
    assert_eq!(after.ids(), [3, 4]);
    assert!(!after.err.contains("went back"), "{}", after.err);
}

#[test]
fn witness_that_cannot_be_written_costs_no_ids() {
    let guarded = "sqlite:ids.db?guard=sqlite:other.db";
    let place = Place::new();
    assert_eq!(next(&place, guarded, "5").ids(), [1, 2, 3, 4, 5]);
    let many = ["next", "orders", "-n", "1000000", "--timeout", "3s", "--store", STORE];
    let refused = place.run(&[&many[..], &["--guard", "sqlite:other.db?mode=ro"]].concat());
    assert_ne!(refused.code, 0, "{refused:?}");
    assert_eq!(refused.out, "");
    assert!(refused.err.contains("cannot be written"), "{}", refused.err);
    assert_eq!(next(&place, guarded, "1").ids(), [6], "nothing was lost");
}

#[test]
fn the_witness_may_stand_beside_the_url_and_in_the_environment() {
    let place = restored("sqlite:ids.db?guard=file:ids.witness");
    let by_flag = ["next", "orders", "--store", STORE, "--guard", "file:ids.witness"];
    assert_eq!(place.run(&by_flag).ids(), [11]);
    let place = restored("sqlite:ids.db?guard=file:ids.witness");
    let guarded = |args: &[&str]| {
        Ran::from(place.command(args).env("IDMILL_GUARD", "file:ids.witness").output().unwrap())
    };
    assert_eq!(guarded(&["next", "orders", "--store", STORE]).ids(), [11]);
    // The URL's own goes before, and two by hand are one too many.
    assert_eq!(guarded(&["next", "orders", "--store", GUARDED]).ids(), [12]);
    let twice = place.run(&["next", "orders", "--store", GUARDED, "--guard", "file:other.witness"]);
    assert_eq!(twice.code, 2, "{twice:?}");
    assert!(twice.err.contains("guarded already"), "{}", twice.err);
    let wrong =
        Ran::from(place.command(&["next", "orders"]).env("IDMILL_GUARD", "/ids.witness").output().unwrap());
    assert_eq!(wrong.code, 2, "{wrong:?}");
    assert!(wrong.err.contains("environment variable IDMILL_GUARD"), "{}", wrong.err);
}

#[test]
fn the_witness_is_not_in_the_store() {
    let refused = next(&Place::new(), "sqlite:ids.db?guard=sqlite:ids.db", "1");
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.err.contains("is the store itself"), "{}", refused.err);
}

#[test]
fn another_store_is_a_witness_too() {
    let guarded = "sqlite:ids.db?guard=sqlite:other.db";
    let place = restored(guarded);
    assert_eq!(next(&place, guarded, "1").ids(), [11]);
    let listed = place.json(&["list", "--json", "--store", "sqlite:other.db"]);
    assert_eq!(listed["sequences"], serde_json::json!([]), "a ledger is no sequence");
}

#[test]
fn looking_at_a_store_needs_no_witness_and_makes_none() {
    let place = restored(STORE);
    assert_eq!(place.run(&["list", "--store", GUARDED]).code, 0);
    assert_eq!(place.run(&["show", "orders", "--store", GUARDED]).code, 0);
    assert!(!place.files().iter().any(|file| file.contains("witness")), "{:?}", place.files());
}
