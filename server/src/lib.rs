#![doc = include_str!("../README.md")]

mod access;
mod core;
mod http;
mod observed;
mod resp;
mod served;
mod server;
mod tls;

pub use access::{Access, Pattern, Right, Rights, Secret, Token, TokenHash};
pub use server::{Server, ServerBuilder};
pub use tls::Tls;
