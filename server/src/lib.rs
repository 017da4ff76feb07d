#![doc = include_str!("../README.md")]

mod access;
mod audit;
mod behind;
mod certificate;
mod core;
mod expiry;
mod figures;
mod http;
mod listening;
mod measures;
mod observed;
mod peer;
mod readiness;
mod resp;
mod served;
mod server;
mod tls;
mod troubles;

pub use access::{Access, Pattern, Right, Rights, Secret, Token, TokenHash};
pub use figures::Figures;
pub use server::{Server, ServerBuilder};
pub use tls::Tls;
