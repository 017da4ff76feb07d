//! Errors about a text, with positions.

use std::borrow::Cow;
use std::fmt::{Display, Write as _};

use idmill::{Error, Operation};

/// The maximum number of characters of a text in an error.
const SHOWN: usize = 64;

/// Creates a configuration error about a codec or a format.
pub(super) fn invalid(message: impl Into<Cow<'static, str>>) -> Error {
    Error::invalid(message).during(Operation::Configure)
}

/// Creates an error at the byte `at` of `text`. The message has the character position, counted from 1.
pub(super) fn at(text: &str, at: usize, what: impl Display) -> Error {
    Error::invalid(format!("`{}`, character {}: {what}", shown(text), place(text, at)))
}

/// Creates an error about `text` as a whole.
pub(super) fn whole(text: &str, what: impl Display) -> Error {
    Error::invalid(format!("`{}`: {what}", shown(text)))
}

/// Returns the character position of the byte `at`, counted from 1.
pub(super) fn place(text: &str, at: usize) -> usize {
    text.char_indices().take_while(|(offset, _)| *offset < at).count() + 1
}

/// Returns a text for an error message: on one line, and shortened.
pub(super) fn shown(text: &str) -> String {
    let mut shown = String::new();
    for (count, c) in text.chars().enumerate() {
        if count == SHOWN {
            shown.push('…');
            break;
        }
        if c.is_control() {
            let _ = write!(shown, "{}", c.escape_debug());
        } else {
            shown.push(c);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_counts_characters_and_text_stays_on_one_line() {
        assert_eq!(at("äb!", 3, "no").to_string(), "`äb!`, character 3: no");
        assert_eq!(whole("a\nb", "no").to_string(), "`a\\nb`: no");
        assert_eq!(shown(&"x".repeat(1000)).chars().count(), 65);
    }
}
