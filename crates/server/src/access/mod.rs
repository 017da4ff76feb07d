//! Access control: tokens with rights, patterns of sequence names, and limits.

mod limits;
mod refusal;
mod token;

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use limits::Usage;
pub(crate) use limits::{Bucket, Clock, ConnectionPermit, Created, Flow, Memory};
pub(crate) use refusal::Refusal;
pub use token::{Pattern, Right, Rights, Secret, Token, TokenHash};

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Maximum number of bytes of pending commands per token: transactions, and large commands that are
/// incomplete.
const MEMORY: usize = 32 * 1024 * 1024;

/// A token with its limits and its usage.
#[derive(Debug)]
struct Held {
    token: Token,
    requests: Option<Flow>,
    created: Option<Flow>,
    usage: Arc<Usage>,
}

impl Held {
    fn of(token: Token, usage: Arc<Usage>) -> Self {
        let requests = token.requests_per_second;
        let requests = requests.map(|amount| Flow::new(amount, SECOND, token.burst.unwrap_or(amount)));
        let created = token.new_sequences.and_then(NonZeroU32::new).map(|most| Flow::new(most, DAY, most));
        Self { token, requests, created, usage }
    }
}

/// The identity of a connection or a request.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    held: Arc<Held>,
    /// The tokens at the time of the last check.
    tokens: Arc<TokenSet>,
}

impl Caller {
    /// Returns the token's name, for logs. The secret is never logged.
    pub(crate) fn name(&self) -> &str {
        &self.held.token.name
    }

    pub(crate) fn may(&self, right: Right, sequence: &str) -> Result<(), Refusal> {
        self.has(right)?;
        let matches = self.patterns().iter().any(|pattern| pattern.matches(sequence));
        if matches { Ok(()) } else { Err(Refusal::Sequence) }
    }

    pub(crate) fn has(&self, right: Right) -> Result<(), Refusal> {
        if self.held.token.rights.has(right) { Ok(()) } else { Err(Refusal::Right(right)) }
    }

    pub(crate) fn patterns(&self) -> &[Pattern] {
        &self.held.token.sequences
    }

    pub(crate) fn may_take(&self, ids: u64) -> Result<(), Refusal> {
        match self.held.token.max_ids {
            Some(most) if ids > most => Err(Refusal::Ids(most)),
            _ => Ok(()),
        }
    }

    /// Returns whether the token has a request rate, so that requests must be [counted](Self::pays).
    pub(crate) fn is_metered(&self) -> bool {
        self.held.requests.is_some()
    }

    /// Counts this number of requests against the token's rate. `now` is a time of the
    /// [clock](Access::clock).
    pub(crate) fn pays(&self, requests: u64, now: u64) -> Result<(), Refusal> {
        let Some(flow) = self.held.requests else { return Ok(()) };
        if requests > 1 && requests > flow.most() {
            return Err(Refusal::Burst(flow.most()));
        }
        self.held.usage.requests.take_some(flow, requests, now).map_err(Refusal::Rate)
    }

    /// Counts the bytes that one connection holds for its client. The new count replaces the count in
    /// `before`, which is `None` after a refusal.
    pub(crate) fn holds(&self, bytes: usize, before: &mut Option<Memory>) -> Result<(), Refusal> {
        *before = None;
        if bytes > 0 {
            let usage = self.held.usage.clone();
            let more = |held: usize| held.checked_add(bytes).filter(|held| *held <= MEMORY);
            // Relaxed: only a counter.
            usage.held.fetch_update(Relaxed, Relaxed, more).map_err(|_| Refusal::Memory)?;
            *before = Some(Memory { usage, bytes });
        }
        Ok(())
    }

    /// Returns whether the token limits the number of new sequences.
    pub(crate) fn creates_some_only(&self) -> bool {
        self.held.token.new_sequences.is_some()
    }

    /// Counts one created sequence. If the creation fails, call `failed` on the returned value.
    pub(crate) fn creates(&self, now: u64) -> Result<Created, Refusal> {
        let (flow, usage) = (self.held.created.ok_or(Refusal::NoneNew)?, self.held.usage.clone());
        usage.created.take(flow, now).map_err(Refusal::Created)?;
        Ok(Created { usage, flow })
    }

    /// Counts the connection towards the token's maximum, unless `permit` already counts towards it.
    pub(crate) fn connects(&self, permit: &mut Option<ConnectionPermit>) -> Result<(), Refusal> {
        let usage = &self.held.usage;
        if permit.as_ref().is_some_and(|ConnectionPermit(of)| Arc::ptr_eq(of, usage)) {
            return Ok(());
        }
        *permit = None;
        let most = self.held.token.max_connections.unwrap_or(u32::MAX);
        let one_more = |taken: u32| (taken < most).then_some(taken + 1);
        // Relaxed: only a counter.
        let taken = usage.connections.fetch_update(Relaxed, Relaxed, one_more);
        taken.map_err(|_| Refusal::Connections(most))?;
        *permit = Some(ConnectionPermit(usage.clone()));
        Ok(())
    }

