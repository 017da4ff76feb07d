//! Ids for processes without access to the database, from an idmill server: small, unique, ordered, in
//! ranges.
//!
//! The guide, with options, guarantees and errors, is the README of this crate, in the repository and on
//! [crates.io](https://crates.io/crates/idmill-remote).
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
//!
//! # The crate
//!
//! [`RemoteStore`] is the store, and [`RemoteOptions`] describes the URL. [`protocol`] has the messages
//! between client and server. The feature `client` is on by default. Without this feature, the crate has
//! only the protocol and no driver, which is how the server uses it.
//!
//! # Cancellation
//!
//! If a call is dropped, its request may already have been sent. The server then executes the request, and
//! the reserved range becomes a gap.

#[cfg(feature = "client")]
mod client;
pub mod protocol;

#[cfg(feature = "client")]
pub use client::{RemoteOptions, RemoteStore, SCHEMES, connect};
pub use idmill;
