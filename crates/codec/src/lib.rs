//! Converts an id to another number or to a text, and back.
//!
//! Consecutive ids suit a database, but not always people and other systems. Order numbers reveal sales to a
//! competitor, growing keys send every insert to the same server, and people misread twenty digits over the
//! phone. A [`Format`] converts an id to a more suitable form. Each of its codecs is reversible, so nothing
//! has to be stored with the id.
//!
//! ```
//! use idmill_codec::Format;
//!
//! # fn main() -> idmill::Result<()> {
//! let format: Format = "permute(key=0x5eed,bits=31)|crockford(check)|pad(8)|group(4)|prefix(ORD-)".parse()?;
//! assert_eq!(format.encode(1)?, "ORD-0KWB-N78M");
//! assert_eq!(format.encode(2)?, "ORD-1RCB-7GEW");
//! assert_eq!(format.decode("ord-okwbn78m")?, 1); // as somebody typed it
//! assert!(format.decode("ORD-0KWB-N87M").is_err()); // and typed it wrongly
//! # Ok(()) }
//! ```
//!
//! [`Permutation`] and [`BitReversal`] map numbers to numbers. The permutation is keyed; it hides order
//! and quantity from a casual reader, but it is not encryption. The reversal spreads growing ids over the
//! key space. [`Base`] maps numbers to texts. `docs/guide/codecs.md` in the repository
//! helps to choose.
//!
//! Every codec is a bijection between the numbers it accepts and its outputs. Two ids never have the same
//! output. A number outside the domain is an error and is never truncated. The output of a format never
//! changes between versions of this crate.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]

mod base;
mod domain;
mod fault;
mod format;
mod key;
mod permutation;
mod reversal;

pub use base::Base;
pub use domain::Domain;
pub use format::{Format, Mapping, Text};
pub use key::{Key, KeySource};
pub use permutation::Permutation;
pub use reversal::BitReversal;
