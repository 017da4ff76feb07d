//! The server, tested through its protocols.

mod access;
mod audit;
mod certificates;
mod changes;
mod clock;
mod common;
mod endings;
mod hostile;
mod http;
mod limits;
mod mounted;
mod openapi;
mod page;
mod pipelines;
mod readers;
mod ready;
mod redis;
mod refusals;
mod security;
mod timeout;
mod tls;
mod tokens;
mod wire;
