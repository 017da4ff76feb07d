//! A store around another one. A test changes some calls; the store inside serves the others.

use std::fmt::Debug;
use std::ops::Deref;

use idmill::Result;
use idmill::store::{Capabilities, GiveBack, Grant, Reserve, Store, StoreFuture};

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
    idmill::store_calls!(|this| this.0 => capabilities reserve reserve_many give_back);
    idmill::store_calls!(|this| this.0.inner() =>
        create inspect inspect_many list set remove server record swap_record list_records);
}
