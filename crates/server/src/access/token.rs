//! Tokens: what a client shows, and what of it is kept.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::SystemTime;

use derive_more::Debug;
use idmill::{Error, Result};
use sha2::{Digest, Sha256};

use super::{Pattern, Rights};

/// What a client shows: 256 random bits. It is printed once, and not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
#[debug("Secret(…)")]
pub struct Secret(String);

impl Secret {
    /// A new one, from the system's own randomness.
    ///
    /// # Errors
    /// [`Unavailable`](idmill::ErrorKind::Unavailable) if the system has none.
    pub fn fresh() -> Result<Self> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(|error| {
            let message = format!("the system has no randomness for a token: {error}");
            Error::new(idmill::ErrorKind::Unavailable, message)
        })?;
        Ok(Self(format!("idm_{}", hex::encode(bytes))))
    }

    /// As the client shows it.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// What is kept of it.
    pub fn hash(&self) -> TokenHash {
        TokenHash::of(&self.0)
    }
}

/// The SHA-256 of a token. As a token is 256 random bits, a slower hash would protect nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[debug("{self}")]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    pub(crate) fn of(secret: &str) -> Self {
        Self(Sha256::digest(secret).into())
    }
}

impl fmt::Display for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", hex::encode(self.0))
    }
}

/// Reads `sha256:` and 64 hexadecimal digits.
impl FromStr for TokenHash {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut hash = [0; 32];
        let read = text.strip_prefix("sha256:").map(|digits| hex::decode_to_slice(digits, &mut hash));
        // Not repeated: it may be the token itself.
        let message = "a token's hash is `sha256:` and 64 hexadecimal digits, as `idmill token` prints it";
        if read == Some(Ok(())) { Ok(Self(hash)) } else { Err(Error::invalid(message)) }
    }
}

/// Who has the token that has this hash, and what they may do.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Token {
    /// For logs and audit lines.
    pub name: String,
    /// Of what the client shows.
    pub hash: TokenHash,
    /// What it allows.
    pub rights: Rights,
    /// With which sequences.
    pub sequences: Vec<Pattern>,
    /// The most ids of one request; `None` for as many as the server grants.
    pub max_ids: Option<u64>,
    /// The most requests a second, on average: commands of a pipeline count each.
    pub requests_per_second: Option<NonZeroU32>,
    /// The most requests at once; `None` for as many as in a second.
    pub burst: Option<NonZeroU32>,
    /// The most connections, of both protocols together, that showed this token last.
    pub max_connections: Option<u32>,
    /// The most sequences a day that it creates by drawing from them, where a server creates any.
    pub new_sequences: Option<u32>,
    /// When it ends, by the clock of the server; `None` for never.
    pub expires: Option<SystemTime>,
}

impl Token {
    /// One without limits, for ever.
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
}
