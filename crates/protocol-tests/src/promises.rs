//! The promises, by name.

pub(crate) const UNIQUE: &str = "no id twice";
pub(crate) const GROWING: &str = "an id requested after another was returned is larger";
pub(crate) const BOUNDED: &str = "no id past max";
pub(crate) const ACCOUNTED: &str =
    "every id has one state: to be claimed, claimed, in a window, handed out, or a known gap";
pub(crate) const EXHAUSTED: &str = "Exhausted is returned only if no id is left";
pub(crate) const TRUSTED: &str = "rows that never went back in time are not refused";
pub(crate) const DRAINED: &str = "a single process hands out all remaining ids, then returns Exhausted";
pub(crate) const SERVED: &str = "a single process gets an id, or the error that none is left";
