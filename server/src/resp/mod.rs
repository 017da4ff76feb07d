//! The Redis protocol: what its clients send when they count.

mod commands;
mod connection;
mod reply;
mod request;
mod session;

pub(crate) use connection::serve;
