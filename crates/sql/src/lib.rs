//! The SQL of idmill's stores: statements, tables, and what errors mean, over any driver.
//!
//! The guide, with options, guarantees and errors, is the README of this crate, in the repository and on
//! [crates.io](https://crates.io/crates/idmill-sql).
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
//!
//! # Where things are
//!
//! - [`Executor`] runs a [`Statement`], and answers with an [`Answer`] or a [`Fault`]. Each adapter
//!   implements it, once for its own connections and once for a transaction of the caller's.
//! - [`SqlStore`] is the store: a [`Pool`] has the connections, and a [`Dialect`] the calls on one of them.
//! - [`InTransaction`] draws in a transaction of the caller's, of any [`Library`].
//! - A module for each dialect has the table with its statements, how its rows are read, what an error means,
//!   and the calls of [`Store`](idmill::store::Store) over any executor.

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

pub use executor::{Answer, Executor, Patience, Row, Statement, Value};
pub use fault::{EngineError, Fault, chain};
pub use idmill_kit::Asked;
pub use store::{Dialect, Pool, SqlStore, Witnesses, each_of};
pub use transaction::{Awaited, Blocking, Draws, FailsOver, InTransaction, Library, at_once};
