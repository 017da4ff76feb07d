//! Which Redis, and how its window is used; as a URL too.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use idmill::store::kit::query::{self, Printed};
use idmill::store::kit::refuse;
use idmill::store::kit::secrets::check_login;
use idmill::tier::fenced::MAX_LEN;
use idmill::tier::max_skip;
use idmill::tier::pace::Limits;
use idmill::{Error, Result};

use super::SCRIPTS;
use crate::link::Terms;
use crate::place::Place;
use crate::verify::Demands;
use crate::{check_prefix, check_timeout, split_scheme};

const DEFAULT_BLOCK: u64 = 1_000;
const DEFAULT_STUB: Duration = Duration::from_secs(5);
const DEFAULT_REFRESH: Duration = Duration::from_secs(5);
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(2);
const DEFAULT_PREFIX: &str = "idmill";
const KNOWN: &str =
    "block=1000, max_skip=5s, stub=5s, refresh=5s, timeout=2s, replicas=0, prefix=idmill, ca=FILE";

/// Which Redis or Valkey server, and how its window is used.
///
/// As a URL: `redis://USER:PASSWORD@HOST:PORT/DB`, or `rediss://…?ca=FILE` over TLS. The options, with their
/// defaults, are `block=1000`, `max_skip=5s`, `stub=5s`, `refresh=5s`, `timeout=2s`, `replicas=0` and
/// `prefix=idmill`. Printing hides the password.
///
/// ```
/// use idmill_redis::window::RedisWindowOptions;
///
/// let options = RedisWindowOptions::new("cache-1:6379")?.block(5_000);
/// assert_eq!(options.to_string(), "redis://cache-1:6379?block=5000");
/// # Ok::<(), idmill::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisWindowOptions {
    place: Place,
    pub(super) block: u64,
    pub(super) max_skip: Option<Duration>,
    pub(super) stub: Duration,
    pub(super) refresh: Duration,
    timeout: Duration,
    replicas: u32,
    pub(super) prefix: String,
}

impl RedisWindowOptions {
    /// The server at `HOST:PORT`, with every option at its default.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for what is no address.
    pub fn new(address: &str) -> Result<Self> {
        Ok(Self::of(Place::at(address)?))
    }

    fn of(place: Place) -> Self {
        Self {
            place,
            block: DEFAULT_BLOCK,
            max_skip: max_skip::DEFAULT,
            stub: DEFAULT_STUB,
            refresh: DEFAULT_REFRESH,
            timeout: DEFAULT_TIMEOUT,
            replicas: 0,
            prefix: DEFAULT_PREFIX.to_owned(),
        }
    }

    /// The user to log in as, which may be empty, and its password.
    #[must_use]
    pub fn login(mut self, user: &str, password: &str) -> Self {
        self.place.log_in(user, password);
        self
    }

