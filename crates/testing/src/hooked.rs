//! A store around another one. A test changes some calls; the store inside serves the others.

use std::fmt::Debug;
use std::ops::Deref;

use idmill::store::{Capabilities, Change, GiveBack, Grant, Reserve, SequenceInfo, Store, StoreFuture};
use idmill::{Result, SequenceName};

/// The calls of a store that a test changes.
pub trait Hooks: Debug + Send + Sync {
    /// The store inside.
    fn inner(&self) -> &dyn Store;

    /// The capabilities, without batches, so that every reserve goes through [`reserve`](Self::reserve).
    fn capabilities(&self) -> Capabilities {
        self.inner().capabilities().batches(false)
    }

    fn reserve<'a>(&'a self, request: &'a Reserve) -> StoreFuture<'a, Result<Grant>> {
        self.inner().reserve(request)
    }

    /// Called only if [`capabilities`](Self::capabilities) has batches.
    fn reserve_many<'a>(&'a self, requests: &'a [Reserve]) -> StoreFuture<'a, Vec<Result<Grant>>> {
        self.inner().reserve_many(requests)
    }

    fn give_back<'a>(&'a self, back: &'a GiveBack) -> StoreFuture<'a, Result<bool>> {
        self.inner().give_back(back)
    }

    fn inspect_many<'a>(
        &'a self,
        names: &'a [SequenceName],
    ) -> StoreFuture<'a, Vec<Result<Option<SequenceInfo>>>> {
        self.inner().inspect_many(names)
    }

    fn set<'a>(&'a self, name: &'a SequenceName, change: Change) -> StoreFuture<'a, Result<SequenceInfo>> {
        self.inner().set(name, change)
    }
}

/// The store with its hooks.
#[derive(Clone, Debug, Default)]
pub struct Hooked<H>(pub H);

impl<H> Deref for Hooked<H> {
    type Target = H;

    fn deref(&self) -> &H {
        &self.0
    }
}

impl<H: Hooks> Store for Hooked<H> {
    idmill::store_calls!(|this| this.0 => capabilities reserve reserve_many give_back inspect_many set);
    idmill::store_calls!(|this| this.0.inner() =>
        create inspect list remove server record swap_record list_records);
}
