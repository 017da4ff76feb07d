//! Tokens: the secret, its hash, and the rights and limits.

use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::SystemTime;

use derive_more::{Debug, Display};
use idmill::{Error, Result, SequenceName};
use sha2::{Digest, Sha256};

/// The secret of a token: 256 random bits. The secret is printed once, and only its hash is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[debug("Secret(…)")]
pub struct Secret(String);

impl Secret {
    /// Generates a secret from the system's random numbers.
    ///
    /// # Errors
    /// [`Unavailable`](idmill::ErrorKind::Unavailable) if the system provides no random numbers.
    pub fn fresh() -> Result<Self> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(|error| {
            let message = format!("the system returned no random bytes for a token: {error}");
            Error::new(idmill::ErrorKind::Unavailable, message)
        })?;
        Ok(Self(format!("idm_{}", hex::encode(bytes))))
    }

    /// Returns the text that a client sends.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Returns the hash to store.
    pub fn hash(&self) -> TokenHash {
        TokenHash::of(&self.0)
    }
}

/// The SHA-256 of a token's secret. A slower hash would add nothing: the secret has 256 random bits.
#[derive(Clone, Copy, Debug, Display, PartialEq, Eq, Hash)]
#[debug("{self}")]
#[display("sha256:{}", hex::encode(_0))]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    pub(crate) fn of(secret: &str) -> Self {
        Self(Sha256::digest(secret).into())
    }
}

/// Parses `sha256:` and 64 hexadecimal digits.
impl FromStr for TokenHash {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut hash = [0; 32];
        let read = text.strip_prefix("sha256:").map(|digits| hex::decode_to_slice(digits, &mut hash));
        // The message omits the text, because it may be the secret itself.
        let message = "the token hash is invalid; write `sha256:` and 64 hexadecimal digits, as printed by \
                       `idmill token`";
        if read == Some(Ok(())) { Ok(Self(hash)) } else { Err(Error::invalid(message)) }
    }
}

/// A token: the hash of its secret, its rights and its limits.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Token {
    /// The name for logs and audit lines.
    pub name: String,
    /// The hash of the secret.
    pub hash: TokenHash,
    /// The rights.
    pub rights: Rights,
    /// The sequences that the rights apply to. `/metrics` shows all sequences nevertheless.
    pub sequences: Vec<Pattern>,
    /// Maximum number of ids per request; with `None`, only draws are limited, by the server's own maximum.
    pub max_ids: Option<u64>,
    /// Maximum number of requests per second, on average. Each command of a pipeline counts.
    pub requests_per_second: Option<NonZeroU32>,
    /// Maximum burst of requests; `None` for the requests of one second.
    pub burst: Option<NonZeroU32>,
    /// Maximum number of connections over both protocols. A connection counts towards the last token that
    /// it sent.
    pub max_connections: Option<u32>,
    /// Maximum number of sequences per day, on average, that draws and reserves with this token create, if
    /// the server creates sequences at all.
    pub new_sequences: Option<u32>,
    /// When the token expires, by the server's clock; `None` for never.
    pub expires: Option<SystemTime>,
}

impl Token {
    /// Creates a token without limits or expiry.
    pub fn new(name: impl Into<String>, hash: TokenHash, rights: Rights, sequences: Vec<Pattern>) -> Self {
        Self {
            name: name.into(),
            hash,
            rights,
            sequences,
            max_ids: None,
            requests_per_second: None,
            burst: None,
            max_connections: None,
            new_sequences: None,
            expires: None,
        }
    }
}

idmill::string_enum! {
    /// A right that a token can grant.
    pub enum Right, "right" {
        /// Draw ids, and read the position of a sequence.
        Draw = "draw",
        /// Reserve ranges, for processes that use this server as their store.
        Reserve = "reserve",
        /// Create, set, revoke and remove sequences.
        Administer = "administer",
        /// Read the metrics and the page for operators.
        Observe = "observe",
    }
}

/// A set of rights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights(u8);

impl Rights {
    /// All rights.
    pub const ALL: Self = Self(0b1111);

    /// Returns whether the set contains this right.
    pub fn has(self, right: Right) -> bool {
        self.0 & (1 << right as u8) != 0
    }
}