    /// Speak TLS, and trust the system's authorities.
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.place.tls = true;
        self
    }

    /// Speak TLS, and trust the authorities in this file (PEM) in place of the system's.
    #[must_use]
    pub fn ca(mut self, file: impl Into<String>) -> Self {
        self.place.trust(file.into());
        self
    }

    /// The most ids in the window, 1 to 2^20, but for a caller that asks for more at once: what a
    /// failover, a restart and an eviction waste at most. Default 1000. With 1 nothing is ever wasted,
    /// and each id is a write to the store.
    #[must_use]
    pub fn block(mut self, ids: u64) -> Self {
        self.block = ids;
        self
    }

    /// They waste no more than about what is drawn in this time, 10 ms to 1 h, where that is less than
    /// a [block](Self::block). Two or three times in it the store is written to. `None`: the window
    /// always has a block. Default 5 s.
    #[must_use]
    pub fn max_skip(mut self, lasts: impl Into<Option<Duration>>) -> Self {
        self.max_skip = lasts.into();
        self
    }

    /// How long others wait for a process that died while it was to refill the window: 100 ms to 1 h. A
    /// reserve from the store behind that takes longer is for nothing, and an error; the next may take twice
    /// as long as it took. Default 5 s.
    #[must_use]
    pub fn stub(mut self, lives: Duration) -> Self {
        self.stub = lives;
        self
    }

    /// How often the store behind is asked about a sequence in use, 100 ms to 1 h. A process may go on for
    /// this long with a sequence that was removed or reset. Default 5 s.
    #[must_use]
    pub fn refresh(mut self, interval: Duration) -> Self {
        self.refresh = interval;
        self
    }

    /// How long to wait for the server, 100 ms to 1 h. Default 2 s.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How many replicas have to know of a draw before its ids are used, at most 100: all that can be
    /// promoted, for ids that grow across a failover. They are unique without. Default 0.
    #[must_use]
    pub fn replicas(mut self, replicas: u32) -> Self {
        self.replicas = replicas;
        self
    }

    /// What every key begins with, in braces: 1 to 64 letters, digits, `_`, `.`, `-`, `:`. Default
    /// `idmill`. A copy of a store must not share a prefix with the original on one server: to the
    /// window the two are the same.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    fn set(self, key: &str, value: &str) -> Result<Self> {
        let number = |what: &str| refuse(format!("{key}={value:?} is not a number of {what}"));
        Ok(match key {
            "ca" => Self { place: self.place.trusting(value)?, ..self },
            "block" => self.block(value.parse().map_err(|_| number("ids"))?),
            "max_skip" => self.max_skip(max_skip::read(value)?),
            "stub" => self.stub(duration(key, value)?),
            "refresh" => self.refresh(duration(key, value)?),
            "timeout" => self.timeout(duration(key, value)?),
            "replicas" => self.replicas(value.parse().map_err(|_| number("replicas"))?),
            "prefix" => self.prefix(value),
            _ => return Err(query::unknown(key, KNOWN)),
        })
    }

    pub(super) fn limits(&self) -> Limits {
        Limits { most: self.block, lasts: self.max_skip, claim: self.stub }
    }

    pub(super) fn check(&self) -> Result<()> {
        if !(1..=MAX_LEN).contains(&self.block) {
            return Err(refuse(format!("block={}; it must be 1 to {MAX_LEN} ids", self.block)));
        }
        max_skip::check(self.max_skip)?;
        for (key, value) in [("refresh", self.refresh), ("stub", self.stub)] {
            if !(Duration::from_millis(100)..=Duration::from_secs(3600)).contains(&value) {
                return Err(refuse(format!("{key}={value:?}; it must be 100ms to 60m")));
            }
        }
        if self.replicas > 100 {
            return Err(refuse(format!("replicas={}; at most 100", self.replicas)));
        }
        check_timeout(self.timeout)?;
        check_prefix(&self.prefix)
    }

    pub(super) fn terms(&self) -> Terms {
        Terms {
            place: self.place.clone(),
            demands: Demands::Master,
            timeout: self.timeout,
            replicas: self.replicas,
            scripts: &SCRIPTS,
        }
    }
}

/// Reads what [`Display`](fmt::Display) prints, a URL, but for the password.
impl FromStr for RedisWindowOptions {
    type Err = Error;

    fn from_str(url: &str) -> Result<Self> {
        let (tls, rest) = split_scheme(url)?;
        check_login(rest)?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let options = query::read(query, Self::of(Place::parse(tls, place)?), Self::set)?;
        options.check()?;
        Ok(options)
    }
}

impl fmt::Display for RedisWindowOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let block = Printed::default().differing("block", self.block, DEFAULT_BLOCK);
        let options = max_skip::print(block, self.max_skip)
            .duration("stub", self.stub, DEFAULT_STUB)
            .duration("refresh", self.refresh, DEFAULT_REFRESH)
            .duration("timeout", self.timeout, DEFAULT_TIMEOUT)
            .differing("replicas", self.replicas, 0)
            .differing("prefix", self.prefix.as_str(), DEFAULT_PREFIX)
            .given("ca", self.place.ca.as_ref());
        write!(f, "{}{options}", self.place)
    }
}

fn duration(key: &str, value: &str) -> Result<Duration> {
    query::duration(key, value, "500ms, 5s, 1m")
}
