//! The error for a URL, or for options, that cannot be used.

use std::borrow::Cow;

use idmill::{Error, Operation};

/// The error for a URL, or for options that could have come from one, that cannot be used:
/// [`InvalidInput`](idmill::ErrorKind::InvalidInput) while connecting. The message should name the option,
/// what was given and what can be given instead.
pub fn refuse(message: impl Into<Cow<'static, str>>) -> Error {
    Error::invalid(message).during(Operation::Connect)
}
