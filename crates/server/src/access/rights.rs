//! What a token allows.

use std::fmt;
use std::str::FromStr;

use idmill::{Error, Result};

/// Something that a token may allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// To draw ids, and to see how far a sequence is.
    Draw,
    /// To reserve ranges, as a process does that has this server for its store.
    Reserve,
    /// To create, set, revoke and remove sequences.
    Administer,
    /// To read the metrics and the page for operators.
    Observe,
}

impl Right {
    const ALL: [Self; 4] = [Self::Draw, Self::Reserve, Self::Administer, Self::Observe];

    /// The right's name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Draw => "draw",
            Self::Reserve => "reserve",
            Self::Administer => "administer",
            Self::Observe => "observe",
        }
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Right {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|right| right.name() == name).ok_or_else(|| {
            Error::invalid(format!(
                "the right {name:?} is unknown; there are draw, reserve, administer, observe"
            ))
        })
    }
}

/// What a token allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights(u8);

impl Rights {
    /// Every right.
    pub const ALL: Self = Self(0b1111);

    /// Whether this one is among them.
    pub fn has(self, right: Right) -> bool {
        self.0 & (1 << right as u8) != 0
    }
}

impl FromIterator<Right> for Rights {
    fn from_iter<I: IntoIterator<Item = Right>>(rights: I) -> Self {
        Self(rights.into_iter().fold(0, |all, right| all | 1 << right as u8))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_right_is_one_alone() {
        for right in Right::ALL {
            let rights: Rights = [right].into_iter().collect();
            assert_eq!(Right::ALL.map(|other| rights.has(other)), Right::ALL.map(|other| other == right));
            assert_eq!(right.name().parse::<Right>().unwrap(), right);
            assert!(Rights::ALL.has(right));
        }
        assert!("admin".parse::<Right>().unwrap_err().to_string().contains("administer"));
    }
}
