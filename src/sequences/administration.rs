//! Reading and changing the store's sequences, from any executor or none, and on threads that block.

use std::future::Future;

use super::Sequences;
use crate::blocking::{Blocking, block_on_reply};
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::name::SequenceName;
use crate::store::{Bounds, Change, Identity, Listing, Page, SequenceInfo, Store, StoreFuture};

impl Sequences {
    /// Returns a view for reading and changing the store's sequences.
    pub fn admin(&self) -> Admin<'_> {
        Admin { ids: self }
    }

    /// Drops the ids of this sequence that this process has in memory, without a request to the store. Use it
    /// after the stored sequence was changed or removed by other means. Returns the number of dropped ids;
    /// they are a gap. A reserve in flight is dropped too. See
    /// [`Allocator::discard`](crate::Allocator::discard).
    pub fn discard(&self, name: impl AsRef<str>) -> u64 {
        let Some(core) = self.shared.registry.find(name.as_ref()) else { return 0 };
        let ids = core.revoke(&self.shared.mailbox);
        core.leave();
        ids
    }
}

/// Administration of the store; [`Sequences::admin`] returns it. Most methods call the [`Store`] method of
/// the same name. All work from any executor: the store's work runs on the runtime of refills or on a
/// dedicated thread.
///
/// A call ends within the [store's timeout](crate::SequencesBuilder::store_timeout). After that, a read fails
/// with [`ErrorKind::Deadline`], and a write with [`ErrorKind::UnknownOutcome`], since it may have been
/// applied. A write whose future is dropped may also have been applied. After [`close`](Sequences::close),
/// every call fails with [`ErrorKind::Closed`]. Invalid names fail with [`ErrorKind::InvalidInput`].
///
/// On a thread outside any async runtime, use [`blocking`](Self::blocking).
#[derive(Clone, Copy, Debug)]
#[must_use = "a view does nothing itself; call one of its methods"]
pub struct Admin<'a> {
    ids: &'a Sequences,
}

impl Admin<'_> {
    /// Returns a view for threads outside any async runtime. Its calls wait up to the [store's
    /// timeout](crate::SequencesBuilder::store_timeout).
    pub fn blocking(self) -> Blocking<Self> {
        Blocking { of: self }
    }

    /// Creates a sequence in the store. Opening a sequence creates it too.
    ///
    /// # Errors
    /// Those of [`Store::create`], and those common to all calls here.
    pub fn create(
        self,
        name: impl AsRef<str>,
        bounds: Bounds,
    ) -> impl Future<Output = Result<SequenceInfo>> + Send {
        self.of(Operation::Create, SequenceName::new(name.as_ref()), move |store, name| {
            store.create(name, bounds)
        })
    }

    /// Reads a stored sequence, or `None` if there is none of this name. Consumes no ids.
    ///
    /// # Errors
    /// Those of [`Store::inspect`], and those common to all calls here.
    pub fn inspect(self, name: impl AsRef<str>) -> impl Future<Output = Result<Option<SequenceInfo>>> + Send {
        self.of(Operation::Inspect, SequenceName::new(name.as_ref()), |store, name| store.inspect(name))
    }

    /// Reads a page of the store's sequences, whether or not they are open. For the next page, pass the
    /// listing's `next` as `after`.
    ///
    /// # Errors
    /// Those of [`Store::list`], and those common to all calls here.
    pub async fn list(self, page: Page) -> Result<Listing> {
        let store = self.ids.store().clone();
        let listed = self.ask(Operation::List, async move { store.list(&page).await });
        listed.await.map_err(|error| error.during(Operation::List))
    }

    /// Changes a stored sequence, as [`SequenceInfo::apply`] describes, and returns its new state. An open
    /// allocator detects the change at its next refill.
    ///
    /// # Errors
    /// Those of [`Store::set`], and those common to all calls here.
    pub fn set(
        self,
        name: impl AsRef<str>,
        change: Change,
    ) -> impl Future<Output = Result<SequenceInfo>> + Send {
        self.of(Operation::Set, SequenceName::new(name.as_ref()), move |store, name| store.set(name, change))
    }

    /// Makes every process drop the ids of this sequence that it has in memory. Use it when ids that were
    /// reserved earlier must not be handed out any more. Raises the sequence's epoch, and changes nothing
    /// else.
    ///
    /// This process drops the ids before the call returns. Other processes drop them at their next refill, or
    /// within their [max_age](crate::SequencesBuilder::max_age). Dropped ids are a gap. Cancelling this call
    /// does not undo it.
    ///
    /// # Errors
    /// Those of [`Store::set`], and those common to all calls here.
    pub async fn revoke(self, name: impl AsRef<str> + Send) -> Result<SequenceInfo> {
        let (ids, name) = (self.ids.clone(), SequenceName::new(name.as_ref())?);
        let of = |error: Error| error.of(&name).during(Operation::Set);
        self.ids.shared.must_be_open().map_err(of)?;
        let revoked = name.clone();
        // Run in a task, which a caller cannot cancel: a `set` that was sent may be applied at any later
        // time.
        let revoking = self.ids.shared.runtime.spawn(async move {
            let outcome = ids.admin().set(&revoked, Change::new().revoke(true)).await;
            // Discard the ids even if the outcome is unknown.
            ids.discard(&revoked);
            outcome
        });
        revoking.await.map_err(|failure| of(self.ids.shared.task_failed(failure)))?
    }

    /// Removes a sequence from the store; `false` if there was none. Open allocators still hand out the ids
    /// in memory, and fail at their next refill. If this process opens the sequence again, it is created, and
    /// hands out the same ids again.
    ///
    /// # Errors
    /// Those of [`Store::remove`], and those common to all calls here.
    pub fn remove(self, name: impl AsRef<str>) -> impl Future<Output = Result<bool>> + Send {
        self.removed(SequenceName::new(name.as_ref()), None)
    }

    /// Removes a sequence that still has this identity, as read by [`inspect`](Self::inspect). Otherwise like
    /// [`remove`](Self::remove).
    ///
    /// # Errors
    /// Those of [`Store::remove`], and those common to all calls here.
    pub fn remove_if(
        self,
        name: impl AsRef<str>,
        identity: Identity,
    ) -> impl Future<Output = Result<bool>> + Send {
        self.removed(SequenceName::new(name.as_ref()), Some(identity))
    }

    async fn removed(self, name: Result<SequenceName>, expected: Option<Identity>) -> Result<bool> {
        let removing =
            self.of(Operation::Remove, name.clone(), move |store, name| store.remove(name, expected));
        let was_there = removing.await?;
        self.ids.shared.registry.note_removed(&name?);
        Ok(was_there)
    }

    /// Runs a call that concerns one sequence.
    async fn of<R: Send + 'static>(
        self,
        operation: Operation,
        name: Result<SequenceName>,
        call: impl for<'b> FnOnce(&'b dyn Store, &'b SequenceName) -> StoreFuture<'b, Result<R>> + Send + 'static,
    ) -> Result<R> {
        let name = name?;
        let (store, asked) = (self.ids.store().clone(), name.clone());
        let outcome = self.ask(operation, async move { call(&*store, &asked).await }).await;
        outcome.map_err(|error| error.of(&name).during(operation))
    }

    async fn ask<R: Send + 'static>(
        self,
        operation: Operation,
        work: impl Future<Output = Result<R>> + Send + 'static,
    ) -> Result<R> {
        let limit = self.ids.shared.store_timeout;
        self.ids.shared.ask_store(limit, work).await.map_err(|error| match (error.kind(), operation) {
            (ErrorKind::Deadline, Operation::Create | Operation::Set | Operation::Remove) => {
                let message = format!(
                    "the store did not answer within {limit:?}; check whether the change was applied"
                );
                Error::new(ErrorKind::UnknownOutcome, message).because(error)
            }
            _ => error,
        })
    }
}

