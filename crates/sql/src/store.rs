//! The store over any driver: the calls of a dialect, each on a session of an adapter.

use idmill::store::{GiveBack, Grant, Reserve};
use idmill::{Operation, Result};

/// The names that [`store!`](crate::store!) uses.
#[doc(hidden)]
pub mod types {
    pub use idmill::store::{
        Bounds, Capabilities, Change, GiveBack, Grant, Identity, Listing, Page, Records, Reserve,
        SequenceInfo, Store, StoreFuture,
    };
    pub use idmill::{Operation, Result, SequenceName};
    pub use idmill_kit::Asked;

    pub use super::{Batches, Dialect, Witnesses, all_of, each_of};
    pub use crate::at_once;

    /// Adds the sequence and the operation to an error.
    pub fn of<T>(outcome: Result<T>, name: &SequenceName, operation: Operation) -> Result<T> {
        outcome.map_err(|error| error.of(name).during(operation))
    }

    /// Adds the operation to an error.
    pub fn during<T>(outcome: Result<T>, operation: Operation) -> Result<T> {
        outcome.map_err(|error| error.during(operation))
    }
}

/// Implements [`Store`](idmill::store::Store) for a type by its field `calls`.
///
/// ```ignore
/// store! { ToyStore, session: |store, asked| store.take(asked).await?, |held| &mut held, held.put_back() }
/// store! { batches BlockingStore, thread }
/// ```
///
/// With `session`, the expressions take a session for a call that reads or writes, return the session that
/// the call runs on, and put it back. If a session is dropped while a statement may be running, it must be
/// closed. With `thread`, the type's method `run` runs each call on a thread that may block. With `batches`,
/// the calls must also have [`Batches`].
#[macro_export]
macro_rules! store {
    (batches $store:ident, $($how:tt)*) => {
        $crate::store! { @impl $store, [$($how)*]
            Write Batches::reserve_many(&requests: [Reserve]) -> Vec<Result<Grant>>, each_of(requests);
            Write Batches::give_back_many(&backs: [GiveBack]) -> Vec<Result<bool>>, all_of(backs);
        }
    };
    (@impl $store:ident, $how:tt $($batches:tt)*) => {
        const _: () = {
            use $crate::types::*;

            impl Store for $store {
                fn capabilities(&self) -> Capabilities {
                    self.calls.capabilities()
                }

                $crate::store! { @each $how
                    $($batches)*
                    Write Dialect::reserve(&request: Reserve) -> Result<Grant>, of(&request.name, Operation::Reserve);
                    Write Dialect::give_back(&back: GiveBack) -> Result<bool>, of(&back.name, Operation::GiveBack);
                    Write Dialect::create(&name: SequenceName, bounds: Bounds) -> Result<SequenceInfo>,
                        of(name, Operation::Create);
                    Read Dialect::inspect(&name: SequenceName) -> Result<Option<SequenceInfo>>,
                        of(name, Operation::Inspect);
                    Read Dialect::list(&page: Page) -> Result<Listing>, during(Operation::List);
                    Write Dialect::set(&name: SequenceName, change: Change) -> Result<SequenceInfo>,
                        of(name, Operation::Set);
                    Write Dialect::remove(&name: SequenceName, expected: Option<Identity>) -> Result<bool>,
                        of(name, Operation::Remove);
                    Read Dialect::server() -> Result<Option<String>>, during(Operation::Connect);
                    Read Witnesses::record(&name: SequenceName) -> Result<Option<String>>,
                        of(name, Operation::Inspect);
                    Write Witnesses::swap_record(
                        &name: SequenceName,
                        seen: Option<&'a str> [seen.map(str::to_owned) => seen.as_deref()],
                        wanted: &'a str [wanted.to_owned() => &wanted]
                    ) -> Result<bool>, of(name, Operation::Set);
                    Read Witnesses::list_records(&page: Page) -> Result<Records>, during(Operation::List);
                }
            }

            /// Omits the sessions, which may contain a password.
            impl ::std::fmt::Debug for $store {
                fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                    f.debug_struct(stringify!($store)).field("calls", &self.calls).finish_non_exhaustive()
                }
            }
        };
    };
    (@each [session: |$this:pat_param, $why:pat_param| $take:expr, |$held:ident| $lend:expr, $put_back:expr]
     $($asked:ident $of:ident::$call:ident(
         $(&$lent:ident: $lent_type:ty)? $(, $name:ident: $type:ty $([$own:expr => $again:expr])?)*
     ) -> $outcome:ty, $finish:ident($($with:expr),*);)*) => {$(
        fn $call<'a>(&'a self $(, $lent: &'a $lent_type)? $(, $name: $type)*) -> StoreFuture<'a, $outcome> {
            Box::pin(async move {
                let ($this, $why) = (self, Asked::$asked);
                let outcome = async {
                    let mut $held = $take;
                    let outcome = $of::$call(&self.calls, $lend $(, $lent)? $(, $name)*).await;
                    $put_back;
                    outcome
                };
                $finish(outcome.await $(, $with)*)
            })
        }
    )*};
    // The arguments are copied, since the thread may outlive the caller.
    (@each [thread]
     $($asked:ident $of:ident::$call:ident(
         $(&$lent:ident: $lent_type:ty)? $(, $name:ident: $type:ty $([$own:expr => $again:expr])?)*
     ) -> $outcome:ty, $finish:ident($($with:expr),*);)*) => {$(
        fn $call<'a>(&'a self $(, $lent: &'a $lent_type)? $(, $name: $type)*) -> StoreFuture<'a, $outcome> {
            let call = {
                $(let $lent = $lent.to_owned();)?
                $($(let $name = $own;)?)*
                move |session: &mut _, calls: &_| {
                    at_once($of::$call(
                        calls, session $(, &$lent)? $(, $crate::store!(@again $name $($again)?))*
                    ))
                }
            };
            Box::pin(async move { $finish(self.run(Asked::$asked, call).await $(, $with)*) })
        }
    )*};
    (@again $name:ident) => { $name };
    (@again $name:ident $again:expr) => { $again };
    ($store:ident, $($how:tt)*) => {
        $crate::store! { @impl $store, [$($how)*] }
    };
}

/// Declares a trait of calls, each on one session.
macro_rules! calls {
    ($(#[$of_trait:meta])* $trait:ident: $($call:ident($($name:ident: $of:ty),*) -> $outcome:ty;)*) => {
        $(#[$of_trait])*
        #[allow(clippy::missing_errors_doc)] // they are those of the trait `Store`
        pub trait $trait<S>: Send + Sync {$(
            #[doc = concat!("[`Store::", stringify!($call), "`](idmill::store::Store::", stringify!($call), ").")]
            fn $call(
                &self,
                session: &mut S
                $(, $name: $of)*
            ) -> impl Future<Output = Result<$outcome>> + Send;
        )*}
    };
}

use self::types::{Bounds, Change, Identity, Listing, Page, Records, SequenceInfo, SequenceName};

calls! {
    /// The calls of a store in a dialect. Their errors lack the sequence and the operation.
    Dialect:
    reserve(request: &Reserve) -> Grant;
    give_back(back: &GiveBack) -> bool;
    create(name: &SequenceName, bounds: Bounds) -> SequenceInfo;
    inspect(name: &SequenceName) -> Option<SequenceInfo>;
    list(page: &Page) -> Listing;
    set(name: &SequenceName, change: Change) -> SequenceInfo;
    remove(name: &SequenceName, expected: Option<Identity>) -> bool;
    server() -> Option<String>;
}

calls! {
    /// The calls for several sequences at once. Their errors lack the sequence and the operation.
    Batches:
    reserve_many(requests: &[Reserve]) -> Vec<Result<Grant>>;
    give_back_many(backs: &[GiveBack]) -> Vec<bool>;
}

calls! {
    /// The calls for records, which have their own table.
    Witnesses:
    record(name: &SequenceName) -> Option<String>;
    swap_record(name: &SequenceName, seen: Option<&str>, wanted: &str) -> bool;
    list_records(page: &Page) -> Records;
}

/// Returns one outcome per rest, with the sequence's name in errors.
pub fn all_of(taken: Result<Vec<bool>>, backs: &[GiveBack]) -> Vec<Result<bool>> {
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
pub fn each_of(outcomes: Result<Vec<Result<Grant>>>, requests: &[Reserve]) -> Vec<Result<Grant>> {
    let outcomes = outcomes.unwrap_or_else(|error| vec![Err(error); requests.len()]);
    let named = outcomes.into_iter().zip(requests);
    named.map(|(outcome, request)| types::of(outcome, &request.name, Operation::Reserve)).collect()
}
