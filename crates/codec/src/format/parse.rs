//! Interprets the codecs of a format and their arguments.

use std::str::FromStr;

use super::grammar::{self, Argument, Call, wrong};
use super::{Format, Mapping};
use crate::base::Base;
use crate::domain::Domain;
use crate::fault::invalid;
use crate::key::{Key, KeySource};
use crate::permutation::Permutation;
use crate::reversal::BitReversal;
use idmill::{Error, Operation, Result};

/// Every codec and its required position. Only codecs of position 0 may be repeated.
const CODECS: [(&str, u8); 9] = [
    ("permute", 0),
    ("reverse", 0),
    ("decimal", 1),
    ("base62", 1),
    ("crockford", 1),
    ("pad", 2),
    ("group", 3),
    ("prefix", 4),
    ("suffix", 4),
];
const ORDER: &str =
    "the order is: permute and reverse; a base (decimal, base62, crockford); pad; group; prefix and suffix";

impl Format {
    /// Parses a format. Loads keys from environment variables and files.
    ///
    /// # Errors
    /// Those of [`parse_with`](Self::parse_with) and of [`KeySource::load`].
    pub fn load(text: &str) -> Result<Self> {
        Self::parse_with(text, KeySource::load)
    }

    /// Parses a format; `keys` loads keys from their locations. Does no other I/O.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for an invalid format, with the position and a
    /// suggestion. The error never contains a key. Also the errors of `keys`.
    pub fn parse_with(text: &str, keys: impl FnMut(&KeySource) -> Result<Key>) -> Result<Self> {
        format(text, keys).map_err(|error| error.during(Operation::Configure))
    }
}

/// Parses a format without external keys. For external keys, use [`Format::load`].
impl FromStr for Format {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse_with(text, |source| {
            Err(invalid(format!("the key `{source}` must be loaded; use `Format::load`")))
        })
    }
}

fn format(text: &str, keys: impl FnMut(&KeySource) -> Result<Key>) -> Result<Format> {
    let calls = grammar::calls(text)?;
    check_order(text, &calls)?;
    let mut reader = Reader { text, keys };
    let base = calls.iter().find_map(|call| reader.base(call).transpose()).transpose()?;
    let first = Format::new(base.unwrap_or_default());
    calls.iter().try_fold(first, |format, call| reader.add(format, call))
}

fn check_order(text: &str, calls: &[Call<'_>]) -> Result<()> {
    // With misplaced quotes, the text after a key may be part of the key, so do not print it.
    let mut key_seen = false;
    for (index, call) in calls.iter().enumerate() {
        let place = place(call.name).ok_or_else(|| {
            let name = if key_seen { "by that name".to_owned() } else { format!("`{}`", call.name) };
            let known = CODECS.map(|(name, _)| name).join(", ");
            wrong(text, call.at, format_args!("there is no codec {name}; use one of: {known}"))
        })?;
        key_seen |= call.name == "permute";
        for before in &calls[..index] {
            if place > 0 && before.name == call.name {
                return Err(wrong(text, call.at, format_args!("duplicate codec `{}`; keep one", call.name)));
            }
            if self::place(before.name) > Some(place) || place == 1 && self::place(before.name) == Some(1) {
                let what = format_args!("`{}` cannot come after `{}`: {ORDER}", call.name, before.name);
                return Err(wrong(text, call.at, what));
            }
        }
    }
    Ok(())
}

fn place(name: &str) -> Option<u8> {
    CODECS.iter().find(|(known, _)| *known == name).map(|(_, place)| *place)
}

struct Reader<'a, K> {
    text: &'a str,
    keys: K,
}

