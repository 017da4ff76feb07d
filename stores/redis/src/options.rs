//! The server and how it keeps sequences, and their URL form.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use idmill::store::{Durability, Store, StoreFuture};
use idmill::{Error, Result, SequenceName};
use idmill_kit::Target;
use idmill_kit::history::{FAILOVER, Failover};
use idmill_kit::options::{FILE, Table, Word, option, whole, words};
use idmill_kit::refuse;
use idmill_kit::secrets::check_login;
use idmill_shared_cache::options::{PREFIX, WAIT};

use super::link::Terms;
use super::place::Place;
use super::verify::Demands;
use super::{RedisStore, schema};

const OPTIONS: Table<RedisOptions> = Table(&[
    option("prefix", PREFIX, "idmill")
        .means("the prefix of every key, in braces; a namespace")
        .field(|o| &mut o.prefix),
    option("timeout", WAIT, "5s").means("how long to wait for the server").field(|o| &mut o.timeout),
    option("replicas", whole(0, 100), "0")
        .means("how many replicas must acknowledge a grant before it counts")
        .field(|o| &mut o.replicas),
    option("durability", words::<Keeps>(), "disk")
        .means("what keeps a grant through a crash")
        .field(|o| &mut o.keeps),
    option("failover", FAILOVER, "")
        .means(
            "what a promoted replica may grant of a sequence that its master wrote last, see below. The default is `allow` if `replicas` is set, and \
             with `durability=process`; otherwise `refuse`",
        )
        .field(|o| &mut o.failover),
    option("ca", FILE, "").means(CA).field(|o| &mut o.place.ca),
]);
pub(crate) const CA: &str = "with `rediss://`: a PEM file with the authorities to trust in place of the system's, read again for every \
                             connection";

/// Whether the server must keep its grants through a crash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Keeps {
    /// `disk`: the server is checked on every connection, and refused unless it has `appendonly yes`,
    /// `appendfsync always` and `no-appendfsync-on-rewrite no`.
    #[default]
    Disk,
    /// `trust`: the server is assumed to keep its grants, without a check. For servers that do not answer
    /// `CONFIG GET`.
    Trust,
    /// `process`: a crash may lose grants, and ids are then handed out twice.
    Process,
}

/// A Redis or Valkey server, and how it keeps sequences.
///
/// As a URL:
/// `redis://USER:PASSWORD@HOST:PORT/DB?prefix=idmill&timeout=5s&replicas=0&durability=disk&failover=refuse`,
/// or `rediss://…?ca=FILE` over TLS. In the user and the password, `%40` is `@`, `%3A` is `:` and `%2F` is
/// `/`. Printing hides the password.
///
/// ```
/// use idmill_redis::RedisOptions;
///
/// let options: RedisOptions = "rediss://app:secret@db1/2?prefix=billing&replicas=1".parse()?;
/// assert_eq!(options.to_string(), "rediss://app:***@db1:6379/2?prefix=billing&replicas=1");
/// # Ok::<(), idmill::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisOptions {
    place: Place,
    prefix: String,
    timeout: Duration,
    replicas: u32,
    keeps: Keeps,
    failover: Option<Failover>,
}

impl RedisOptions {
    /// The server at `HOST:PORT`, with every option at its default.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) if this is not an address.
    pub fn new(address: &str) -> Result<Self> {
        Ok(Self::of(Place::at(address)?))
    }

    fn of(place: Place) -> Self {
        let (prefix, timeout, replicas) = Default::default();
        OPTIONS.with_defaults(Self {
            place,
            prefix,
            timeout,
            replicas,
            keeps: Keeps::default(),
            failover: None,
        })
    }

    /// The user to log in as, which may be empty, and its password.
    #[must_use]
    pub fn login(mut self, user: &str, password: &str) -> Self {
        self.place.log_in(user, password);
        self
    }

