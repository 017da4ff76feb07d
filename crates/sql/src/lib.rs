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
//! - [`SqlStore`] is the store: a [`Pool`] provides the connections, and a [`Dialect`] the calls on
//!   one of them.
//! - [`InTransaction`] draws ids in a transaction of the caller, with any [`Library`].
//! - The module of each dialect has the table and its statements, the decoding of rows, the
//!   classification of errors, and the calls of [`Store`](idmill::store::Store) over any executor.

pub mod column;
mod executor;
mod fault;
mod history;
pub mod mysql;
pub mod postgres;
mod rows;
pub mod sqlite;
mod store;
mod transaction;
mod witness;

pub(crate) use executor::{must_be_alone, must_be_within};

pub use executor::{Answer, Executor, Row, Statement, Timeout, Value};
pub use fault::{EngineError, Fault};
pub use idmill_kit::{Asked, chain};
pub use store::{Dialect, Pool, SqlStore, Witnesses, all_of, each_of};
pub use transaction::{Awaited, Blocking, Draws, FailsOver, InTransaction, Library, at_once};
