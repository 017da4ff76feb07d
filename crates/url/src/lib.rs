//! URLs of stores: parses the store and the options that add a window, a guard or `existing=true`.
//!
//! A program parses URLs with its [`Schemes`]; each store crate adds its own. `idmill-any` has the
//! schemes of all stores, by feature.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]

mod guard;
mod memory;
mod schemes;
mod store_url;
mod witness_url;

pub use schemes::Schemes;
pub use store_url::StoreUrl;
pub use witness_url::WitnessUrl;

#[cfg(test)]
mod tests;
