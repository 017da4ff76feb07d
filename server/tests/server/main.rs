//! The server, as its clients see it.

mod access;
mod common;
mod endings;
mod hostile;
mod http;
mod openapi;
mod ready;
mod redis;
mod tls;
mod wire;
