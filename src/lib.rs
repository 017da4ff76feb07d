//! Small, unique, ordered numeric ids at the speed of one atomic instruction, from the store you already run.
//!
//! A service that needs order numbers, user ids or row keys keeps a counter in its database. Incrementing it
//! for each id is correct but slow. This crate reserves *ranges* from the counter, hands them out from
//! memory, and fetches the next range before it is needed. **No id is ever handed out twice**, even after
//! crashes, pauses, timeouts and lost connections.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> idmill::Result<()> {
//! use idmill::store::MemoryStore;
//!
//! // Or `idmill_sqlite::connect("sqlite:ids.db").await?`.
//! let ids = idmill::Sequences::new(MemoryStore::new())?;
//! let orders = ids.sequence::<i64>("orders").await?;   // a sequence, created on first use
//! let id = orders.next().await?;                       // an id
//! assert_eq!(id, 1);
//!
//! let mut hot = orders.handle();                       // a view for one thread
//! let id = hot.try_next()?;                            // an id from memory; never waits
//! assert_eq!(id, 2);
//!
//! for id in orders.take(1_000).await? { /* … */ }      // many ids, for a bulk insert
//! # Ok(()) }
//! ```
//!
//! Programs without an async runtime:
//!
//! ```
//! # fn main() -> idmill::Result<()> {
//! use idmill::store::MemoryStore;
//!
//! // Or with `SqliteStore::open("ids.db")`.
//! let ids = idmill::Sequences::connect_blocking(async { Ok(MemoryStore::new()) })?;
//! let orders = ids.sequence::<i32>("orders").start(1_000).open_blocking()?;
//! assert_eq!(orders.blocking().next()?, 1_000);
//! # Ok(()) }
//! ```
//!
//! # Where to look
//!
//! - [`Sequences`]: all sequences of one store, and the task that refills them.
//! - [`SequenceBuilder`]: the settings of a sequence: bounds, order, sizes.
//! - [`Allocator`], [`Handle`]: hand out ids.
//! - [`Order`]: the ordering guarantee of a sequence. See `docs/guide/order.md`.
//! - [`Error`]: the kind of a failure, and whether to retry.
//! - [`store`]: the contract of a store, and an in-memory store.
//!
//! # Stores
//!
//! Each store is a crate with its driver and a function `connect(url)`: `idmill-sqlite`, `idmill-postgres`,
//! `idmill-mysql`, `idmill-mongodb`, `idmill-cassandra`, `idmill-spanner`, `idmill-datastore`,
//! `idmill-redis`, `idmill-etcd`. `idmill-remote` reaches any of them through `idmill serve`.
//! `idmill-memcached` and `idmill-redis` can also serve windows of ids in front of another store.
//! `idmill-sqlx`, `idmill-sqlx08`, `idmill-sea-orm`, `idmill-sea-orm1` and `idmill-diesel` draw ids in the
//! transactions of a service that has its own connection pool.
//!
//! | crate | for |
//! | --- | --- |
//! | `idmill-any` | programs whose users choose the store by URL |
//! | `idmill-guard` | no duplicate ids after a restore: `Guarded::new(store, witness)` |
//! | `idmill-doctor` | diagnosis and repair of the sequences in a store |
//! | `idmill-codec` | external forms of ids: permuted, spread over the key space, human-readable |
//! | `idmill-kit`, `idmill-conformance` | authors of stores |
//!
//! No feature of this crate is on by default. `metrics` adds counters, gauges and a histogram through the
//! `metrics` facade. `serde` adds serialization of names, id types, ranges, error kinds and snapshots; values
//! are checked when they are read.
//!
//! # Forking
//!
//! Connect *after* a `fork()`, in each child. A child has a copy of the ids in its parent's memory, and both
//! would hand them out. Calls in the child return [`ErrorKind::Closed`] where a check of the process costs
//! nothing: at the watermark, at the end of a range in memory, before a wait and before a refill. The child
//! never reserves ids. Until the first of these checks, its draws duplicate its parent's ids.
//!
//! Spans and events go to `tracing`.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(idmill_loom)]
compile_error!("`--cfg idmill_loom` works only in the package `loom-tests`: see its README.md");

mod allocator;
mod blocking;
mod bounded_map;
#[cfg(any(test, fuzzing))]
#[path = "../fuzz/engine/bytes.rs"] // not in the published package, nor is `fuzzing`
mod bytes;
mod error;
#[cfg(fuzzing)]
#[doc(hidden)]
#[path = "../fuzz/engine/fuzzing.rs"]
pub mod fuzzing;
#[cfg(doctest)]
mod guide;
mod id;
mod name;
mod range;
mod refill;
mod sequences;
#[cfg(feature = "serde")]
mod serialization;
mod state;
pub mod store;
mod sync;
mod text;

/// Not a public API: for the macros, the other crates of the project, and the `idmill` command.
#[doc(hidden)]
pub mod __private {
    pub use crate::bounded_map::BoundedMap;
    pub use crate::id::{checked, read};
    pub use crate::refill::engine::policy::settled;
    pub use crate::sequences::is_answer;
    #[cfg(feature = "serde")]
    pub use crate::serialization::{read_id, write_id};
    pub use crate::state::metrics::count;
    #[cfg(feature = "metrics")]
    pub use crate::state::metrics::totals;
    #[cfg(feature = "serde")]
    pub use serde;
}

pub use allocator::{Allocator, Handle, Next};
pub use blocking::Blocking;
pub use error::{Error, ErrorKind, Operation, Result, Status};
pub use id::Id;
pub use name::SequenceName;
pub use range::{IdRange, Ids, Ranges};
pub use sequences::{Admin, HealthReport, SequenceBuilder, Sequences, SequencesBuilder, Trouble};
pub use state::settings::Order;
pub use state::snapshot::{Gaps, Health, Snapshot};
