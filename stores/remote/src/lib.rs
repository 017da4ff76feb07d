//! Ids for processes that may not reach the database, over idmill's server: small, unique, ordered, in
//! ranges.
//!
//! The guide, with options, guarantees and errors, is the README of this crate, in the repository and on
//! [crates.io](https://crates.io/crates/idmill-remote).
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
//!
//! # The crate
//!
//! [`RemoteStore`] is the store, and [`RemoteOptions`] describes the URL. [`protocol`] is what it and the
//! server say to each other. Without the feature `client`, which is on by default, the protocol is all there
//! is: so the server has it, without a driver.
//!
//! # Cancellation
//!
//! A call that is dropped may already have been sent. The server then carries it out, and the range it
//! reserved becomes a gap.

#[cfg(feature = "client")]
mod client;
pub mod protocol;

#[cfg(feature = "client")]
pub use client::{RemoteOptions, RemoteStore, SCHEMES, connect};
pub use idmill;
