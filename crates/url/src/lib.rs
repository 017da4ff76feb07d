//! URLs of stores: the store that a URL names, and what it puts before and beside the store.
//!
//! A URL is read by the [`Schemes`] that a program has: [`register`] adds those of a store's crate to the set
//! of the process. `idmill-any` has all stores, by feature.
#![cfg_attr(doctest, doc = include_str!("../README.md"))]

mod guard;
mod memory;
mod schemes;
mod store_url;
mod witness_url;

use std::sync::Arc;

use idmill::store::Store;
use idmill::{Result, Sequences};

pub use schemes::{Schemes, register};
pub use store_url::StoreUrl;
pub use witness_url::WitnessUrl;

/// Opens the store at `url`, and its sequences, on the current tokio runtime. See [`StoreUrl`] for the URLs.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> idmill::Result<()> {
/// let ids = idmill_url::connect("memory:").await?; // or "sqlite:ids.db", by `idmill-sqlite`
/// assert_eq!(ids.sequence::<u64>("orders").await?.next().await?, 1);
/// # Ok(()) }
/// ```
///
/// # Errors
/// Those of [`StoreUrl::parse`] and of opening the store.
pub async fn connect(url: &str) -> Result<Sequences> {
    Sequences::new(open_store(url).await?)
}

/// Opens the store at `url`.
///
/// # Errors
/// Those of [`connect`].
pub async fn open_store(url: &str) -> Result<Arc<dyn Store>> {
    StoreUrl::parse(url)?.connect().await
}
