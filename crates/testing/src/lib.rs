//! Shared code for the tests of several packages.

#![allow(
    missing_docs,
    missing_debug_implementations,
    clippy::must_use_candidate,
    clippy::return_self_not_must_use,
    clippy::missing_errors_doc,
    clippy::missing_panics_doc,
    reason = "test code, which panics on any failure"
)]

mod awaited;
pub use awaited::{Wait, eventually, eventually_blocking, eventually_within, holds};
#[cfg(feature = "engines")]
pub mod engines;
#[cfg(feature = "engines")]
pub use engines::certificate;
pub mod faulty;
pub mod fenced;
#[cfg(feature = "engines")]
pub mod fleet;
pub mod grants;
pub mod hooked;
pub mod load;
pub mod log;
mod options_page;
pub use options_page::OptionsPage;
pub mod replaced;
pub mod restores;
pub mod seeds;
#[cfg(feature = "engines")]
pub mod service;
mod skips;
pub use skips::skip;
#[cfg(feature = "engines")]
pub mod switch;
