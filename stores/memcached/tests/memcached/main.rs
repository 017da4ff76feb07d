//! Tests the window on a real memcached server.

mod bench;
mod blocking;
mod cost;
mod datastore;
mod faults;
mod gate;
mod growth;
mod moves;
mod processes;
mod sequences;
mod skips;
mod specimen;
