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
pub(crate) const ONE_PLACE: &str = "a range is on the shelf or with one process, never both";
pub(crate) const ORDERED: &str = "the ids of a process grow";
pub(crate) const CURRENT: &str = "ids are granted under an identity that the sequence had since the request";
pub(crate) const RAISED: &str = "no request after a raise gets an id below it";
pub(crate) const KEPT: &str = "without faults, each reserved id is handed out, in memory, or on the shelf";
