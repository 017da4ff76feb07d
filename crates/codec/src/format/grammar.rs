//! Parses and prints formats: codecs with arguments, separated by bars.
//!
//! ```text
//! format = codec { "|" codec }
//! codec  = NAME [ "(" argument { "," argument } ")" ]
//! argument = [ NAME "=" ] value
//! value  = any characters but | ( ) , " and without blanks at the ends
//!        | '"' any characters, with \" for " and \\ for \ '"'
//! ```
//!
//! Errors contain neither a key nor the name of an unknown codec after a key, so that a mistake in a format
//! does not print the key.

use std::fmt;

use super::{Format, Mapping};
use crate::base::Base;
use crate::fault;
use idmill::{Error, Result};

/// The characters that end an unquoted value.
const SPECIAL: [char; 5] = ['|', '(', ')', ',', '"'];

/// A codec call, with its byte position in the text.
#[derive(Debug)]
pub(super) struct Call<'a> {
    pub(super) name: &'a str,
    pub(super) at: usize,
    pub(super) arguments: Vec<Argument<'a>>,
}

#[derive(Debug)]
pub(super) struct Argument<'a> {
    /// The name before `=`.
    pub(super) name: Option<&'a str>,
    pub(super) value: String,
    pub(super) at: usize,
}

/// Creates an error at the byte `at` of a format. The message omits the format, which may contain a key.
pub(super) fn wrong(text: &str, at: usize, what: impl fmt::Display) -> Error {
    Error::invalid(format!("format, character {}: {what}", fault::place(text, at)))
}

/// Returns the codec calls of a format.
pub(super) fn calls(text: &str) -> Result<Vec<Call<'_>>> {
    let mut cursor = Cursor { text, at: 0 };
    let mut calls = Vec::new();
    loop {
        calls.push(cursor.call()?);
        if cursor.at_end() {
            return Ok(calls);
        }
        if !cursor.passes('|') {
            return Err(wrong(text, cursor.at, "expected `|` and another codec, or the end"));
        }
    }
}

struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn skip_blanks(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    fn at_end(&mut self) -> bool {
        self.skip_blanks();
        self.rest().is_empty()
    }

    /// Skips `expected` if it is next.
    fn passes(&mut self, expected: char) -> bool {
        self.skip_blanks();
        let comes = self.rest().starts_with(expected);
        self.at += if comes { expected.len_utf8() } else { 0 };
        comes
    }

    fn name(&mut self) -> &'a str {
        self.skip_blanks();
        let rest = self.rest();
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn call(&mut self) -> Result<Call<'a>> {
        self.skip_blanks();
        let at = self.at;
        let name = self.name();
        if name.is_empty() {
            return Err(wrong(self.text, at, "expected a codec, such as `crockford` or `pad(8)`"));
        }
        let arguments = if self.passes('(') && !self.passes(')') { self.arguments()? } else { Vec::new() };
        Ok(Call { name, at, arguments })
    }

    fn arguments(&mut self) -> Result<Vec<Argument<'a>>> {
        let mut arguments = Vec::new();
        loop {
            arguments.push(self.argument()?);
            if self.passes(')') {
                return Ok(arguments);
            }
            if !self.passes(',') {
                let what = "expected `,` or `)`; a value with special characters goes between double quotes";
                return Err(wrong(self.text, self.at, what));
            }
        }
    }

    fn argument(&mut self) -> Result<Argument<'a>> {
        self.skip_blanks();
        let at = self.at;
        let name = self.name();
        let name = if !name.is_empty() && self.passes('=') {
            Some(name)
        } else {
            self.at = at;
            None
        };
        self.skip_blanks();
        let value = if self.passes('"') { self.quoted()? } else { self.bare().to_owned() };
        Ok(Argument { name, value, at })
    }

    fn bare(&mut self) -> &'a str {
        let rest = self.rest();
        let end = rest.find(SPECIAL).unwrap_or(rest.len());
        self.at += end;
        rest[..end].trim()
    }

    /// Parses up to the closing quote.
    fn quoted(&mut self) -> Result<String> {
        let (began, mut value) = (self.at - 1, String::new());
        let mut rest = self.rest().char_indices();
        while let Some((offset, c)) = rest.next() {
            match c {
                '"' => {
                    self.at += offset + 1;
                    return Ok(value);
                }
                '\\' => {
                    let Some((_, escaped @ ('"' | '\\'))) = rest.next() else {
                        let what = "in quotes, `\\` must be followed by `\"` or `\\`";
                        return Err(wrong(self.text, self.at + offset, what));
                    };
                    value.push(escaped);
                }
                c => value.push(c),
            }
        }
        Err(wrong(self.text, began, "this quote is not closed"))
    }
}

impl Format {
    /// Prints the format in its parseable form; `key` formats each key.
    fn print(&self, f: &mut fmt::Formatter<'_>, key: impl Fn(&super::Permutation) -> String) -> fmt::Result {
        for mapping in &self.mappings {
            match mapping {
                Mapping::Permutation(permutation) => {
                    write!(f, "permute(key={},{})|", Value(&key(permutation)), permutation.domain())?;
                }
                Mapping::Reversal(reversal) => write!(f, "reverse({})|", reversal.domain())?,
            }
        }
        f.write_str(self.layout.base.name())?;
        if self.layout.base == (Base::Crockford { check: true }) {
            f.write_str("(check)")?;
        }
        for (name, symbols) in [("pad", self.layout.pad), ("group", self.layout.group)] {
            if symbols > 0 {
                write!(f, "|{name}({symbols})")?;
            }
        }
        for (name, text) in [("prefix", &self.prefix), ("suffix", &self.suffix)] {
            if !text.is_empty() {
                write!(f, "|{name}({})", Value(text))?;
            }
        }
        Ok(())
    }
}

/// Prints the parseable form, **including keys** that are written into the format.
impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.print(f, super::Permutation::written_key)
    }
}

/// Prints the format without keys.
impl fmt::Debug for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Format(")?;
        self.print(f, super::Permutation::shown_key)?;
        f.write_str(")")
    }
}

/// A value, quoted if necessary.
struct Value<'a>(&'a str);

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0;
        if !text.contains(SPECIAL) && !text.contains('=') && text.trim() == text {
            return f.write_str(text);
        }
        write!(f, "\"{}\"", text.replace('\\', r"\\").replace('"', "\\\""))
    }
}
