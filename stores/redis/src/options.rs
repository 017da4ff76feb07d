//! The server, how it keeps sequences, and the URL form.

use std::time::Duration;

use idmill::store::{Durability, StoreFuture};
use idmill::{Error, Result, SequenceName};
use idmill_kit::Target;
use idmill_kit::history::{FAILOVER, Failover};
use idmill_kit::options::{Options as _, Word, whole, words};
use idmill_shared_cache::options::{PREFIX, WAIT};

use super::connection::Terms;
use super::server_url::ServerUrl;
use super::verify::Demands;
use super::{RedisStore, schema};

/// Whether the server must keep its grants through a crash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Keeps {
    /// `disk`: the server is checked on every connection, and refused unless it has `appendonly yes`,
    /// `appendfsync always` and `no-appendfsync-on-rewrite no`.
    #[default]
    Disk,
    /// `trust`: the server is assumed to have the settings of `disk`, without a check. For servers that do
    /// not answer `CONFIG GET`.
    Trust,
    /// `process`: a crash may lose grants, which repeats ids.
    Process,
}

idmill_kit::options! {
    /// A Redis or Valkey server, and how it keeps sequences.
    ///
    /// As a URL:
    /// `redis://USER:PASSWORD@HOST:PORT/DB?prefix=idmill&timeout=5s&replicas=0&durability=disk&failover=refuse`,
    /// or `rediss://…?ca=FILE` over TLS. In the user and the password, `%40` is `@`, `%3A` is `:` and `%2F`
    /// is `/`. Printing hides the password.
    ///
    /// ```
    /// use idmill_redis::RedisOptions;
    ///
    /// let options: RedisOptions = "rediss://app:secret@db1/2?prefix=billing&replicas=1".parse()?;
    /// assert_eq!(options.to_string(), "rediss://app:***@db1:6379/2?prefix=billing&replicas=1");
    /// # Ok::<(), idmill::Error>(())
    /// ```
    pub struct RedisOptions at hosts "redis" | "rediss" as "redis://HOST:PORT/DB" {
        url: ServerUrl,
    }

    /// The prefix of every key, in braces. Each prefix is a separate namespace.
    pub prefix: String = "idmill" in PREFIX;
    /// How long to wait for the server.
    pub timeout: Duration = "5s" in WAIT;
    /// How many replicas must acknowledge a grant before it counts.
    ///
    /// If fewer have done so after three quarters of the timeout, the outcome is unknown and the ids are a
    /// gap.
    pub replicas: u32 = "0" in whole(0, 100);
    /// How grants survive a crash.
    pub keeps ("durability"): Keeps = "disk" in words::<Keeps>();
    /// What happens on a promoted replica to a sequence that its master wrote last. Default: `allow` if
    /// `replicas` is set or with `durability=process`, otherwise `refuse`.
    ///
    /// The store cannot detect a promotion if the server has restarted or has had no replica for an hour
    /// since then.
    pub failover: Option<Failover> = "" in FAILOVER;

    use url;
}

impl RedisOptions {
    /// Options for the server at `HOST:PORT`, with every option at its default.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) if this is not an address.
    pub fn new(address: &str) -> Result<Self> {
        ServerUrl::at(address).map(Self::with_defaults)
    }

    /// Sets the user, which may be empty, and the password.
    #[must_use]
    pub fn login(mut self, user: &str, password: &str) -> Self {
        self.url.authority.log_in(user, password);
        self
    }

    idmill_kit::tls_setters!([url.tls] tls, ca);
    idmill_kit::setter! {
        /// The number of the server's database. Default 0.
        pub database = url.database: u32
    }

    fn at(scheme: &str, place: &str) -> Result<Self> {
        ServerUrl::parse(scheme, place).map(Self::with_defaults)
    }

    fn place(&self) -> String {
        self.url.to_string()
    }

    pub(super) fn check(&self) -> Result<()> {
        self.check_values()?;
        self.url.check()
    }

    pub(super) fn terms(&self) -> Terms {
        Terms {
            url: self.url.clone(),
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
        (Self::Disk, "disk", "rejects a server whose settings could lose reserved ids in a crash"),
        (Self::Trust, "trust", "assumes that the settings are right, for servers that forbid `CONFIG GET`"),
        (Self::Process, "process", "does not require the settings; ids can repeat after a crash"),
    ];
}

/// `existing` changes no option.
impl Target for RedisOptions {
    idmill_kit::target!(|options| options.url.scheme() => RedisStore::open_with);

    fn refused(&self) -> StoreFuture<'_, Result<Vec<(SequenceName, Error)>>> {
        Box::pin(async {
            // Only `failover=refuse` rejects reserves.
            if self.after_failover() != Failover::Refuse {
                return Ok(Vec::new());
            }
            RedisStore::open_with(self.clone()).await?.refused().await
        })
    }
}

#[cfg(test)]
mod tests {
    use idmill::ErrorKind;
    use idmill_testing::OptionsPage as _;
    use proptest::option;
    use proptest::prelude::*;

    use super::*;

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
    fn invalid_options_are_rejected_without_the_password() {
        for (url, remedy) in [
            ("http://x", "must begin with `redis://`"),
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
            ("redis://x?durability=none", "disk (rejects a server whose settings"),
            ("redis://x?failover=x", "`refuse` (no ids until"),
            ("redis://x?ca=/x.pem", "rediss://"),
            ("redis://x?prefix=", "1 to 64 letters"),
            ("redis://x?prefix=a}b", "1 to 64 letters"),
            ("redis://x?prefx=a", "prefix=idmill"),
            ("redis://x?prefix=a&prefix=b", "duplicate option"),
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
        RedisOptions::new("h").unwrap().documented(page, "options");
        // In the same test, since two concurrent tests would write the same file.
        crate::window::RedisWindowOptions::new("h").unwrap().documented(page, "options of the window");
    }

    #[test]
    fn failovers_are_trusted_if_replicas_must_confirm() {
        let options = RedisOptions::new("x").unwrap();
        assert_eq!(options.after_failover(), Failover::Refuse);
        assert_eq!(options.clone().replicas(1).after_failover(), Failover::Allow);
        assert_eq!(options.clone().keeps(Keeps::Process).after_failover(), Failover::Allow);
        assert_eq!(options.clone().keeps(Keeps::Trust).after_failover(), Failover::Refuse);
        assert_eq!(options.replicas(1).failover(Failover::Refuse).after_failover(), Failover::Refuse);
    }

    proptest! {
        #[test]
        fn display_round_trips_except_the_password(
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
            prop_assert!(!printed.contains("zz") || host.contains("zz") || user.contains("zz") || login.url.tls.ca.iter().any(|ca| ca.to_string_lossy().contains("zz")) || login.prefix.contains("zz"));
            let hidden: RedisOptions = printed.parse().unwrap();
            prop_assert_eq!(hidden.url.authority.user, login.url.authority.user);
            prop_assert_eq!(hidden.url.authority.password, Some("***".to_owned()));
        }
    }
}
