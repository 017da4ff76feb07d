//! Opens sequences over a window in a program without a runtime.

use idmill::Sequences;
use idmill_url::Schemes;

/// The background runtime for such programs must support sockets, not only timers.
#[test]
fn network_store_opens_without_a_runtime() {
    let schemes = Schemes::default().with(idmill_memcached::SCHEMES).unwrap();
    // No server listens at this address. Without socket support, connecting would panic.
    let url = "memory:?window=memcached://127.0.0.1:1";
    let opened = Sequences::connect_blocking(async move { schemes.open(url).await }).and_then(|ids| {
        let orders = ids.sequence::<u64>("orders").lazy()?;
        // Five seconds are enough for one refused connection, so the error contains the error of that
        // attempt.
        orders.blocking().next()
    });
    let error = opened.unwrap_err();
    assert!(
        error.status() == idmill::Status::Transient && error.to_string().contains("127.0.0.1:1"),
        "{error}"
    );
}
