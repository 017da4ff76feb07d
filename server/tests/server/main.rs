//! The server, as its clients see it.

mod access;
mod common;
mod endings;
mod hostile;
mod http;
mod openapi;
mod patience;
mod redis;
mod tls;
mod wire;
