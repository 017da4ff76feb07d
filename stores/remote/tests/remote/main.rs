//! Tests the guarantees of the store behind real servers, and its behavior under faults.
#![cfg(unix)]

mod common;
mod encrypted;
mod failover;
mod lost;
mod nonsense;
mod rights;
mod store;
mod witness;
