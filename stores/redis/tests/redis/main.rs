//! Redis, as a store and as a window, on real servers.

mod cost;
mod encrypted;
mod errors;
mod moves;
mod restores;
mod scripts;
mod server;
mod store;
mod window;
