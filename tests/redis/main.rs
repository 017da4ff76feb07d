//! Redis, as a store and as a window, over real servers.

mod cost;
#[path = "../engines/mod.rs"]
mod engines;
mod errors;
mod scripts;
mod server;
mod store;
mod window;
