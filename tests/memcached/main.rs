//! The window on memcached, over the real server.
#![cfg(all(feature = "memcached", feature = "conformance", feature = "sqlite"))]

#[path = "../engines/mod.rs"]
mod engines;
#[path = "../hooked/mod.rs"]
mod hooked;
#[path = "../switch/mod.rs"]
mod switch;

mod bench;
mod cost;
#[cfg(feature = "datastore")]
mod datastore;
mod faults;
mod gate;
mod growth;
mod moves;
mod processes;
mod sequences;
mod skips;
mod specimen;
