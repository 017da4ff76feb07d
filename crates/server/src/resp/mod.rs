//! The Redis protocol: what its clients send when they count.

mod commands;
mod connection;
mod reply;
mod request;
mod session;
mod store;

pub(crate) use connection::serve;
