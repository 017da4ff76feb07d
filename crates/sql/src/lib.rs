//! The SQL of idmill's stores, over any driver: statements, tables and the classification of
//! errors.
//!
//! The guide, with options, guarantees and errors, is the README of this crate, in the repository
//! and on
//! [crates.io](https://crates.io/crates/idmill-sql).
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
//!
//! # Overview
//!
//! - [`Executor`] runs a [`Statement`] and returns an [`Answer`] or a [`Fault`]. Each adapter implements an
//!   executor for a transaction of the caller, and may implement one for its own connections.
//! - [`store!`] makes a store of an adapter's connections and the calls of a [`Dialect`] on one of them.
//! - [`options!`] declares the options that all dialects have.
//! - [`InTransaction`] draws ids in a transaction of the caller, with any [`Library`].
//! - The module of each dialect has the table and its statements, the decoding of rows, the
//!   classification of errors, and the calls of [`Store`](idmill::store::Store) over any executor.

pub mod column;
mod executor;
mod fault;
mod history;
pub mod mysql;
mod options;
pub mod postgres;
mod rows;
pub mod sqlite;
mod store;
mod transaction;
mod witness;

pub(crate) use executor::{must_be_alone, must_be_within};

pub use executor::{Answer, Executor, Row, Statement, Timeout, Value};
pub use fault::{EngineError, Fault};
pub use idmill::{Id, IdRange, Result};
#[doc(hidden)]
pub use idmill_kit as kit;
pub use idmill_kit::{Asked, chain};
pub use options::Opening;
pub(crate) use store::each_of;
pub use store::{Batches, Dialect, Witnesses, types};
pub use transaction::{Awaited, Blocking, Draws, FailsOver, InTransaction, Library, at_once};
