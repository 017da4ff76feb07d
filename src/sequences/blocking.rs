//! Administration and closing, for threads outside any async runtime.

use std::future::Future;
use std::time::Duration;

use super::{Admin, Sequences};
use crate::allocator::block_on_reply;
use crate::blocking::Blocking;
use crate::error::Result;
use crate::sequence::mailbox::Ending;
use crate::store::{Bounds, Change, Identity, Listing, Page, SequenceInfo};

/// How much longer than the close timeout `close` waits for a runtime that does not run.
const CLOSE_MARGIN: Duration = Duration::from_secs(10);

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

impl Blocking<&Sequences> {
    /// Closes all allocators. The sequences are closed even if this fails: an error means that this call did
    /// not wait until the remaining ids had been given back.
    ///
    /// # Errors
    /// [`Deadline`](crate::ErrorKind::Deadline) if the refills' runtime does not run for 10 s longer than the
    /// [close timeout](crate::SequencesBuilder::close_timeout);
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if this is the only thread that drives the refills.
    pub fn close(&self) -> Result<()> {
        self.of.shared.mailbox.close(Ending::Asked);
        let limit = self.of.shared.close_timeout.saturating_add(CLOSE_MARGIN);
        let ended = async {
            self.of.close().await;
            Ok(())
        };
        block_on_reply(&self.of.shared.runtime, "`close`", ended, limit)
    }
}
