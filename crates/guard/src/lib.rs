//! Guards a store with a witness, so that no id is handed out twice even if the store lost committed data.
//!
//! A store that went back in time grants the same ids again. Examples are a restored backup, a replica
//! promoted without the last writes, or a URL that now names an empty database. A *witness* is a second
//! durable place. Each range is claimed there before it is used, and a range that was claimed before is
//! rejected. The witness never grants ids, so losing only the witness does not repeat an id. Ids repeat only
//! if the store and the witness lose data at once.
//!
//! ```text
//!   reserve ──► store grants a range ──► witness: claimed before? ──► no: it is used
//!                                                               └──► yes: the store went back
//! ```
//!
//! - [`Ledger`]: the claims of one sequence, and all decisions. Pure.
//! - [`Witness`]: stores ledgers: [`StoreWitness`] in any other store, [`FileWitness`] for the processes of
//!   one machine.
//! - `WitnessUrl` of `idmill-url`: a witness by its URL, as in `guard=URL` of any store's URL.
//! - [`Guarded`]: a store whose grants are claimed before they are used.
//! - [`Announced`]: a reset or a removal through the guard. Otherwise, only ids that are given back lower the
//!   claims.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]

mod administration;
mod announced;
mod apart;
mod claim;
mod file;
mod guarded;
mod ledger;
mod store;
mod text;
mod witness;

pub use administration::forget;
pub use apart::{is_itself, is_same_file, marked, not_the_server_of, probe, used_before};
pub use file::FileWitness;
pub use guarded::{Guarded, shortened};
pub use ledger::{Announced, Heal, Ledger, Refusal};
pub use store::StoreWitness;
pub use witness::{Ledgers, MemoryWitness, Witness, Write};

#[cfg(test)]
mod tests;
