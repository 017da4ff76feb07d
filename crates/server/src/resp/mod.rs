//! The Redis protocol: the commands that clients use for counters.

mod commands;
mod connection;
mod reply;
mod request;
mod session;
mod store;
#[cfg(test)]
mod tests;

pub(crate) use connection::serve;
