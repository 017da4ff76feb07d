//! Sequences over a window, in a program that has no runtime.

use std::time::Duration;

use idmill::Sequences;
use idmill_url::Schemes;

/// The thread of a program without a runtime has sockets too, not only timers.
#[test]
fn a_store_over_the_network_is_opened_without_a_runtime() {
    let schemes = Schemes::default().with(idmill_memcached::SCHEMES).unwrap();
    // Nobody listens there; without sockets it would end in a panic.
    let url = "memory:?window=memcached://127.0.0.1:1";
    let opened = Sequences::connect_blocking(async move { schemes.open(url).await }).and_then(|ids| {
        let orders = ids.sequence::<u64>("orders").lazy()?;
        // Time enough to be refused once: the error says what the last attempt said.
        orders.blocking(Duration::from_secs(5)).next()
    });
    let error = opened.unwrap_err();
    assert!(
        error.status() == idmill::Status::Transient && error.to_string().contains("127.0.0.1:1"),
        "{error}"
    );
}
