//! Who may do what: tokens, each with rights over the sequences whose names match.

mod pattern;
mod rights;
mod token;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwap;

pub use pattern::Pattern;
pub use rights::{Right, Rights};
pub use token::{Secret, Token, TokenHash};

/// Why somebody may not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Nobody said who they are.
    Nobody,
    /// No token is this one.
    Wrong,
    /// The token was taken away since, or its time has passed.
    Ended,
    /// The token does not have the right, over any sequence.
    Right(Right),
    /// The token's patterns do not match the sequence.
    Sequence,
    /// More ids than the token may have in one request.
    Ids(u64),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nobody => f.write_str("a token is required"),
            Self::Wrong => f.write_str("the token is not known here; it was mistyped, or taken away"),
            Self::Ended => f.write_str("the token has expired, or was taken away; ask for another"),
            Self::Right(right) => write!(f, "the token lacks the right `{right}`"),
            Self::Sequence => f.write_str("the token is not for this sequence"),
            Self::Ids(most) => write!(f, "the token allows {most} ids a request; take several times"),
        }
    }
}

/// Who a connection or a request is.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    token: Arc<Token>,
    /// Which tokens were known when it was looked at.
    known: Arc<Known>,
}

impl Caller {
    /// For logs and audit lines: the token's name, never the token.
    pub(crate) fn name(&self) -> &str {
        &self.token.name
    }

    pub(crate) fn may(&self, right: Right, sequence: &str) -> Result<(), Refusal> {
        self.has(right)?;
        let matches = self.token.sequences.iter().any(|pattern| pattern.matches(sequence));
        if matches { Ok(()) } else { Err(Refusal::Sequence) }
    }

    pub(crate) fn has(&self, right: Right) -> Result<(), Refusal> {
        if self.token.rights.has(right) { Ok(()) } else { Err(Refusal::Right(right)) }
    }

    pub(crate) fn may_take(&self, ids: u64) -> Result<(), Refusal> {
        match self.token.max_ids {
            Some(most) if ids > most => Err(Refusal::Ids(most)),
            _ => Ok(()),
        }
    }
}

/// The tokens of one reading of the configuration.
#[derive(Debug)]
struct Known {
    by_hash: HashMap<TokenHash, Arc<Token>>,
    /// Who everybody is without a token; `None` where one is required.
    anybody: Option<Arc<Token>>,
}

/// All tokens. They can be exchanged while the server runs: clones are of the same.
#[derive(Clone, Debug)]
pub struct Access(Arc<ArcSwap<Known>>);

impl Access {
    /// Everybody may do everything.
    pub fn open() -> Self {
        let anybody = Token::new("anybody", TokenHash::of(""), Rights::ALL, vec![Pattern::any()]);
        Self::knowing(Known { by_hash: HashMap::new(), anybody: Some(Arc::new(anybody)) })
    }

    /// Those with one of these tokens may do what it says.
    pub fn by(tokens: impl IntoIterator<Item = Token>) -> Self {
        Self::knowing(Known::of(tokens))
    }

