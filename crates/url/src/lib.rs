//! URLs of stores: the store that a URL names, and what it puts before and beside the store.
//!
//! A URL is read by the [`Schemes`] of a program, a value to which the crate of each store adds its own.
//! `idmill-any` has those of all stores, by feature.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]

mod guard;
mod memory;
mod schemes;
mod store_url;
mod witness_url;

pub use schemes::Schemes;
pub use store_url::StoreUrl;
pub use witness_url::WitnessUrl;
