//! Server processes over SQLite under faults. Every client records its ids, and all records are compared.

#![cfg(unix)]

#[path = "../common/mod.rs"]
mod common;
mod crowds;
mod ends;
mod garbage;
mod held;
mod pauses;

use std::process::Command;

use common::Place;
use idmill_testing::fleet::Server;

/// Creates a directory whose store has the sequence `orders`.
fn with_orders() -> Place {
    let place = Place::new();
    let made = place.run(&["create", "orders"]);
    assert_eq!(made.code, 0, "{made:?}");
    place
}

fn command(place: &Place, args: &[&str]) -> Command {
    let mut command = place.serve(args);
    // Set a long default shutdown timeout; `--shutdown-timeout` in `args` overrides it.
    command.env("IDMILL_SERVE_SHUTDOWN_TIMEOUT", "60s");
    command
}

fn started(place: &Place, args: &[&str]) -> Server {
    Server::start(&mut command(place, args))
}

/// Returns the stored next id of `orders`.
fn next(place: &Place) -> u64 {
    place.json(&["show", "orders", "--json"])["next"].as_u64().expect("not exhausted")
}
