//! A store around another one. A test changes some calls; the store inside serves the others.

use std::fmt::Debug;
use std::ops::Deref;

use idmill::store::{
    Bounds, Capabilities, Change, GiveBack, Grant, Listing, Page, Reserve, SequenceInfo, Store, StoreFuture,
};
use idmill::{Result, SequenceName};

/// What a test changes about a store.
pub trait Hooks: Debug + Send + Sync {
    /// The store inside.
    fn inner(&self) -> &dyn Store;

    /// Without batches, so that every reserve goes through [`reserve`](Self::reserve).
    fn capabilities(&self) -> Capabilities {
        self.inner().capabilities().batches(false)
    }

    fn reserve<'a>(&'a self, request: &'a Reserve) -> StoreFuture<'a, Result<Grant>>;

    /// Called only where [`capabilities`](Self::capabilities) has batches.
    fn reserve_many<'a>(&'a self, requests: &'a [Reserve]) -> StoreFuture<'a, Vec<Result<Grant>>> {
        self.inner().reserve_many(requests)
    }

    fn give_back<'a>(&'a self, back: &'a GiveBack) -> StoreFuture<'a, Result<bool>> {
        self.inner().give_back(back)
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
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn reserve<'a>(&'a self, request: &'a Reserve) -> StoreFuture<'a, Result<Grant>> {
        self.0.reserve(request)
    }

    fn reserve_many<'a>(&'a self, requests: &'a [Reserve]) -> StoreFuture<'a, Vec<Result<Grant>>> {
        self.0.reserve_many(requests)
    }

    fn give_back<'a>(&'a self, back: &'a GiveBack) -> StoreFuture<'a, Result<bool>> {
        self.0.give_back(back)
    }

    fn create<'a>(&'a self, name: &'a SequenceName, bounds: Bounds) -> StoreFuture<'a, Result<SequenceInfo>> {
        self.0.inner().create(name, bounds)
    }

    fn inspect<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<Option<SequenceInfo>>> {
        self.0.inner().inspect(name)
    }

    fn list<'a>(&'a self, page: &'a Page) -> StoreFuture<'a, Result<Listing>> {
        self.0.inner().list(page)
    }

    fn set<'a>(&'a self, name: &'a SequenceName, change: Change) -> StoreFuture<'a, Result<SequenceInfo>> {
        self.0.inner().set(name, change)
    }

    fn remove<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<bool>> {
        self.0.inner().remove(name)
    }
}