impl FromIterator<Right> for Rights {
    fn from_iter<I: IntoIterator<Item = Right>>(rights: I) -> Self {
        Self(rights.into_iter().fold(0, |all, right| all | 1 << right as u8))
    }
}

/// A sequence name, or a prefix followed by `*`. `*` matches every name.
#[derive(Clone, Debug, Display, PartialEq, Eq)]
#[display("{text}{}", if *is_prefix { "*" } else { "" })]
pub struct Pattern {
    text: Box<str>,
    is_prefix: bool,
}

impl Pattern {
    /// Returns the pattern that matches every name.
    pub fn any() -> Self {
        Self { text: "".into(), is_prefix: true }
    }

    /// Returns the prefix; `None` for a single name.
    pub(crate) fn beginning(&self) -> Option<&str> {
        self.is_prefix.then_some(&*self.text)
    }

    /// Returns the name or the prefix.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Narrows this pattern to names that begin with `prefix`; `None` if no such name matches.
    pub(crate) fn within(&self, prefix: &str) -> Option<Self> {
        if self.is_prefix && prefix.starts_with(&*self.text) {
            return Some(Self { text: prefix.into(), is_prefix: true });
        }
        self.text.starts_with(prefix).then(|| self.clone())
    }

    /// Returns whether the pattern is this name or a prefix of it.
    pub fn matches(&self, name: &str) -> bool {
        if self.is_prefix { name.starts_with(&*self.text) } else { name == &*self.text }
    }
}

/// Parses `orders`, `shop.*` or `*`.
impl FromStr for Pattern {
    type Err = Error;

    fn from_str(pattern: &str) -> Result<Self> {
        let prefix = pattern.strip_suffix('*');
        let text = prefix.unwrap_or(pattern);
        if text.contains('*') {
            let message = format!(
                "the pattern {pattern:?} has a `*` that is not at its end; write a name, or a prefix and `*`"
            );
            return Err(Error::invalid(message));
        }
        if prefix.is_none() {
            SequenceName::new(text)?;
        }
        Ok(Self { text: text.into(), is_prefix: prefix.is_some() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_another_each_time_and_shown_on_purpose_only() {
        let (one, other) = (Secret::fresh().unwrap(), Secret::fresh().unwrap());
        assert!(one != other && one.reveal().len() == 68);
        assert!(!format!("{one:?}").contains(&one.reveal()[4..]));
    }

    #[test]
    fn a_hash_reads_back_and_nothing_else_is_one() {
        let hash = TokenHash::of("secret");
        assert_eq!(hash.to_string().parse::<TokenHash>().unwrap(), hash);
        for other in ["", "sha256:", "secret", "sha256:+f", &hash.to_string()[1..], &format!("{hash}0")] {
            let error = other.parse::<TokenHash>().unwrap_err().to_string();
            assert!(error.contains("idmill token"), "{error}");
        }
    }

    #[test]
    fn pattern_with_a_trailing_star_matches_a_prefix() {
        let pattern = |text: &str| text.parse::<Pattern>().unwrap();
        assert!(pattern("*").matches("orders") && Pattern::any().matches("orders"));
        assert!(pattern("shop.*").matches("shop.orders") && !pattern("shop.*").matches("shops"));
        assert!(pattern("orders").matches("orders") && !pattern("orders").matches("orders2"));
        assert_eq!(pattern("shop.*").to_string(), "shop.*");
        for none in ["a*b", "**", ""] {
            assert!(none.parse::<Pattern>().is_err(), "{none:?}");
        }
    }

    #[test]
    fn rights_are_independent() {
        for &right in Right::ALL {
            let rights: Rights = [right].into_iter().collect();
            assert!(Right::ALL.iter().all(|other| rights.has(*other) == (*other == right)));
            assert_eq!(right.as_str().parse::<Right>().unwrap(), right);
            assert!(Rights::ALL.has(right));
        }
        assert!("admin".parse::<Right>().unwrap_err().to_string().contains("administer"));
    }

    #[test]
    fn right_that_is_named_twice_is_held() {
        let rights = Rights::from_iter([Right::Draw, Right::Observe, Right::Draw]);
        assert!(rights.has(Right::Draw) && rights.has(Right::Observe) && !rights.has(Right::Administer));
    }
}