    fn in_time(&self, now: SystemTime) -> Result<(), Refusal> {
        match self.held.token.expires {
            Some(end) if end <= now => Err(Refusal::Ended),
            _ => Ok(()),
        }
    }
}

/// The tokens of one configuration.
#[derive(Debug)]
struct TokenSet {
    by_hash: HashMap<TokenHash, Arc<Held>>,
    /// The identity of all callers without a token; `None` if a token is required.
    anybody: Option<Arc<Held>>,
}

impl TokenSet {
    /// Returns the names of tokens that are not in `others`.
    fn names_beside(&self, others: &Self) -> Vec<&str> {
        let beside = self.by_hash.iter().filter(|(hash, _)| !others.by_hash.contains_key(hash));
        let mut names: Vec<_> = beside.map(|(_, held)| held.token.name.as_str()).collect();
        names.sort_unstable();
        names
    }
}

/// The tokens of a server. Clones share the tokens, so that the tokens can be replaced while the server runs.
#[derive(Clone, Debug)]
pub struct Access {
    shared: Arc<Shared>,
    pub(crate) clock: Clock,
}

#[derive(Debug)]
struct Shared {
    tokens: ArcSwap<TokenSet>,
    /// The usage of every token since the start. A token that is removed and added again keeps its usage.
    usage: Mutex<HashMap<TokenHash, Arc<Usage>>>,
}

impl Access {
    /// Creates rules that grant every caller all rights.
    pub fn open() -> Self {
        let anybody = Token::new("anybody", TokenHash::of(""), Rights::ALL, vec![Pattern::any()]);
        let anybody = Held::of(anybody, Arc::default());
        Self::of(TokenSet { by_hash: HashMap::new(), anybody: Some(Arc::new(anybody)) })
    }

    /// Returns rules that require one of these tokens.
    pub fn by(tokens: impl IntoIterator<Item = Token>) -> Self {
        let access = Self::of(TokenSet { by_hash: HashMap::new(), anybody: None });
        access.exchange(tokens);
        access
    }

    fn of(tokens: TokenSet) -> Self {
        let shared = Shared { tokens: ArcSwap::from_pointee(tokens), usage: Mutex::default() };
        Self { shared: Arc::new(shared), clock: Clock::of(SystemTime::now) }
    }

    /// Replaces the system clock for the expiry of tokens. Rates use a monotonic clock, which cannot be set.
    #[must_use]
    pub fn clocked(mut self, day: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        self.clock = self.clock.with_day(day);
        self
    }

    /// Replaces the tokens, also for open connections. The usage of each token is kept. An audit line names
    /// the added and the removed tokens, but not changed rights.
    pub fn replace(&self, tokens: impl IntoIterator<Item = Token>) {
        let (old, new) = self.exchange(tokens);
        let (came, went) = (new.names_beside(&old), old.names_beside(&new));
        if !came.is_empty() || !went.is_empty() {
            tracing::info!(target: "idmill::audit", ?came, ?went, outcome = "done", "exchange tokens");
        }
    }

    /// Replaces the tokens, and returns the old and the new tokens.
    fn exchange(&self, tokens: impl IntoIterator<Item = Token>) -> (Arc<TokenSet>, Arc<TokenSet>) {
        let (mut usage, now) = (self.shared.usage.lock(), self.clock.elapsed());
        let mut held = |token: Token| {
            let used = usage.entry(token.hash).or_default().clone();
            let held = Held::of(token, used);
            for (bucket, flow) in [(&held.usage.requests, held.requests), (&held.usage.created, held.created)]
            {
                if let Some(flow) = flow {
                    bucket.fit(flow, now);
                }
            }
            (held.token.hash, Arc::new(held))
        };
        let by_hash = tokens.into_iter().map(&mut held).collect();
        let tokens = Arc::new(TokenSet { by_hash, anybody: None });
        (self.shared.tokens.swap(tokens.clone()), tokens)
    }

    /// Returns whether every caller has all rights, without a token.
    pub fn is_open(&self) -> bool {
        self.shared.tokens.load().anybody.is_some()
    }

    /// Returns the identity of a client without a token.
    pub(crate) fn anybody(&self) -> Result<Caller, Refusal> {
        let tokens = self.shared.tokens.load_full();
        let held = tokens.anybody.clone().ok_or(Refusal::Nobody)?;
        Ok(Caller { held, tokens })
    }

    /// Returns the owner of this token. Tokens are compared by hash, so the response time does not reveal
    /// how much of a guess is right.
    pub(crate) fn caller(&self, secret: &str) -> Result<Caller, Refusal> {
        let tokens = self.shared.tokens.load_full();
        let held = tokens.by_hash.get(&TokenHash::of(secret)).cloned().ok_or(Refusal::Wrong)?;
        let caller = Caller { held, tokens };
        caller.in_time(self.clock.day())?;
        Ok(caller)
    }

