//! Which sequences a token is for.

use std::fmt;
use std::str::FromStr;

use idmill::{Error, Result, SequenceName};

/// The name of a sequence, or how a name begins with `*` behind it; `*` alone is every name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    text: Box<str>,
    is_prefix: bool,
}

impl Pattern {
    /// Matches every name.
    pub fn any() -> Self {
        Self { text: "".into(), is_prefix: true }
    }

    /// How names begin that it matches; `None` where it is one name.
    pub(crate) fn beginning(&self) -> Option<&str> {
        self.is_prefix.then_some(&*self.text)
    }

    /// The one name that it matches.
    pub(crate) fn name(&self) -> Option<&str> {
        (!self.is_prefix).then_some(&*self.text)
    }

    pub(crate) fn matches(&self, name: &str) -> bool {
        if self.is_prefix { name.starts_with(&*self.text) } else { name == &*self.text }
    }
}

/// Reads `orders`, `shop.*` or `*`.
impl FromStr for Pattern {
    type Err = Error;

    fn from_str(pattern: &str) -> Result<Self> {
        let prefix = pattern.strip_suffix('*');
        let text = prefix.unwrap_or(pattern);
        if text.contains('*') {
            let message = format!(
                "the pattern {pattern:?} has a `*` that is not at its end; only names and beginnings are known"
            );
            return Err(Error::invalid(message));
        }
        if prefix.is_none() {
            SequenceName::new(text)?;
        }
        Ok(Self { text: text.into(), is_prefix: prefix.is_some() })
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        if self.is_prefix { f.write_str("*") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_at_the_end_is_any_rest() {
        let pattern = |text: &str| text.parse::<Pattern>().unwrap();
        assert!(pattern("*").matches("orders") && Pattern::any().matches("orders"));
        assert!(pattern("shop.*").matches("shop.orders") && !pattern("shop.*").matches("shops"));
        assert!(pattern("orders").matches("orders") && !pattern("orders").matches("orders2"));
        assert_eq!(pattern("shop.*").to_string(), "shop.*");
        for none in ["a*b", "**", ""] {
            assert!(none.parse::<Pattern>().is_err(), "{none:?}");
        }
    }
}
