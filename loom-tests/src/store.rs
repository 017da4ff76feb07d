//! The values that are passed to and from a store. The models reserve from a counter.

library! {
    "../../src/store/bounds.rs" bounds,
    "../../src/store/errors.rs" errors,
    "../../src/store/grant.rs" grant,
    "../../src/store/identity.rs" identity,
    "../../src/store/sequence.rs" sequence,
}

pub(crate) use bounds::Bounds;
pub(crate) use errors::{exhausted, not_found};
pub(crate) use grant::{GiveBack, Grant, Reserve};
pub(crate) use identity::Identity;
pub(crate) use sequence::Change;
