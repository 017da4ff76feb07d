//! Redis, as a store and as a window, over real servers.

#[path = "../engines/certificate.rs"]
mod certificate;
mod cost;
mod encrypted;
#[path = "../engines/mod.rs"]
mod engines;
mod errors;
mod moves;
mod scripts;
mod server;
mod store;
#[path = "../switch/mod.rs"]
mod switch;
mod window;
