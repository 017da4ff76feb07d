//! Guards a store by a witness, so that no id is handed out twice although the store lost what it had
//! committed.
//!
//! A store that goes back in time grants the same ids again: a backup that was restored, a replica that was
//! promoted without the last writes, a URL that suddenly leads to an empty database. A *witness* is a second
//! durable place. Before a range is used, it is claimed there, and what was claimed before is refused. The
//! witness never grants ids, so losing it loses no id; only losing both at the same moment does.
//!
//! ```text
//!   reserve ──► store grants a range ──► witness: claimed before? ──► no: it is used
//!                                                               └──► yes: the store went back
//! ```
//!
//! - [`Ledger`]: what the witness remembers of a sequence, and every decision. Pure.
//! - [`Witness`]: where ledgers are kept: [`StoreWitness`], in any other store; [`FileWitness`], for the
//!   processes of one machine.
//! - `WitnessUrl` of `idmill-url`: a witness by its URL, as in `guard=URL` of any store's URL.
//! - [`Guarded`]: a store whose grants are claimed before they are used.
//! - [`Announced`]: a reset or a removal through the guard, the only events that lower what was claimed.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]

mod administration;
mod announced;
mod apart;
mod file;
mod guarded;
mod ledger;
mod store;
mod text;
mod witness;

pub use administration::forget;
pub use apart::{drawn_from, is_itself, is_same_file, marked, not_the_server_of, was_there};
pub use file::FileWitness;
pub use guarded::Guarded;
pub use ledger::{Announced, Heal, Ledger, Refusal};
pub use store::StoreWitness;
pub use witness::{Ledgers, MemoryWitness, Witness, Write};

#[cfg(test)]
mod tests;
