//! Calls for threads outside any async runtime.

/// A view whose calls block the thread; the corresponding calls of the viewed object are async and have the
/// same timeout.
///
/// ```
/// use idmill::store::MemoryStore;
///
/// let ids = idmill::Sequences::new(MemoryStore::new())?;
/// let orders = ids.sequence::<u64>("orders").open_blocking()?;
/// assert_eq!(orders.blocking().next()?, 1);
/// assert!(ids.admin().blocking().inspect("orders")?.is_some());
/// # Ok::<(), idmill::Error>(())
/// ```
///
/// In async code of a runtime that drives the refills and has no other thread, each call that must wait
/// immediately fails with [`InvalidInput`](crate::ErrorKind::InvalidInput); the error names the method to
/// use. On a worker of a multi-threaded runtime that drives the refills, a call can block its own refill
/// until the call's timeout.
#[derive(Debug)]
#[must_use = "a view does nothing itself; call one of its methods"]
pub struct Blocking<V> {
    pub(crate) of: V,
}
