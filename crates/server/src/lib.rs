//! Small, unique, ordered numeric ids for every language: a server that speaks the Redis protocol and HTTP.
//!
//! The guide, with options, guarantees and errors, is the README of this crate, in the repository and on
//! [crates.io](https://crates.io/crates/idmill-server).
#![cfg_attr(doctest, doc = include_str!("../README.md"))]

mod access;
mod audit;
mod behind;
mod certificate;
mod core;
mod expiry;
mod figures;
mod http;
mod last_error;
mod listening;
mod measures;
mod observed;
mod peer;
mod readiness;
mod resp;
mod served;
mod server;
mod tls;
mod troubles;

pub use access::{Access, Pattern, Right, Rights, Secret, Token, TokenHash};
pub use figures::Figures;
pub use server::{Server, ServerBuilder};
pub use tls::Tls;