    fn knowing(known: Known) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(known)))
    }

    /// From now on these are the tokens, for connections that are open as well.
    pub fn replace(&self, tokens: impl IntoIterator<Item = Token>) {
        self.0.store(Arc::new(Known::of(tokens)));
    }

    /// Whether everybody may do everything.
    pub fn is_open(&self) -> bool {
        self.0.load().anybody.is_some()
    }

    /// Who somebody is that said nothing.
    pub(crate) fn anybody(&self) -> Result<Caller, Refusal> {
        let known = self.0.load_full();
        let token = known.anybody.clone().ok_or(Refusal::Nobody)?;
        Ok(Caller { token, known })
    }

    /// Who has this token. What is compared are hashes, which tell nothing about how far a guess was right.
    pub(crate) fn caller(&self, secret: &str) -> Result<Caller, Refusal> {
        let known = self.0.load_full();
        let token = known.by_hash.get(&TokenHash::of(secret)).cloned().ok_or(Refusal::Wrong)?;
        let caller = Caller { token, known };
        caller.in_time(SystemTime::now())?;
        Ok(caller)
    }

    /// Whether a caller may do what they might before; `false` if their rights were exchanged meanwhile.
    ///
    /// # Errors
    /// If the token has ended.
    pub(crate) fn confirm(&self, caller: &mut Caller) -> Result<bool, Refusal> {
        let known = self.0.load();
        let same = Arc::ptr_eq(&known, &caller.known);
        if !same {
            let token = known.by_hash.get(&caller.token.hash).or(known.anybody.as_ref());
            caller.token = token.ok_or(Refusal::Ended)?.clone();
            caller.known = known.clone();
        }
        if caller.token.expires.is_some() {
            caller.in_time(SystemTime::now())?;
        }
        Ok(same)
    }
}

impl Caller {
    fn in_time(&self, now: SystemTime) -> Result<(), Refusal> {
        match self.token.expires {
            Some(end) if end <= now => Err(Refusal::Ended),
            _ => Ok(()),
        }
    }
}

impl Known {
    fn of(tokens: impl IntoIterator<Item = Token>) -> Self {
        let by_hash = tokens.into_iter().map(|token| (token.hash, Arc::new(token))).collect();
        Self { by_hash, anybody: None }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn token(secret: &str, rights: &[Right], patterns: &[&str]) -> Token {
        let patterns = patterns.iter().map(|pattern| pattern.parse().unwrap()).collect();
        Token::new("shop", TokenHash::of(secret), rights.iter().copied().collect(), patterns)
    }

    #[test]
    fn a_token_allows_what_it_says_and_nothing_else() {
        let access = Access::by([token("s", &[Right::Draw], &["orders", "shop.*"])]);
        let caller = access.caller("s").unwrap();
        assert_eq!(caller.may(Right::Draw, "orders"), Ok(()));
        assert_eq!(caller.may(Right::Draw, "shop.users"), Ok(()));
        assert_eq!(caller.may(Right::Draw, "orders2"), Err(Refusal::Sequence));
        assert_eq!(caller.may(Right::Administer, "orders"), Err(Refusal::Right(Right::Administer)));
        assert_eq!(access.caller("S").unwrap_err(), Refusal::Wrong);
        assert_eq!(access.anybody().unwrap_err(), Refusal::Nobody);
        assert_eq!(Access::open().anybody().unwrap().may(Right::Administer, "x"), Ok(()));
    }

    #[test]
    fn a_token_that_was_taken_away_ends_and_one_that_was_changed_goes_on() {
        let access = Access::by([token("s", &[Right::Draw], &["*"])]);
        let mut caller = access.caller("s").unwrap();
        access.replace([token("s", &[Right::Reserve], &["*"])]);
        assert_eq!(access.confirm(&mut caller), Ok(false));
        assert_eq!(access.confirm(&mut caller), Ok(true));
        assert_eq!(caller.may(Right::Draw, "a"), Err(Refusal::Right(Right::Draw)));
        access.replace([]);
        assert_eq!(access.confirm(&mut caller), Err(Refusal::Ended));
    }

    #[test]
    fn an_expired_token_is_none() {
        let now = SystemTime::now();
        let mut past = token("s", &[Right::Draw], &["*"]);
        past.expires = Some(now);
        let access = Access::by([past]);
        assert_eq!(access.caller("s").unwrap_err(), Refusal::Ended);
        let mut soon = token("s", &[Right::Draw], &["*"]);
        soon.expires = Some(now + Duration::from_secs(3600));
        access.replace([soon]);
        let caller = access.caller("s").unwrap();
        assert_eq!(caller.in_time(now + Duration::from_secs(3599)), Ok(()));
        assert_eq!(caller.in_time(now + Duration::from_secs(3600)), Err(Refusal::Ended));
    }
}