/// Each method blocks on the [`Admin`] method of the same name, and returns its errors;
/// [`InvalidInput`](crate::ErrorKind::InvalidInput) if this is the only thread that drives the refills; or
/// [`Deadline`](crate::ErrorKind::Deadline) if no thread does: a write may have been applied then.
#[allow(clippy::missing_errors_doc, reason = "the impl's documentation lists the errors")]
impl Blocking<Admin<'_>> {
    /// Creates a sequence in the store.
    pub fn create(&self, name: impl AsRef<str>, bounds: Bounds) -> Result<SequenceInfo> {
        self.wait_for("`create`", self.of.create(name, bounds))
    }

    /// Reads a stored sequence, or `None` if there is none of this name.
    pub fn inspect(&self, name: impl AsRef<str>) -> Result<Option<SequenceInfo>> {
        self.wait_for("`inspect`", self.of.inspect(name))
    }

    /// Reads a page of the store's sequences.
    pub fn list(&self, page: Page) -> Result<Listing> {
        self.wait_for("`list`", self.of.list(page))
    }

    /// Changes a stored sequence.
    pub fn set(&self, name: impl AsRef<str>, change: Change) -> Result<SequenceInfo> {
        self.wait_for("`set`", self.of.set(name, change))
    }

    /// Makes every process drop the ids of this sequence that it has in memory.
    pub fn revoke(&self, name: impl AsRef<str> + Send) -> Result<SequenceInfo> {
        self.wait_for("`revoke`", self.of.revoke(name))
    }

    /// Removes a sequence from the store; `false` if there was none.
    pub fn remove(&self, name: impl AsRef<str>) -> Result<bool> {
        self.wait_for("`remove`", self.of.remove(name))
    }

    /// Removes a sequence that still has this identity; `false` if there was none.
    pub fn remove_if(&self, name: impl AsRef<str>, identity: Identity) -> Result<bool> {
        self.wait_for("`remove_if`", self.of.remove_if(name, identity))
    }

    fn wait_for<R>(&self, instead: &str, reply: impl Future<Output = Result<R>>) -> Result<R> {
        block_on_reply(&self.of.ids.shared.runtime, instead, reply, self.of.ids.shared.store_timeout)
    }
}
