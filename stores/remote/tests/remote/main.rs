//! The store behind servers, over real ones: what it promises, and what it makes of trouble on the way.
#![cfg(unix)]

mod common;
mod encrypted;
mod failover;
mod lost;
mod nonsense;
mod rights;
mod store;
