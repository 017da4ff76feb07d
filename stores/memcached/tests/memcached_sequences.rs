//! Sequences over a window, in a program without a runtime.

use std::time::Duration;

use idmill::Sequences;
use idmill_url::Schemes;

/// The thread for programs without a runtime supports sockets, not only timers.
#[test]
fn a_store_over_the_network_is_opened_without_a_runtime() {
    let schemes = Schemes::default().with(idmill_memcached::SCHEMES).unwrap();
    // Nothing listens there; without socket support it would panic.
    let url = "memory:?window=memcached://127.0.0.1:1";
    let opened = Sequences::connect_blocking(async move { schemes.open(url).await }).and_then(|ids| {
        let orders = ids.sequence::<u64>("orders").lazy()?;
        // Enough time for one refused connection: the error contains the last attempt's error.
        orders.blocking(Duration::from_secs(5)).next()
    });
    let error = opened.unwrap_err();
    assert!(
        error.status() == idmill::Status::Transient && error.to_string().contains("127.0.0.1:1"),
        "{error}"
    );
}
