//! Small, unique, ordered numeric ids for every language: a server that speaks the Redis protocol and HTTP.
//!
//! The guide, with options, guarantees and errors, is the README of this crate, in the repository and on
//! [crates.io](https://crates.io/crates/idmill-server).
#![cfg_attr(doctest, doc = include_str!("../README.md"))]

mod access;
mod audit;
mod counters;
mod http;
mod last_error;
mod listener;
mod listing;
mod peer;
mod readiness;
mod resp;
mod sequences;
mod server;
mod state;
mod status;
mod store_proxy;
mod tls;

pub use access::{Access, Pattern, Right, Rights, Secret, Token, TokenHash};
pub use server::{Figures, Server, ServerBuilder};
pub use tls::Tls;