    /// Returns whether the server's tokens are still the same; otherwise updates the caller's rights.
    ///
    /// # Errors
    /// [`Ended`](Refusal::Ended) if the token has expired or was removed.
    pub(crate) fn confirm(&self, caller: &mut Caller) -> Result<bool, Refusal> {
        let tokens = self.shared.tokens.load();
        let same = Arc::ptr_eq(&tokens, &caller.tokens);
        if !same {
            let held = tokens.by_hash.get(&caller.held.token.hash).or(tokens.anybody.as_ref());
            caller.held = held.ok_or(Refusal::Ended)?.clone();
            caller.tokens = tokens.clone();
        }
        if caller.held.token.expires.is_some() {
            caller.in_time(self.clock.day())?;
        }
        Ok(same)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(secret: &str, rights: &[Right], patterns: &[&str]) -> Token {
        let patterns = patterns.iter().map(|pattern| pattern.parse().unwrap()).collect();
        Token::new("shop", TokenHash::of(secret), rights.iter().copied().collect(), patterns)
    }

    #[test]
    fn token_allows_only_its_rights() {
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
    fn removed_token_ends_and_changed_token_gets_new_rights() {
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
    fn expired_token_is_rejected() {
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

    /// Returns a caller with these limits.
    fn limited(limits: impl FnOnce(&mut Token)) -> Caller {
        let mut token = token("s", &[Right::Draw], &["*"]);
        limits(&mut token);
        Access::by([token]).caller("s").unwrap()
    }

    #[test]
    fn request_may_take_up_to_its_maximum_of_ids() {
        let caller = limited(|token| token.max_ids = Some(10));
        assert_eq!((caller.may_take(10), caller.may_take(11)), (Ok(()), Err(Refusal::Ids(10))));
        assert_eq!(limited(|_| {}).may_take(u64::MAX), Ok(()));
    }

    #[test]
    fn requests_are_paid_up_to_the_burst() {
        let rate = |token: &mut Token| {
            (token.requests_per_second, token.burst) = (NonZeroU32::new(10), NonZeroU32::new(20));
        };
        let caller = limited(rate);
        assert!(caller.is_metered() && !limited(|_| {}).is_metered());
        assert_eq!(caller.pays(21, 0), Err(Refusal::Burst(20)));
        assert_eq!((caller.pays(19, 0), caller.pays(1, 0)), (Ok(()), Ok(())));
        assert_eq!(caller.pays(1, 0), Err(Refusal::Rate(Duration::from_millis(100))));
        assert_eq!(limited(|_| {}).pays(u64::MAX, 0), Ok(()));
        let unset = limited(|token| token.requests_per_second = NonZeroU32::new(10));
        assert_eq!((unset.pays(11, 0), unset.pays(10, 0)), (Err(Refusal::Burst(10)), Ok(())));
    }

    #[test]
    fn new_sequences_are_limited_per_day() {
        let caller = limited(|token| token.new_sequences = Some(2));
        let create = || caller.creates(0).map(drop);
        assert_eq!([create(), create()], [Ok(()), Ok(())]);
        assert_eq!(create(), Err(Refusal::Created(Duration::from_secs(43_200))));
        // A failed creation does not count, unless the sequence may exist.
        let caller = limited(|token| token.new_sequences = Some(1));
        caller.creates(0).unwrap().failed(&idmill::ErrorKind::Unavailable.into());
        caller.creates(0).unwrap().failed(&idmill::ErrorKind::UnknownOutcome.into());
        assert!(caller.creates(0).is_err());
        let none = limited(|token| token.new_sequences = Some(0));
        assert_eq!(none.creates(0).map(drop), Err(Refusal::NoneNew));
        assert!(caller.creates_some_only() && none.creates_some_only());
        assert!(!limited(|_| {}).creates_some_only());
    }

    #[test]
    fn pending_commands_hold_at_most_32_mib() {
        const MOST: usize = 33_554_432;
        let caller = limited(|_| {});
        let (mut one, mut other) = (None, None);
        assert_eq!(caller.holds(MOST - 1, &mut one), Ok(()));
        assert_eq!(caller.holds(2, &mut other), Err(Refusal::Memory));
        assert_eq!(caller.holds(1, &mut other), Ok(()));
        assert_eq!(caller.holds(0, &mut one), Ok(()));
        assert!(one.is_none() && other.is_some());
        assert_eq!(caller.holds(MOST, &mut one), Err(Refusal::Memory));
        assert_eq!(caller.holds(MOST, &mut other), Ok(()), "the new count replaces the old one");
    }

    #[test]
    fn connections_are_limited_and_counted_once() {
        let caller = limited(|token| token.max_connections = Some(2));
        let (mut one, mut two, mut three) = (None, None, None);
        assert_eq!([caller.connects(&mut one), caller.connects(&mut two)], [Ok(()), Ok(())]);
        assert_eq!(caller.connects(&mut two), Ok(()), "the connection counts already");
        assert_eq!(caller.connects(&mut three), Err(Refusal::Connections(2)));
        drop(one);
        assert_eq!(caller.connects(&mut three), Ok(()));
    }
}
