//! The promises, by name.

pub(crate) const UNIQUE: &str = "no id twice";
pub(crate) const GROWING: &str = "an id asked for after another was returned is larger";
