//! The store over any driver: sessions from an adapter's pool, and the calls of a dialect on one of
//! them.

use std::borrow::BorrowMut;
use std::fmt;
use std::future::ready;

use idmill::store::{
    Bounds, Capabilities, Change, GiveBack, Grant, Identity, Listing, Page, Records, Reserve, SequenceInfo,
    Store, StoreFuture,
};
use idmill::{Operation, Result, SequenceName};

use crate::Asked;

/// Provides an adapter's sessions.
pub trait Pool: Send + Sync {
    /// The session that a call runs on.
    type Session: Send;
    /// A session in use. If it is dropped while a statement may be running, it is closed.
    type Held: BorrowMut<Self::Session> + Send;

    /// Takes a session for a call that reads or writes.
    fn take(&self, asked: Asked) -> impl Future<Output = Result<Self::Held>> + Send;

    /// Puts the session back into the pool after its call.
    fn put_back(&self, _: Self::Held) -> impl Future<Output = ()> + Send {
        ready(())
    }
}

/// A store made of a pool and the calls of a dialect. Clones share both.
#[derive(Clone)]
pub struct SqlStore<P, D> {
    pool: P,
    calls: D,
}

impl<P, D> SqlStore<P, D> {
    /// Creates a store over a table that has been checked.
    pub fn new(pool: P, calls: D) -> Self {
        Self { pool, calls }
    }
}

/// Declares a trait of calls on one session, and the matching methods of the store. Each method takes a
/// session, makes the call, and puts the session back.
macro_rules! calls {
    ($(#[$of_trait:meta])* $trait:ident { $($more:tt)* }
     $($asked:ident $try:ident: $call:ident($($name:ident: $of:ty),*) -> $outcome:ty;)*) => {
        $(#[$of_trait])*
        #[allow(clippy::missing_errors_doc)] // they are those of the trait `Store`
        pub trait $trait<S>: Send + Sync {
            $($more)*

            $(
                #[doc = concat!("[`Store::", stringify!($call), "`].")]
                fn $call(&self, session: &mut S $(, $name: $of)*) -> impl Future<Output = Result<$outcome>> + Send;
            )*
        }

        impl<P: Pool, D: Dialect<P::Session> + Witnesses<P::Session>> SqlStore<P, D> {$(
            async fn $try(&self $(, $name: $of)*) -> Result<$outcome> {
                if Asked::$asked == Asked::Write {
                    self.calls.may_write()?;
                }
                let mut held = self.pool.take(Asked::$asked).await?;
                let outcome = self.calls.$call(held.borrow_mut() $(, $name)*).await;
                self.pool.put_back(held).await;
                outcome
            }
        )*}
    };
}

calls! {
    /// The calls of [`Store`] in a dialect, each on one session. Their errors lack the sequence and
    /// the operation.
    Dialect {
        /// The capabilities of the store.
        const CAPABILITIES: Capabilities;

        /// Checks that writes are allowed. A store calls this method before it takes a session for a write.
        fn may_write(&self) -> Result<()> {
            Ok(())
        }
    }
    Write try_reserve: reserve(request: &Reserve) -> Grant;
    Write try_reserve_many: reserve_many(requests: &[Reserve]) -> Vec<Result<Grant>>;
    Write try_give_back: give_back(back: &GiveBack) -> bool;
    Write try_give_back_many: give_back_many(backs: &[GiveBack]) -> Vec<bool>;
    Write try_create: create(name: &SequenceName, bounds: Bounds) -> SequenceInfo;
    Read try_inspect: inspect(name: &SequenceName) -> Option<SequenceInfo>;
    Read try_list: list(page: &Page) -> Listing;
    Write try_set: set(name: &SequenceName, change: Change) -> SequenceInfo;
    Write try_remove: remove(name: &SequenceName, expected: Option<Identity>) -> bool;
    Read try_server: server() -> Option<String>;
}

calls! {
    /// The calls for records, which have their own table.
    Witnesses {}
    Read try_record: record(name: &SequenceName) -> Option<String>;
    Write try_swap_record: swap_record(name: &SequenceName, seen: Option<&str>, wanted: &str) -> bool;
    Read try_list_records: list_records(page: &Page) -> Records;
}

impl<P: Pool, D: Dialect<P::Session> + Witnesses<P::Session> + fmt::Debug> Store for SqlStore<P, D> {
    fn capabilities(&self) -> Capabilities {
        D::CAPABILITIES
    }

    fn reserve_many<'a>(&'a self, requests: &'a [Reserve]) -> StoreFuture<'a, Vec<Result<Grant>>> {
        Box::pin(async move {
            if D::CAPABILITIES.batches {
                return each_of(requests, self.try_reserve_many(requests).await);
            }
            let mut grants = Vec::with_capacity(requests.len());
            for request in requests {
                grants.push(self.reserve(request).await);
            }
            grants
        })
    }

    fn give_back_many<'a>(&'a self, backs: &'a [GiveBack]) -> StoreFuture<'a, Vec<Result<bool>>> {
        Box::pin(async move {
            if D::CAPABILITIES.batches {
                return all_of(backs, self.try_give_back_many(backs).await);
            }
            let mut taken = Vec::with_capacity(backs.len());
            for back in backs {
                taken.push(self.give_back(back).await);
            }
            taken
        })
    }

    idmill::store_calls!(
        reserve give_back create inspect list set remove server record swap_record list_records
    );
}

/// Returns one outcome per rest, with the sequence's name in errors.
pub fn all_of(backs: &[GiveBack], taken: Result<Vec<bool>>) -> Vec<Result<bool>> {
    match taken {
        Ok(taken) => taken.into_iter().map(Ok).collect(),
        Err(error) => {
            let named = |back: &GiveBack| Err(error.clone().of(&back.name).during(Operation::GiveBack));
            backs.iter().map(named).collect()
        }
    }
}

/// Returns one outcome per request, with the sequence's name in errors. A failure of the whole
/// batch becomes the outcome of each request.
pub fn each_of(requests: &[Reserve], outcomes: Result<Vec<Result<Grant>>>) -> Vec<Result<Grant>> {
    let outcomes = outcomes.unwrap_or_else(|error| vec![Err(error); requests.len()]);
    let named = |(outcome, request): (Result<Grant>, &Reserve)| {
        outcome.map_err(|error| error.of(&request.name).during(Operation::Reserve))
    };
    outcomes.into_iter().zip(requests).map(named).collect()
}

/// Omits the pool, which may contain a password.
impl<P, D: fmt::Debug> fmt::Debug for SqlStore<P, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlStore").field("calls", &self.calls).finish_non_exhaustive()
    }
}
