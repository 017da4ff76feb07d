//! The suite that every store has to pass, for the stores of this crate and for those of others.

mod daemon;

pub use daemon::{Daemon, free_port};
