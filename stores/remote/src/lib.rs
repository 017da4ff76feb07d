//! Ids for processes that may not reach the database, over idmill's server: small, unique, ordered, in
//! ranges.
//!
//! The guide, with options, guarantees and errors, is the README of this crate, in the repository and on
//! [crates.io](https://crates.io/crates/idmill-remote).
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
//!
//! # The crate
//!
//! [`RemoteStore`] is the store, and [`RemoteOptions`] describes the URL. [`protocol`] has the messages
//! between client and server. The feature `client` is on by default. Without it, the crate has only the
//! protocol and needs no driver; the server uses it this way.
//!
//! # Cancellation
//!
//! A call that is dropped may already have been sent. The server then executes it, and the reserved range
//! becomes a gap.

#[cfg(feature = "client")]
mod client;
pub mod protocol;

#[cfg(feature = "client")]
pub use client::{RemoteOptions, RemoteStore, SCHEMES, connect};
pub use idmill;
