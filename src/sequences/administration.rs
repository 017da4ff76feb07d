//! Looking at the store's sequences and changing them, from any executor or none.

use std::future::Future;

use super::Sequences;
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::name::SequenceName;
use crate::store::{Bounds, Change, Listing, Page, SequenceInfo, Store, StoreFuture};

/// Administration of the store. Each call is that of [`Store`] of the same name, and works from any executor:
/// the store's work runs where its refills do.
///
/// A call ends within the [store's timeout](crate::SequencesBuilder::store_timeout). One that reads then
/// fails with [`ErrorKind::Deadline`], and one that writes with [`ErrorKind::UnknownOutcome`], since it may
/// have been applied. A call whose future is dropped may have been applied too. After
/// [`close`](Self::close), each fails with [`ErrorKind::Closed`]. A name that cannot be is
/// [`ErrorKind::InvalidInput`].
///
/// Threads outside any async runtime use [`blocking`](Self::blocking).
impl Sequences {
    /// Creates a sequence in the store. Opening one does so too.
    ///
    /// # Errors
    /// Those of [`Store::create`], and those common to all calls here.
    pub fn create(
        &self,
        name: impl AsRef<str>,
        bounds: Bounds,
    ) -> impl Future<Output = Result<SequenceInfo>> + Send {
        self.of(Operation::Create, SequenceName::new(name.as_ref()), move |store, name| {
            store.create(name, bounds)
        })
    }

    /// Reads a sequence as it is stored; `None` if there is none of this name. Consumes nothing.
    ///
    /// # Errors
    /// Those of [`Store::inspect`], and those common to all calls here.
    pub fn inspect(
        &self,
        name: impl AsRef<str>,
    ) -> impl Future<Output = Result<Option<SequenceInfo>>> + Send {
        self.of(Operation::Inspect, SequenceName::new(name.as_ref()), |store, name| store.inspect(name))
    }

    /// Reads a page of the store's sequences, whether or not they are open. To read on, pass the listing's
    /// `next` as the `after` of the next page.
    ///
    /// # Errors
    /// Those of [`Store::list`], and those common to all calls here.
    pub async fn list(&self, page: Page) -> Result<Listing> {
        let store = self.store().clone();
        let listed = self.ask(Operation::List, async move { store.list(&page).await });
        listed.await.map_err(|error| error.during(Operation::List))
    }

    /// Changes a stored sequence, as [`SequenceInfo::apply`] describes; returns it as it is now. An allocator
    /// that is open notices a change at its next refill.
    ///
    /// # Errors
    /// Those of [`Store::set`], and those common to all calls here.
    pub fn set(
        &self,
        name: impl AsRef<str>,
        change: Change,
    ) -> impl Future<Output = Result<SequenceInfo>> + Send {
        self.of(Operation::Set, SequenceName::new(name.as_ref()), move |store, name| store.set(name, change))
    }

    /// Has every process drop the ids of a sequence that it has in memory: for when something went wrong, and
    /// nobody is to hand out what was reserved before. Raises the sequence's epoch, and changes nothing else.
    ///
    /// This process drops them before this returns. Others do at their next refill, or within their
    /// [freshness](crate::SequencesBuilder::freshness). What is dropped is a gap. Cancelling this call does not
    /// undo it.
    ///
    /// # Errors
    /// Those of [`Store::set`], and those common to all calls here.
    pub async fn revoke(&self, name: impl AsRef<str> + Send) -> Result<SequenceInfo> {
        let (ids, name) = (self.clone(), SequenceName::new(name.as_ref())?);
        let of = |error: Error| error.of(&name).during(Operation::Set);
        self.shared.must_be_open().map_err(of)?;
        let revoked = name.clone();
        // In a task, which a caller cannot cancel: a `set` that was sent may be applied at any time from then on.
        let revoking = self.shared.runtime.spawn(async move {
            let outcome = ids.set(&revoked, Change::new().revoke(true)).await;
            // Also where it is not known whether it was applied.
            ids.discard(&revoked);
            outcome
        });
        revoking.await.map_err(|failure| of(self.shared.task_failed(failure)))?
    }

    /// Drops the ids of a sequence that this process has in memory, without asking the store: for after the
    /// stored sequence was changed or removed by other means. Returns how many ids that were; they are a gap.
    /// A reserve that is under way is dropped too. See [`Allocator::revoke`](crate::Allocator::revoke).
    pub fn discard(&self, name: impl AsRef<str>) -> u64 {
        let Some(core) = self.shared.registry.find(name.as_ref()) else { return 0 };
        let ids = core.revoke();
        core.leave();
        ids
    }

    /// Removes a sequence from the store; `false` if there was none. Allocators that are open go on with the
    /// ids in memory, and fail at their next refill.
    ///
    /// # Errors
    /// Those of [`Store::remove`], and those common to all calls here.
    pub fn remove(&self, name: impl AsRef<str>) -> impl Future<Output = Result<bool>> + Send {
        self.of(Operation::Remove, SequenceName::new(name.as_ref()), |store, name| store.remove(name))
    }

    /// A call that concerns one sequence.
    async fn of<R: Send + 'static>(
        &self,
        operation: Operation,
        name: Result<SequenceName>,
        call: impl for<'a> FnOnce(&'a dyn Store, &'a SequenceName) -> StoreFuture<'a, Result<R>> + Send + 'static,
    ) -> Result<R> {
        let name = name?;
        let (store, asked) = (self.store().clone(), name.clone());
        let outcome = self.ask(operation, async move { call(&*store, &asked).await }).await;
        outcome.map_err(|error| error.of(&name).during(operation))
    }

    async fn ask<R: Send + 'static>(
        &self,
        operation: Operation,
        work: impl Future<Output = Result<R>> + Send + 'static,
    ) -> Result<R> {
        let limit = self.shared.store_timeout;
        self.shared.ask_store(limit, work).await.map_err(|error| match (error.kind(), operation) {
            (ErrorKind::Deadline, Operation::Create | Operation::Set | Operation::Remove) => {
                let message =
                    format!("the store did not answer within {limit:?}; look whether it was applied");
                Error::new(ErrorKind::UnknownOutcome, message).because(error)
            }
            _ => error,
        })
    }
}
