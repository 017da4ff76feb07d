//! The name of a sequence.

use std::fmt;
use std::ops::Deref;
use std::str::FromStr;
use std::sync::Arc;

use crate::error::{Error, Operation, Result};

/// A sequence's name: 1 to 200 bytes of UTF-8 without control characters and without leading or trailing
/// white space.
///
/// A sequence that was removed and created again keeps its name, but not its
/// [`Identity`](crate::store::Identity).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SequenceName(Arc<str>);

impl SequenceName {
    /// The maximum length of a name, in bytes.
    pub const MAX_LEN: usize = 200;

    /// Checks a name.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput), with the rule that the name breaks.
    pub fn new(name: &str) -> Result<Self> {
        let fault = if name.is_empty() {
            "is empty".to_owned()
        } else if name.len() > Self::MAX_LEN {
            format!("has {} bytes; the maximum is {}", name.len(), Self::MAX_LEN)
        } else if let Some(control) = name.chars().find(|c| c.is_control()) {
            format!("contains the control character {control:?}")
        } else if name.trim() != name {
            "begins or ends with white space".to_owned()
        } else {
            return Ok(Self(name.into()));
        };
        Err(Error::invalid(format!("the sequence name {name:?} {fault}")).during(Operation::Configure))
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Deref for SequenceName {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for SequenceName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// Checks a name, as [`SequenceName::new`] does.
impl FromStr for SequenceName {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::new(name)
    }
}

/// Checks a name, as [`SequenceName::new`] does.
impl TryFrom<&str> for SequenceName {
    type Error = Error;

    fn try_from(name: &str) -> Result<Self> {
        Self::new(name)
    }
}

/// Checks a name, as [`SequenceName::new`] does.
impl TryFrom<String> for SequenceName {
    type Error = Error;

    fn try_from(name: String) -> Result<Self> {
        Self::new(&name)
    }
}

impl PartialEq<str> for SequenceName {
    fn eq(&self, other: &str) -> bool {
        &*self.0 == other
    }
}

impl PartialEq<&str> for SequenceName {
    fn eq(&self, other: &&str) -> bool {
        &*self.0 == *other
    }
}

impl From<SequenceName> for String {
    fn from(name: SequenceName) -> Self {
        name.as_str().to_owned()
    }
}

impl From<SequenceName> for Arc<str> {
    fn from(name: SequenceName) -> Self {
        name.0
    }
}

impl std::borrow::Borrow<str> for SequenceName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SequenceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for SequenceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_and_the_fault_is_named() {
        for good in ["orders", "a b", "строка", "x/y:z#1", "'; DROP TABLE--"] {
            assert_eq!(SequenceName::new(good).unwrap().as_str(), good);
        }
        assert!(SequenceName::new(&"é".repeat(100)).is_ok());
        for (bad, fault) in [
            ("", "empty"),
            ("a\nb", "control"),
            (" a", "white space"),
            ("a ", "white space"),
            ("\u{85}", "control"),
        ] {
            assert!(SequenceName::new(bad).unwrap_err().to_string().contains(fault), "{bad:?}");
        }
        assert!("a\n".parse::<SequenceName>().is_err());
        assert!(SequenceName::try_from("a ").is_err() && SequenceName::try_from(String::new()).is_err());
        let name: SequenceName = "orders".parse().unwrap();
        assert!(name == "orders" && *"orders" == *name && name.as_ref() == "orders");
        assert_eq!((String::from(name.clone()), format!("{name:>8}")), ("orders".into(), "  orders".into()));
        assert!(SequenceName::new(&"é".repeat(101)).unwrap_err().to_string().contains("202 bytes"));
    }
}