    /// Uses TLS, and trusts the system's authorities.
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.place.tls = true;
        self
    }

    /// Uses TLS, and trusts the authorities in this PEM file in place of the system's.
    #[must_use]
    pub fn ca(mut self, file: impl Into<String>) -> Self {
        self.place.trust(file.into());
        self
    }

    /// The number of the server's database. Default 0.
    #[must_use]
    pub fn database(mut self, number: u32) -> Self {
        self.place.database = number;
        self
    }

    /// The prefix of every key, in braces: 1 to 64 letters, digits, `_`, `.`, `-`, `:`. Default `idmill`.
    /// Each prefix is its own namespace.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// How long to wait for the server, 100 ms to 1 h. Default 5 s.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How many replicas must acknowledge a grant before it counts, at most 100. If fewer have done so after
    /// three quarters of the timeout, the grant is an unknown outcome and a gap. Default 0.
    #[must_use]
    pub fn replicas(mut self, replicas: u32) -> Self {
        self.replicas = replicas;
        self
    }

    /// Whether the server must keep its grants. Default [`Keeps::Disk`].
    #[must_use]
    pub fn keeps(mut self, keeps: Keeps) -> Self {
        self.keeps = keeps;
        self
    }

    /// What happens to a sequence if its server was a replica at the last write. Default
    /// [`Failover::Refuse`], or [`Failover::Allow`] if [`replicas`](Self::replicas) is set or with
    /// [`Keeps::Process`].
    ///
    /// The store cannot detect this if the server has restarted since its promotion, has had no replica for
    /// an hour, or was the second to be promoted in a row.
    #[must_use]
    pub fn failover(mut self, failover: Failover) -> Self {
        self.failover = Some(failover);
        self
    }

    /// Reads what follows `redis:` in a URL, or `rediss:`.
    pub(crate) fn parse_rest(tls: bool, rest: &str) -> Result<Self> {
        check_login(rest)?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let options = OPTIONS.read(query, Self::of(Place::parse(tls, place)?))?;
        options.check()?;
        Ok(options)
    }

    pub(super) fn check(&self) -> Result<()> {
        OPTIONS.check(self)?;
        self.place.check()
    }

    pub(super) fn prefix_name(&self) -> &str {
        &self.prefix
    }

    pub(super) fn terms(&self) -> Terms {
        Terms {
            place: self.place.clone(),
            demands: if self.keeps == Keeps::Disk { Demands::Disk } else { Demands::Keeps },
            timeout: self.timeout,
            replicas: self.replicas,
            scripts: &schema::SCRIPTS,
        }
    }

    pub(super) fn durability(&self) -> Durability {
        if self.keeps == Keeps::Process { Durability::Process } else { Durability::Disk }
    }

    pub(super) fn after_failover(&self) -> Failover {
        let lossy = self.keeps == Keeps::Process;
        self.failover.unwrap_or(if self.replicas > 0 || lossy { Failover::Allow } else { Failover::Refuse })
    }
}

impl Word for Keeps {
    const WORDS: &'static [(Self, &'static str, &'static str)] = &[
        (Self::Disk, "disk", "checks the server's settings, and refuses a server without them"),
        (Self::Trust, "trust", "assumes the settings, for servers that forbid `CONFIG GET`"),
        (Self::Process, "process", "does not need them; a crash then repeats ids"),
    ];
}

impl Target for RedisOptions {
    fn scheme(&self) -> &'static str {
        if self.place.tls { "rediss" } else { "redis" }
    }

    // Nothing is created by opening it.
    fn existing(&self) -> Arc<dyn Target> {
        Arc::new(self.clone())
    }

    fn refused(&self) -> StoreFuture<'_, Result<Vec<(SequenceName, Error)>>> {
        Box::pin(async {
            // Who says `failover` otherwise is refused nothing.
            if self.after_failover() != Failover::Refuse {
                return Ok(Vec::new());
            }
            RedisStore::open_with(self.clone()).await?.refused().await
        })
    }

    fn connect(&self) -> StoreFuture<'_, Result<Arc<dyn Store>>> {
        Box::pin(async { Ok(Arc::new(RedisStore::open_with(self.clone()).await?) as Arc<dyn Store>) })
    }
}

/// Parses a URL, as [`Display`](fmt::Display) prints it except for the password.
impl FromStr for RedisOptions {
    type Err = Error;

    fn from_str(url: &str) -> Result<Self> {
        let (tls, rest) = split_scheme(url)?;
        Self::parse_rest(tls, rest)
    }
}

/// Whether a URL asks for TLS, and what follows its scheme. Never the text itself in an
/// error: it may hold a password.
pub(crate) fn split_scheme(url: &str) -> Result<(bool, &str)> {
    let (scheme, rest) = url.split_once(':').unwrap_or((url, ""));
    match scheme.to_ascii_lowercase().as_str() {
        "redis" => Ok((false, rest)),
        "rediss" => Ok((true, rest)),
        _ => Err(refuse("a Redis URL begins with `redis://`, or `rediss://` for TLS")),
    }
}

impl fmt::Display for RedisOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.place, OPTIONS.print(self))
    }
}

#[cfg(test)]
mod tests {
    use idmill::ErrorKind;
    use proptest::option;
    use proptest::prelude::*;

    use super::*;
    use crate::place::Password;

