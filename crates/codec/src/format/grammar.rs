//! Formats as texts: codecs with arguments, separated by bars; and how they are printed.
//!
//! ```text
//! format = codec { "|" codec }
//! codec  = NAME [ "(" argument { "," argument } ")" ]
//! argument = [ NAME "=" ] value
//! value  = any characters but | ( ) , " and without blanks at the ends
//!        | '"' any characters, \" and \\ for these two '"'
//! ```
//!
//! Errors repeat no value and no name after a key: a mistake in a format with a key must not print the key.

use std::fmt;

use super::{Format, Mapping};
use crate::base::Base;
use crate::fault;
use idmill::{Error, Result};

/// What ends a value that is not between quotes.
const SPECIAL: [char; 5] = ['|', '(', ')', ',', '"'];

/// A codec by its name, at a byte of the text.
#[derive(Debug)]
pub(super) struct Call<'a> {
    pub(super) name: &'a str,
    pub(super) at: usize,
    pub(super) arguments: Vec<Argument<'a>>,
}

#[derive(Debug)]
pub(super) struct Argument<'a> {
    /// What stands before `=`.
    pub(super) name: Option<&'a str>,
    pub(super) value: String,
    pub(super) at: usize,
}

/// An error about a format at the byte `at`. The format itself is not repeated: it may hold a key.
pub(super) fn wrong(text: &str, at: usize, what: impl fmt::Display) -> Error {
    Error::invalid(format!("format, character {}: {what}", fault::place(text, at)))
}

/// The codecs of a format as they are written.
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

    /// Passes `expected` if that is what comes.
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

    /// Up to the quote that ends what another began.
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
                        let what = "between quotes, `\\` comes before `\"` or `\\`";
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
    /// As it is read, with each key as `key` has it.
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

/// The format as it is read, **with the keys** that are written into it.
impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.print(f, super::Permutation::written_key)
    }
}

/// The format without the keys.
impl fmt::Debug for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Format(")?;
        self.print(f, super::Permutation::shown_key)?;
        f.write_str(")")
    }
}

/// A value, between quotes where it has to be.
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
