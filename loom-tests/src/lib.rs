//! Models of idmill's concurrency, explored by loom. See this crate's README.
//!
//! The crate is empty without `--cfg idmill_loom`. That flag compiles the library's own files here over the
//! stand-ins in `sync`. The files are at the root of this crate, so that their `crate::` paths resolve as in
//! the library.

#[cfg(idmill_loom)]
macro_rules! library {
    ($($path:literal $name:ident),* $(,)?) => {$(
        #[path = $path]
        #[allow(
            clippy::all,
            clippy::pedantic,
            clippy::disallowed_types,
            dead_code,
            unexpected_cfgs,
            unreachable_pub,
            unused_imports,
            unused_macros,
            missing_docs,
            missing_debug_implementations,
            reason = "the library is linted separately; the models use only part of it, and export nothing"
        )]
        pub(crate) mod $name;
    )*};
}

#[cfg(idmill_loom)]
library! {
    "../../src/error.rs" error,
    "../../src/id.rs" id,
    "../../src/name.rs" name,
    "../../src/range.rs" range,
    "../../src/bounded_map.rs" bounded_map,
}

/// Needed by the macro `string_enum`.
#[cfg(idmill_loom)]
pub(crate) use error::Error;

#[cfg(idmill_loom)]
mod explore;
#[cfg(idmill_loom)]
mod harness;
#[cfg(idmill_loom)]
mod models;
#[cfg(idmill_loom)]
mod refill;
#[cfg(idmill_loom)]
mod state;
#[cfg(idmill_loom)]
mod store;
#[cfg(idmill_loom)]
#[allow(dead_code, unused_imports, reason = "the models use only part of this module")]
mod sync;
#[cfg(idmill_loom)]
mod world;

#[cfg(idmill_loom)]
pub use harness::main;

/// Reports that this build contains no models.
#[cfg(not(idmill_loom))]
pub fn main() -> std::process::ExitCode {
    println!("skipped: without `--cfg idmill_loom` there are no models; run ci/steps/loom");
    // Fail if a model was named, because it cannot run.
    let asked = std::env::args().skip(1).any(|argument| !argument.starts_with('-'));
    if asked { std::process::ExitCode::FAILURE } else { std::process::ExitCode::SUCCESS }
}
