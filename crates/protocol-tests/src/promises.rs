//! The promises, by name.

pub(crate) const UNIQUE: &str = "no id twice";
pub(crate) const GROWING: &str = "an id asked for after another was returned is larger";
pub(crate) const BOUNDED: &str = "no id past max";
pub(crate) const ACCOUNTED: &str =
    "every id is in one place: to be claimed, claimed, in a window, handed out, or a known gap";
pub(crate) const EXHAUSTED: &str = "Exhausted is said only when it is true";
pub(crate) const TRUSTED: &str = "rows that never went back in time are not refused";
pub(crate) const DRAINED: &str = "a lone process hands out all that is left, then says Exhausted";
pub(crate) const SERVED: &str = "a lone process gets an id, or hears that there is none";
