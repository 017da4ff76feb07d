//! Tests of the command that need no engine. Each test runs the binary in its own directory, so the tests can
//! share one process.

#[path = "../common/mod.rs"]
mod common;

mod administration;
mod bench;
mod check;
mod docs;
mod doctor;
mod export;
mod formats;
mod guard;
#[cfg(target_os = "linux")]
mod interrupted;
#[cfg(all(target_os = "linux", feature = "serve"))]
mod managed;
mod names;
mod next;
#[cfg(unix)]
mod output_file;
mod plan;
#[cfg(target_os = "linux")]
mod progress;
#[cfg(all(unix, feature = "serve"))]
mod secrets;
#[cfg(all(unix, feature = "serve"))]
mod serve;
mod settings;
#[cfg(target_os = "linux")]
mod streams;
#[cfg(all(unix, feature = "otel"))]
mod traces;
mod usage;
#[cfg(unix)]
mod witness_file;
