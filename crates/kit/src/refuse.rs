//! The error for an unusable URL or option.

use std::borrow::Cow;

use idmill::{Error, Operation};

/// Returns the error for an unusable URL, or an unusable option that a URL can contain:
/// [`InvalidInput`](idmill::ErrorKind::InvalidInput) while connecting. The message should contain the option,
/// the given value and the valid values.
pub fn refuse(message: impl Into<Cow<'static, str>>) -> Error {
    Error::invalid(message).during(Operation::Connect)
}
