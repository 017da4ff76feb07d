//! How an id looks outside: another number, or a text, and the way back.
//!
//! Ids grow one by one. That suits a database, but not always the people and systems outside: order numbers
//! tell a competitor how much is sold, growing keys put every insert on the same server, and people misread
//! twenty digits over the phone. A [`Format`] turns an id into what should be seen. Each of its codecs can be
//! undone, so nothing has to be stored beside the id.
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
//! Numbers to numbers: [`Permutation`] (keyed; hides order and quantity from a casual look, and is not
//! encryption) and [`BitReversal`] (spreads growing ids over the key space). Numbers to texts: [`Base`].
//! `docs/codecs.md` in the repository helps to choose.
//!
//! Every codec is a bijection between the numbers it accepts and its outputs: two ids never become the same,
//! and a number that it does not accept is an error, never truncated. What a format makes of an id never
//! changes from one version of this crate to another.
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
