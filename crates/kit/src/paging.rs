//! Converts list pages for drivers: the limit as a number, the end of a prefix range, and cursors made of
//! bytes.

use std::fmt::Write as _;

use idmill::store::{Cursor, Page};
use idmill::{Error, Operation, Result};

/// Returns the limit of a page as a signed number, which many drivers require; at least 1.
pub fn limit(page: &Page) -> i32 {
    i32::try_from(page.limit.max(1)).unwrap_or(i32::MAX)
}

/// Returns whether this number of rows fills the page, so another page may follow.
pub fn is_full(page: &Page, rows: usize) -> bool {
    rows >= page.limit.max(1)
}

/// Returns the first text after all texts with this prefix, in byte order. Returns `None` if there is none.
pub fn end(prefix: &str) -> Option<String> {
    let mut end = prefix.to_owned();
    while let Some(last) = end.pop() {
        // Skip the surrogates, which are not characters.
        let next = if last == '\u{d7ff}' { Some('\u{e000}') } else { char::from_u32(u32::from(last) + 1) };
        if let Some(next) = next {
            end.push(next);
            return Some(end);
        }
    }
    None
}

/// Creates a cursor from bytes, which need not be UTF-8.
pub fn cursor(bytes: &[u8]) -> Cursor {
    let mut hex = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(hex, "{byte:02x}");
    }
    Cursor::new(hex)
}

/// Returns the bytes of a [`cursor`].
///
/// # Errors
/// The error of [`foreign`] for a cursor that is not hexadecimal.
pub fn bytes(cursor: &Cursor) -> Result<Vec<u8>> {
    let digits = cursor.as_str().as_bytes().chunks(2);
    let bytes = digits.map(|pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok());
    bytes.collect::<Option<_>>().ok_or_else(|| foreign(cursor))
}

/// Returns the error for a cursor of another store.
pub fn foreign(cursor: &Cursor) -> Error {
    Error::invalid(format!("the cursor {cursor:?} is not from a page of this store")).during(Operation::List)
}

#[cfg(test)]
mod tests {
    use super::*;
    use idmill::ErrorKind;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn prefix_end_is_above_every_text_with_the_prefix(prefix in "\\PC{0,3}", rest in "\\PC{0,3}", other in "\\PC{0,5}") {
            let end = super::end(&prefix);
            let within = |text: &str| *text >= *prefix && end.as_deref().is_none_or(|end| text < end);
            let longer = [prefix.as_str(), &rest].concat();
            prop_assert!(within(&longer));
            prop_assert_eq!(within(&other), other.starts_with(&prefix));
        }

        #[test]
        fn bytes_survive_a_cursor(bytes: Vec<u8>) {
            prop_assert_eq!(super::bytes(&cursor(&bytes)).unwrap(), bytes);
        }
    }

    #[test]
    fn the_edges_of_unicode_have_ends() {
        for (prefix, end) in [
            ("", None),
            ("a", Some("b")),
            ("a\u{d7ff}", Some("a\u{e000}")),
            ("a\u{10ffff}", Some("b")),
            ("\u{10ffff}", None),
        ] {
            assert_eq!(super::end(prefix).as_deref(), end, "{prefix:?}");
        }
        assert_eq!(bytes(&Cursor::new("xyz")).unwrap_err().kind(), ErrorKind::InvalidInput);
    }

    #[test]
    fn page_without_a_limit_has_one_row() {
        for (set, limit, rows) in [(0, 1, 1), (1, 1, 1), (7, 7, 7), (usize::MAX, i32::MAX, usize::MAX)] {
            let page = Page::default().limit(set);
            assert_eq!(super::limit(&page), limit);
            assert!(is_full(&page, rows) && !is_full(&page, rows - 1), "{set}");
        }
        assert!(is_full(&Page::default().limit(7), 8));
    }

    #[test]
    fn cursor_of_another_store_is_named() {
        let error = bytes(&Cursor::new("xyz")).unwrap_err();
        let message = format!("list: the cursor {:?} is not from a page of this store", Cursor::new("xyz"));
        assert_eq!(error.to_string(), message);
        assert_eq!(cursor(&[0, 10, 255]), Cursor::new("000aff"));
    }
}
