//! The window on memcached, over the real server.
#![cfg(all(feature = "memcached", feature = "conformance", feature = "sqlite"))]

#[path = "../engines/mod.rs"]
mod engines;

mod bench;
mod cost;
mod faults;
mod gate;
mod growth;
mod processes;
mod sequences;
mod specimen;