    #[test]
    fn every_option_is_read() {
        let url = "redis://app:s%40c%3A%2F@db-1/3?prefix=a:b&timeout=500ms&replicas=2&durability=trust&failover=skip:9";
        let expected =
            RedisOptions::new("db-1:6379").unwrap().login("app", "s@c:/").database(3).prefix("a:b");
        let expected = expected.timeout(Duration::from_millis(500)).replicas(2).keeps(Keeps::Trust);
        assert_eq!(url.parse::<RedisOptions>().unwrap(), expected.failover(Failover::Skip(9)));
        for (url, options) in [
            ("redis://10.0.0.1:5", RedisOptions::new("10.0.0.1:5").unwrap()),
            ("REDISS://x/", RedisOptions::new("x:6379").unwrap().tls()),
            ("rediss://x?ca=/etc/a%20b.pem", RedisOptions::new("x:6379").unwrap().ca("/etc/a b.pem")),
            ("redis://[::1]", RedisOptions::new("[::1]:6379").unwrap()),
            ("redis://:secret@x", RedisOptions::new("x").unwrap().login("", "secret")),
        ] {
            assert_eq!(url.parse::<RedisOptions>().unwrap(), options, "{url}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_remedy_and_without_the_password() {
        for (url, remedy) in [
            ("http://x", "begins with `redis://`"),
            ("redis:x", "two slashes"),
            ("redis://", "HOST:PORT"),
            ("redis://x:0", "6379"),
            ("redis://x:99999", "6379"),
            ("redis://::1", "HOST:PORT"),
            ("redis://a b", "HOST:PORT"),
            ("redis://x/y", "number of a database"),
            ("redis://x/-1", "number of a database"),
            ("redis://app@x", "USER:PASSWORD"),
            ("redis://app:sec@ret@x", "%40"),
            ("redis://app:sec/ret@x", "%2F"),
            ("redis://app:%ff@x", "UTF-8"),
            ("redis://x?timeout=1ms", "100ms to 1h"),
            ("redis://x?timeout=5", "ms, s, m or h), 100ms to 1h, such as timeout=5s"),
            ("redis://x?replicas=-1", "replicas=\"-1\" cannot be used: write a whole number, 0 to 100"),
            ("redis://x?replicas=101", "0 to 100, such as replicas=0"),
            ("redis://x?durability=none", "disk (checks the server's settings"),
            ("redis://x?failover=x", "`refuse` (nothing is granted until"),
            ("redis://x?ca=/x.pem", "rediss://"),
            ("redis://x?prefix=", "1 to 64 letters"),
            ("redis://x?prefix=a}b", "1 to 64 letters"),
            ("redis://x?prefx=a", "prefix=idmill"),
            ("redis://x?prefix=a&prefix=b", "twice"),
        ] {
            let error = url.parse::<RedisOptions>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{url}");
            assert!(error.to_string().contains(remedy), "{url}: {error}");
            assert!(!error.to_string().contains("ret"), "{error}");
        }
    }

    #[test]
    fn the_page_has_the_options() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/README.md");
        OPTIONS.documented(page, "options");
        // Here too, since two tests at a time would write one file.
        crate::window::OPTIONS.documented(page, "options of the window");
    }

    #[test]
    fn failovers_are_trusted_where_replicas_have_to_know() {
        let options = RedisOptions::new("x").unwrap();
        assert_eq!(options.after_failover(), Failover::Refuse);
        assert_eq!(options.clone().replicas(1).after_failover(), Failover::Allow);
        assert_eq!(options.clone().keeps(Keeps::Process).after_failover(), Failover::Allow);
        assert_eq!(options.clone().keeps(Keeps::Trust).after_failover(), Failover::Refuse);
        assert_eq!(options.replicas(1).failover(Failover::Refuse).after_failover(), Failover::Refuse);
    }

    proptest! {
        #[test]
        fn display_reads_back_but_for_the_password(
            host in "[a-z0-9.-]{1,20}", port in 1..=u16::MAX, database in 0..99_u32, tls: bool, user in "\\PC{0,9}",
            password in "zz\\PC{0,9}", ca in option::of("\\PC{1,9}"), replicas in 0..=100_u32, timeout in 100..=3_600_000_u64, prefix in "[A-Za-z0-9_.:-]{1,64}",
        ) {
            let options = RedisOptions::new(&format!("{host}:{port}")).unwrap().database(database).replicas(replicas);
            let options = options.timeout(Duration::from_millis(timeout)).prefix(prefix);
            let options = if tls { options.tls() } else { options };
            let options = if let Some(ca) = ca { options.ca(ca) } else { options };
            prop_assert_eq!(&options.to_string().parse::<RedisOptions>().unwrap(), &options);
            let login = options.login(&user, &password);
            let printed = login.to_string();
            prop_assert!(!printed.contains("zz") || host.contains("zz") || user.contains("zz") || login.place.ca.iter().any(|ca| ca.contains("zz")) || login.prefix.contains("zz"));
            let hidden: RedisOptions = printed.parse().unwrap();
            prop_assert_eq!(hidden.place.user, login.place.user);
            prop_assert_eq!(hidden.place.password, Some(Password("***".to_owned())));
        }
    }
}