impl<K: FnMut(&KeySource) -> Result<Key>> Reader<'_, K> {
    /// Returns the base that a codec names, if any.
    fn base(&self, call: &Call<'_>) -> Result<Option<Base>> {
        let base = match call.name {
            "decimal" => Base::Decimal,
            "base62" => Base::Base62,
            "crockford" => return self.crockford(call).map(Some),
            _ => return Ok(None),
        };
        self.nothing_more(call, &call.arguments, "it takes no arguments")?;
        Ok(Some(base))
    }

    fn crockford(&self, call: &Call<'_>) -> Result<Base> {
        let (check, more) = match &*call.arguments {
            [Argument { name: None, value, .. }, more @ ..] if value == "check" => (true, more),
            more => (false, more),
        };
        self.nothing_more(call, more, "write `crockford` or `crockford(check)`")?;
        Ok(Base::Crockford { check })
    }

    fn add(&mut self, format: Format, call: &Call<'_>) -> Result<Format> {
        let added = match call.name {
            "permute" => format.then(self.permutation(call)?),
            "reverse" => format.then(self.reversal(call)?),
            "pad" => format.pad(self.symbols(call)?),
            "group" => format.group(self.symbols(call)?),
            "prefix" => format.prefix(self.value(call, "write `prefix(TEXT)`")?),
            "suffix" => format.suffix(self.value(call, "write `suffix(TEXT)`")?),
            // The base was parsed earlier.
            _ => Ok(format),
        };
        added.map_err(|error| self.wrong(call.at, &error))
    }

    fn permutation(&mut self, call: &Call<'_>) -> Result<Mapping> {
        let usage = "write `permute(key=KEY,bits=N)` or `permute(key=KEY,below=N)`, where KEY is env:NAME, file:PATH or a number";
        let (mut key, mut domain) = (None, None);
        for argument in &call.arguments {
            match argument.name {
                Some("key") if key.is_none() => key = Some(self.key(argument)?),
                Some("bits") if domain.is_none() => domain = Some(self.bits(argument)?),
                Some("below") if domain.is_none() => domain = Some(self.below(argument)?),
                // Without `v`, `permute` means version 1, permanently.
                Some("v") if argument.value == "1" => {}
                _ => return Err(wrong(self.text, argument.at, usage)),
            }
        }
        let (Some((key, source)), Some(domain)) = (key, domain) else {
            return Err(wrong(self.text, call.at, usage));
        };
        Ok(Permutation::v1(key, domain).kept_in(source).into())
    }

    fn reversal(&self, call: &Call<'_>) -> Result<Mapping> {
        let usage = "write `reverse(bits=N)`";
        match &*call.arguments {
            [argument @ Argument { name: Some("bits"), .. }] => {
                Ok(BitReversal::new(self.bits(argument)?.width())?.into())
            }
            _ => Err(wrong(self.text, call.at, usage)),
        }
    }

    fn key(&mut self, argument: &Argument<'_>) -> Result<(Key, Option<KeySource>)> {
        let source = KeySource::of(&argument.value);
        let key = source.as_ref().map_or_else(|| Key::parse(&argument.value), |source| (self.keys)(source));
        // Only an error in the text itself has a position.
        match key {
            Err(error) if source.is_none() => Err(self.wrong(argument.at, &error)),
            key => Ok((key?, source)),
        }
    }

    fn bits(&self, argument: &Argument<'_>) -> Result<Domain> {
        let domain = number(&argument.value).and_then(|bits| Domain::bits(bits).ok());
        domain.ok_or_else(|| wrong(self.text, argument.at, "`bits` must be a whole number from 1 to 64"))
    }

    fn below(&self, argument: &Argument<'_>) -> Result<Domain> {
        let usage = "`below` must be a whole number from 1 to 18446744073709551615; for all ids, use \
                     `bits=64`";
        let domain = number(&argument.value).and_then(|bound| Domain::below(bound).ok());
        domain.ok_or_else(|| wrong(self.text, argument.at, usage))
    }

    fn symbols(&self, call: &Call<'_>) -> Result<u8> {
        let usage = format!("write `{}(N)`, with N from 1 to 32", call.name);
        number(self.value(call, &usage)?).ok_or_else(|| wrong(self.text, call.at, usage))
    }

    /// Returns the only argument of a codec, which must be unnamed.
    fn value<'c>(&self, call: &'c Call<'_>, usage: &str) -> Result<&'c str> {
        match &*call.arguments {
            [Argument { name: None, value, .. }] => Ok(value),
            [Argument { name: Some(_), at, .. }] => {
                Err(wrong(self.text, *at, format_args!("{usage}; quote text that contains `=`")))
            }
            _ => Err(wrong(self.text, call.at, usage)),
        }
    }

    fn nothing_more(&self, call: &Call<'_>, rest: &[Argument<'_>], usage: &str) -> Result<()> {
        rest.first()
            .map_or(Ok(()), |more| Err(wrong(self.text, more.at, format_args!("`{}`: {usage}", call.name))))
    }

    /// Adds the position to an error.
    fn wrong(&self, at: usize, error: &Error) -> Error {
        wrong(self.text, at, error.message())
    }
}

/// Accepts only digits: `parse` would also accept a sign.
fn number<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}
