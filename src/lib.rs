//! Small, unique, ordered numeric ids at the speed of one atomic instruction, from the store you already run.
//!
//! A service that needs order numbers, user ids or row keys keeps a counter in its database. Incrementing it
//! per id is correct and slow. This crate reserves *ranges* from the counter and hands them out from memory,
//! and fetches the next range before it is needed. **No id is ever handed out twice**, whatever crashes,
//! pauses, times out or is cut off.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> idmill::Result<()> {
//! let ids = idmill::connect("memory:").await?;         // a store, by URL: "sqlite:ids.db" keeps what it says
//! let orders = ids.sequence::<u64>("orders").await?;   // a sequence, created on first use
//! let id = orders.next().await?;                       // an id
//! assert_eq!(id, 1);
//!
//! let mut hot = orders.handle();                       // a view for one thread
//! let id = hot.try_next()?;                            // an id from memory; never waits
//! assert_eq!(id, 2);
//!
//! for range in orders.take(1_000).await? {             // a block for a bulk insert
//!     for id in range { /* … */ }
//! }
//! # Ok(()) }
//! ```
//!
//! Programs without an async runtime:
//!
//! ```
//! # fn main() -> idmill::Result<()> {
//! use std::time::Duration;
//!
//! let ids = idmill::Sequences::connect_blocking("memory:")?;
//! let orders = ids.sequence::<i32>("orders").start(1_000).open_blocking()?;
//! assert_eq!(orders.next_blocking(Duration::from_secs(5))?, 1_000);
//! # Ok(()) }
//! ```
//!
//! # Where to look
//!
//! - [`Sequences`]: all sequences of one store, with the one task that refills them.
//! - [`SequenceBuilder`]: the settings of a sequence: bounds, order, sizes.
//! - [`Allocator`], [`Handle`], [`Lease`]: what hands out ids.
//! - [`Order`]: what holds between ids. The guide `docs/guarantees.md` helps to choose.
//! - [`Error`]: what went wrong, and whether to try again.
//! - [`codec`]: how ids leave: permuted, spread over the key space, written for people.
//! - [`store`]: the stores, and how to write one.
//!
//! # Features
//!
//! | feature | adds | pulls in |
//! |---|---|---|
//! | `sqlite` (default) | the embedded store | `rusqlite` with SQLite itself |
//! | `postgres` | PostgreSQL, rows or `SEQUENCE`s; ids inside its transactions | `tokio-postgres`, rustls |
//! | `mysql` | MySQL and MariaDB, and ids inside their transactions | `mysql_async` |
//! | `mongodb` | sequences in MongoDB, `store::mongodb` | `mongodb` |
//! | `cassandra` | sequences in Cassandra, for one datacenter or several | `scylla` |
//! | `spanner` | Cloud Spanner, and ids inside its transactions | `gcloud-spanner` |
//! | `datastore` | Google Cloud Datastore | `reqwest` with rustls, `gcloud-auth` |
//! | `redis` | Redis, as a store and as a window in front of another | `redis` |
//! | `etcd` | etcd, without `protoc` | `tonic` with rustls, `prost` |
//! | `memcached` | a window on memcached in front of another store | sockets alone |
//! | `metrics` | counters, gauges and a histogram through the `metrics` facade | `metrics` |
//! | `conformance` | the suite that every store has to pass, on Unix | `rustix` |
//!
//! # Forking
//!
//! Connect *after* a `fork()`, in each child. A child has a copy of the ids in its parent's memory, and both
//! would hand them out. The child is stopped where the check costs nothing: at the watermark, at the end of a
//! range in memory, when it has to wait and before a refill it gets [`ErrorKind::Closed`]. It never reserves
//! anything. Its draws before that repeat its parent's ids.
//!
//! Spans and events go to `tracing`. The store in memory, for tests, is always there.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(idmill_loom)]
compile_error!(
    "under `--cfg idmill_loom` this source is compiled by the package `loom-tests` alone: see its README.md"
);

mod allocator;
#[cfg(any(test, fuzzing))]
mod bytes;
pub mod codec;
#[cfg(all(feature = "conformance", unix))]
#[cfg_attr(docsrs, doc(cfg(feature = "conformance")))]
pub mod conformance;
mod core;
mod error;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod id;
mod lease;
mod mailbox;
mod name;
#[cfg(feature = "metrics")]
mod observe;
mod opening;
mod pending;
pub mod planning;
mod process;
mod range;
mod recent;
mod refill;
mod registry;
mod segment;
mod sequences;
mod settings;
mod snapshot;
mod stats;
mod stock;
pub mod store;
mod sync;
pub mod tier;

pub use allocator::{Allocator, Handle, Lease, Next};
pub use error::{Error, ErrorKind, Operation, Result, Status};
pub use id::Id;
pub use name::SequenceName;
pub use opening::SequenceBuilder;
pub use range::{Ids, Range, Ranges};
pub use sequences::{Sequences, SequencesBuilder, connect};
pub use settings::Order;
pub use snapshot::{Gaps, Health, Snapshot};
