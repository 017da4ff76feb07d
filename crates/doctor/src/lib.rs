//! Finds problems with the sequences of a store before an id repeats or the ids run out.
//!
//! A store, and the processes that draw from it, detect only in some cases that the store went back in time.
//! Two independent records can show that the store went back: the largest id in the user's data, which must
//! be below the next id, and the ledgers of a [witness](idmill_guard), which contain all claims. [`Doctor`]
//! compares the store with both records.
//!
//! - [`Doctor`]: examines a store and returns its [`Finding`]s.
//! - [`Finding`]: the check, its result, and the [`Remedy`].
//! - [`ColumnUrl`]: a column of the user's data.
//! - [`apply`]: applies a remedy that only raises a counter.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> idmill::Result<()> {
//! use idmill_doctor::{Doctor, Finding, FindingKind};
//! use idmill_guard::{Guarded, MemoryWitness};
//! use idmill::store::{MemoryStore, Store};
//! use idmill::Sequences;
//! use std::sync::Arc;
//!
//! let (store, witness) = (Arc::new(MemoryStore::new()), Arc::new(MemoryWitness::new()));
//! let guarded: Arc<dyn Store> = Arc::new(Guarded::new(store.clone(), witness.clone()));
//! let orders = Sequences::new(guarded)?.sequence::<u64>("orders").step(10).await?;
//! let backup = store.snapshot();
//! orders.next().await?;
//! store.restore(&backup); // the store no longer has the grant
//!
//! let doctor = Doctor::new(store.clone()).witness(witness);
//! let went_back = |found: &Finding| found.kind == FindingKind::WentBack;
//! let findings = doctor.examine().await.findings;
//! let finding = findings.into_iter().find(went_back).expect("a finding");
//! idmill_doctor::apply(&*store, &finding.remedy).await?;
//! assert!(!doctor.examine().await.findings.iter().any(went_back));
//! # Ok(()) }
//! ```
#![cfg_attr(doctest, doc = include_str!("../README.md"))]

mod column;
mod examine;
mod finding;
mod judge;
#[cfg(test)]
mod tests;

pub use column::ColumnUrl;
pub use examine::{Doctor, Examined, Reached};
pub use finding::{Finding, FindingKind, Remedy, Severity, apply};
