//! Which Redis, and how its window is used; as a URL too.

use std::fmt;
use std::str::FromStr;

use idmill::{Error, Result};
use idmill_kit::options::{FILE, Table, option, whole};
use idmill_kit::secrets::check_login;
use idmill_shared_cache::options;
use idmill_shared_cache::options::{WAIT, WindowOptions, Windowed};

use super::SCRIPTS;
use crate::link::Terms;
use crate::place::Place;
use crate::verify::Demands;
use crate::{CA, split_scheme};

pub(crate) const OPTIONS: Table<RedisWindowOptions> = Table(&[
    options::block(),
    options::max_skip(),
    options::stub(WAIT),
    options::refresh(),
    options::timeout(),
    option("replicas", whole(0, 100), "0")
        .means("how many replicas must acknowledge a draw before its ids are used")
        .field(|o| &mut o.replicas),
    options::prefix(),
    option("ca", FILE, "").means(CA).field(|o| &mut o.place.ca),
]);

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
    replicas: u32,
    pub(super) window: WindowOptions,
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
        OPTIONS.with_defaults(Self { place, replicas: 0, window: WindowOptions::default() })
    }

    idmill_shared_cache::window_setters!();

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

    /// How many replicas have to know of a draw before its ids are used, at most 100: all that can be
    /// promoted, for ids that grow across a failover. They are unique without. Default 0.
    #[must_use]
    pub fn replicas(mut self, replicas: u32) -> Self {
        self.replicas = replicas;
        self
    }

    pub(super) fn check(&self) -> Result<()> {
        OPTIONS.check(self)?;
        self.place.check()
    }

    pub(super) fn terms(&self) -> Terms {
        Terms {
            place: self.place.clone(),
            demands: Demands::Master,
            timeout: self.window.timeout,
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
        let options = OPTIONS.read(query, Self::of(Place::parse(tls, place)?))?;
        options.check()?;
        Ok(options)
    }
}

impl Windowed for RedisWindowOptions {
    fn window(&mut self) -> &mut WindowOptions {
        &mut self.window
    }
}

impl fmt::Display for RedisWindowOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.place, OPTIONS.print(self))
    }
}
