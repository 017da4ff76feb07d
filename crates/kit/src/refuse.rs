//! The error for an unusable URL or option.

use std::borrow::Cow;

use idmill::{Error, Operation};

/// Returns the error for an unusable URL, or an unusable option that a URL can contain:
/// [`InvalidInput`](idmill::ErrorKind::InvalidInput) while connecting. The message should contain the option,
/// the given value and the valid values.
pub fn refuse(message: impl Into<Cow<'static, str>>) -> Error {
    Error::invalid(message).during(Operation::Connect)
}

#[cfg(test)]
mod tests {
    use super::*;
    use idmill::ErrorKind;

    #[test]
    fn unusable_url_is_invalid_input_while_connecting() {
        let error = refuse("the URL is empty");
        assert_eq!((error.kind(), error.operation()), (ErrorKind::InvalidInput, Some(Operation::Connect)));
        assert_eq!(error.to_string(), "connect: the URL is empty");
    }
}
