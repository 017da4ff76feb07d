//! The decisions of the refill.

library! {
    "../../src/refill/engine/mod.rs" engine,
}
