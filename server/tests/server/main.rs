//! The server, as its clients see it.

mod access;
mod common;
mod endings;
mod hostile;
mod http;
mod openapi;
mod page;
mod redis;
mod tls;
mod wire;
