//! Models of the concurrency of idmill, explored by loom. See the README beside this.
//!
//! Empty without `--cfg idmill_loom`. With it, the library's own files are compiled here once more, over
//! the stand-ins of `sync`; at the root of this crate, so that their `crate::` paths lead to
//! where they do in the library.

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
            reason = "the library's own lint run judges these: the models use a part of it, and offer nothing"
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
    "../../src/recent.rs" recent,
}

/// For the macro `named`.
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
mod sequence;
#[cfg(idmill_loom)]
mod store;
#[cfg(idmill_loom)]
#[allow(dead_code, unused_imports, reason = "the models use a part of the library")]
mod sync;
#[cfg(idmill_loom)]
mod world;

#[cfg(idmill_loom)]
pub use harness::main;

/// Says that no model is here to be run.
#[cfg(not(idmill_loom))]
pub fn main() -> std::process::ExitCode {
    println!("skipped: built without `--cfg idmill_loom`, this holds no models; ci/steps/loom runs them");
    // A name was asked for, and cannot be run.
    let asked = std::env::args().skip(1).any(|argument| !argument.starts_with('-'));
    if asked { std::process::ExitCode::FAILURE } else { std::process::ExitCode::SUCCESS }
}
