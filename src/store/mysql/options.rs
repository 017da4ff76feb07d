//! Where a server is, and how a URL says so.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use mysql_async::{Error as Mysql, Opts, OptsBuilder, Pool, PoolConstraints, PoolOpts, SslOpts};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use rustls::crypto::{CryptoProvider, aws_lc_rs};

use super::classify::{Asked, Fault, failed};
use super::database::{Database, must_be_durable};
use super::schema::{DEFAULT_TABLE, Table};
use super::{DEFAULT_TIMEOUT, MysqlStore};
use crate::error::{Error, Result};
use crate::store::url::Target;
use crate::store::url::query::{self, Printed, refuse};
use crate::store::{Mode, Store, StoreFuture};

const PORT: u16 = 3306;
const MAX_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);
/// MySQL's own limit for names.
const LONGEST_DATABASE: usize = 64;
const KNOWN: &str = "table=NAME, mode=ro|rw|rwc, tls=on|off, ca=FILE, timeout=10s";
/// What stands for a password where a URL is printed.
const HIDDEN: &str = "***";
/// The most connections at a time, and how long those may be idle that are not in use all the time.
const CONNECTIONS: usize = 10;
const IDLE: Duration = Duration::from_secs(60);

/// Whether the connection is encrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Tls {
    /// `off`: it is not. Passwords are sent in a way that does not show them, all else as it is.
    #[default]
    Off,
    /// `on`: it is, and the server's certificate must be for the host that was named, signed by a well-known authority or the
    /// one that was [given](MysqlOptions::ca).
    On,
}

impl Tls {
    fn parse(value: &str) -> Result<Self> {
        match value {
            "off" => Ok(Self::Off),
            "on" => Ok(Self::On),
            _ => Err(refuse(format!("tls={value:?} is unknown; there are on and off"))),
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::On => "on",
        }
    }
}

/// Where a MySQL or MariaDB server is and how to reach it; not yet connected to.
///
/// As a URL: `mysql://USER:PASSWORD@HOST:PORT/DATABASE?table=NAME&mode=ro|rw|rwc&tls=on|off&ca=FILE&timeout=10s`; `mariadb://` means the
/// same. User, password and database are percent-encoded. Printing hides the password.
///
/// ```
/// use idmill::store::mysql::MysqlOptions;
///
/// let options = MysqlOptions::new("db1", "billing").credentials("app", "secret").table("numbers");
/// assert_eq!(options.to_string(), "mysql://app:***@db1/billing?table=numbers");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct MysqlOptions {
    host: String,
    port: u16,
    user: Option<String>,
    password: Option<String>,
    database: String,
    table: String,
    mode: Mode,
    tls: Tls,
    ca: Option<PathBuf>,
    timeout: Duration,
}

impl MysqlOptions {
    /// This database on this host, with every option at its default.
    pub fn new(host: impl Into<String>, database: impl Into<String>) -> Self {
        Self {
            host: host.into(),
            port: PORT,
            user: None,
            password: None,
            database: database.into(),
            table: DEFAULT_TABLE.to_owned(),
            mode: Mode::default(),
            tls: Tls::default(),
            ca: None,
            timeout: DEFAULT_TIMEOUT,
        }
    }

    /// The port. Default 3306.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Logs in with a password.
    #[must_use]
    pub fn credentials(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        (self.user, self.password) = (Some(user.into()), Some(password.into()));
        self
    }

    /// The table to keep sequences in: `[A-Za-z_][A-Za-z0-9_]{0,63}`. Default `idmill_sequences`. Tables are namespaces: a
    /// name in one has nothing to do with the same name in another.
    #[must_use]
    pub fn table(mut self, table: impl Into<String>) -> Self {
        self.table = table.into();
        self
    }

    /// What opening may do. Default [`Mode::Create`].
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Whether the connection is encrypted. Default [`Tls::Off`].
    ///
    /// If the process has no default cryptography for `rustls` yet, connecting makes `aws-lc-rs` that.
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = tls;
        self
    }

    /// A file with the certificates (PEM) of the authorities that may have signed the server's, in place of the well-known ones. Turns
    /// [TLS](Self::tls) on.
    #[must_use]
    pub fn ca(mut self, file: impl Into<PathBuf>) -> Self {
        (self.ca, self.tls) = (Some(file.into()), Tls::On);
        self
    }

    /// How long one statement may take before it is given up, and how long a connection may take to be had: 1 ms to a day. Default
    /// 10 s. The server gives up waiting for a lock after half of it, in whole seconds, and says so.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The table that sequences are kept in.
    pub fn table_name(&self) -> &str {
        &self.table
    }

    /// A pool of connections to the same server and database, for transactions of the caller's own. Connects to nothing yet.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for options that cannot be.
    pub fn pool(&self) -> Result<Pool> {
        self.check()?;
        Ok(Pool::new(self.driver(true)))
    }

    /// Reads a URL. Touches no network.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput), saying what is wrong with it; never with the password.
    pub fn parse(url: &str) -> Result<Self> {
        let known =
            |scheme: &str| scheme.eq_ignore_ascii_case("mysql") || scheme.eq_ignore_ascii_case("mariadb");
        match url.split_once(':').filter(|(scheme, _)| known(scheme)) {
            Some((_, rest)) => Self::parse_rest(rest),
            None => Err(refuse("a MySQL URL begins with `mysql://` or `mariadb://`")),
        }
    }

    /// Reads what follows `mysql:` in a URL.
    pub(crate) fn parse_rest(rest: &str) -> Result<Self> {
        let Some(rest) = rest.strip_prefix("//") else {
            return Err(refuse("a MySQL URL begins with two slashes: `mysql://HOST/DATABASE`"));
        };
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = place.split_once('/').unwrap_or((place, ""));
        let (login, host) = match authority.rsplit_once('@') {
            Some((login, host)) => (Some(login), host),
            None => (None, authority),
        };
        // Before anything of it could be printed: what comes here may be the end of a password.
        if database.contains('@') || query.contains('@') || login.is_some_and(|login| login.contains('@')) {
            return Err(refuse(
                "the URL has an `@` too many: write it as %40, and in user name and password also `/` as %2F, `?` as %3F \
                 and `:` as %3A",
            ));
        }
        let (host, port) = split_port(host)?;
        let mut options = Self::new(host, decode(database, "the database")?).port(port);
        if let Some(login) = login {
            let (user, password) = match login.split_once(':') {
                Some((user, password)) => (user, Some(decode(password, "the password")?)),
                None => (login, None),
            };
            (options.user, options.password) = (Some(decode(user, "the user name")?), password);
        }
        let options = query::read(query, options, Self::set)?;
        options.check()?;
        Ok(options)
    }

    fn set(self, key: &str, value: &str) -> Result<Self> {
        Ok(match key {
            "table" => self.table(value),
            "mode" => self.mode(Mode::parse(value)?),
            "tls" => self.tls(Tls::parse(value)?),
            "ca" => Self { ca: Some(value.into()), ..self },
            "timeout" => self.timeout(query::duration(key, value, "500ms, 10s, 1m")?),
            _ => return Err(query::unknown(key, KNOWN)),
        })
    }

    /// Everything that can be known to be wrong without asking anybody.
    fn check(&self) -> Result<Table> {
        let outlandish = |c: char| c.is_whitespace() || c.is_control() || "/?#@,[]\\".contains(c);
        if self.host.is_empty() || self.host.contains(outlandish) || self.port == 0 {
            return Err(refuse(
                "a MySQL URL names one host, and a port from 1: `mysql://HOST:PORT/DATABASE`",
            ));
        }
        let length = self.database.chars().count();
        if length == 0 || length > LONGEST_DATABASE || self.database.contains('\0') {
            return Err(refuse(
                "a MySQL URL names a database, of up to 64 characters: `mysql://HOST/DATABASE`",
            ));
        }
        if self.timeout < Duration::from_millis(1) || self.timeout > MAX_TIMEOUT {
            return Err(refuse(format!("timeout {:?} cannot be: at least 1ms, at most a day", self.timeout)));
        }
        if self.ca.is_some() && self.tls == Tls::Off {
            return Err(refuse("ca=FILE is for TLS: write tls=on too"));
        }
        Table::new(&self.table)
    }

    /// What a store is opened with.
    pub(super) fn database(&self) -> Result<Database> {
        let table = self.check()?;
        // Nothing that the store does leaves anything behind in a session.
        let mut options = self.driver(false);
        if self.mode != Mode::ReadOnly {
            // Each connection may lead to another server than the last.
            options = options.after_connect(|connection| {
                let durable = async { must_be_durable(connection).await.map_err(carried) };
                durable.boxed()
            });
        }
        let place = format!("{}:{}", bracketed(&self.host), self.port);
        Ok(Database { pool: Pool::new(options), table, timeout: self.timeout, mode: self.mode, place })
    }

    fn driver(&self, reset: bool) -> OptsBuilder {
        let locks = (self.timeout.as_secs() / 2).max(1);
        let settings =
            format!("SET autocommit = 1, innodb_lock_wait_timeout = {locks}, lock_wait_timeout = {locks}");
        let constraints = PoolConstraints::new(1, CONNECTIONS).expect("1 is less than 10");
        let pool = PoolOpts::default()
            .with_constraints(constraints)
            .with_inactive_connection_ttl(IDLE)
            .with_reset_connection(reset);
        OptsBuilder::from_opts(Opts::default())
            .ip_or_hostname(&self.host)
            .tcp_port(self.port)
            .user(self.user.clone())
            .pass(self.password.clone())
            .db_name(Some(self.database.clone()))
            // The driver would go around the port that was named, by the server's socket.
            .prefer_socket(false)
            .client_found_rows(false)
            .stmt_cache_size(0)
            .tcp_keepalive(Some(IDLE))
            .setup(vec![settings])
            .pool_opts(pool)
            .ssl_opts(self.ssl())
    }

    fn ssl(&self) -> Option<SslOpts> {
        if self.tls == Tls::Off {
            return None;
        }
        // The driver takes the process' default, and where there is none and two to choose from, as other stores bring
        // with them, it panics.
        if CryptoProvider::get_default().is_none() {
            let _ = aws_lc_rs::default_provider().install_default();
        }
        let options = SslOpts::default();
        Some(match &self.ca {
            Some(file) => {
                options.with_root_certs(vec![file.clone().into()]).with_disable_built_in_roots(true)
            }
            None => options,
        })
    }
}

/// An error that passes through the driver and comes out as it was.
fn carried(fault: Fault) -> Mysql {
    match fault {
        Fault::Driver(error) => error,
        other => Mysql::Other(Box::new(failed(other, Asked::Connect))),
    }
}

impl Target for MysqlOptions {
    fn scheme(&self) -> &'static str {
        "mysql"
    }

    fn existing(&self) -> Arc<dyn Target> {
        Arc::new(self.clone().mode(self.mode.existing()))
    }

    fn connect(&self) -> StoreFuture<'_, Result<Arc<dyn Store>>> {
        Box::pin(async { Ok(Arc::new(MysqlStore::open_with(self.clone()).await?) as Arc<dyn Store>) })
    }
}

/// Reads what [`Display`](fmt::Display) prints, a URL; but for the password.
impl FromStr for MysqlOptions {
    type Err = Error;

    fn from_str(url: &str) -> Result<Self> {
        Self::parse(url)
    }
}

impl fmt::Display for MysqlOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("mysql://")?;
        if let Some(user) = &self.user {
            let hidden = if self.password.is_some() { format!(":{HIDDEN}") } else { String::new() };
            write!(f, "{}{hidden}@", encode(user))?;
        }
        f.write_str(&bracketed(&self.host))?;
        if self.port != PORT {
            write!(f, ":{}", self.port)?;
        }
        let options = Printed::default()
            .differing("table", self.table.as_str(), DEFAULT_TABLE)
            .differing("mode", self.mode.as_str(), Mode::default().as_str())
            .differing("tls", self.tls.as_str(), Tls::default().as_str())
            .given("ca", self.ca.as_ref().map(|file| file.display()))
            .duration("timeout", self.timeout, DEFAULT_TIMEOUT);
        write!(f, "/{}{options}", encode(&self.database))
    }
}

/// As it is printed.
impl fmt::Debug for MysqlOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MysqlOptions").field(&self.to_string()).finish()
    }
}

/// The host, without the brackets of an IPv6 address, and the port. Neither is printed where it cannot be read: it could be the
/// middle of a password.
fn split_port(host: &str) -> Result<(&str, u16)> {
    let (host, port) = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, "")) => (address, None),
        Some((address, port)) => (address, Some(port.strip_prefix(':').unwrap_or("none"))),
        None => match host.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (host, None),
        },
    };
    let Some(port) = port else { return Ok((host, PORT)) };
    let number = port.bytes().all(|byte| byte.is_ascii_digit()).then(|| port.parse().ok()).flatten();
    number.map(|port| (host, port)).ok_or_else(|| {
        refuse(
            "what follows the host's colon is not a port; a user's password is followed by `@` and the host",
        )
    })
}

fn bracketed(host: &str) -> Cow<'_, str> {
    if host.contains(':') { format!("[{host}]").into() } else { host.into() }
}

fn decode(text: &str, what: &str) -> Result<String> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded
        .map(Cow::into_owned)
        .map_err(|_| refuse(format!("{what} is not UTF-8 once it is percent-decoded")))
}

fn encode(text: &str) -> impl fmt::Display + '_ {
    static ESCAPED: &percent_encoding::AsciiSet =
        &NON_ALPHANUMERIC.remove(b'_').remove(b'-').remove(b'.').remove(b'~');
    utf8_percent_encode(text, ESCAPED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use proptest::prelude::*;

    #[test]
    fn every_option_is_read() {
        let url = "MariaDB://a%3Ab:p%40s%3As@h.example:13306/my%20ids?table=t_1&mode=rw&tls=on&ca=/etc/ca.pem&timeout=250ms";
        let expected = MysqlOptions::new("h.example", "my ids")
            .port(13306)
            .credentials("a:b", "p@s:s")
            .table("t_1")
            .mode(Mode::ReadWrite)
            .ca("/etc/ca.pem")
            .timeout(Duration::from_millis(250));
        let options = MysqlOptions::parse(url).unwrap();
        assert!(options == expected && options.password == expected.password, "{options}");
        let six = MysqlOptions::parse("mysql://root@[::1]/ids").unwrap();
        assert_eq!((six.host.as_str(), six.port, six.password.as_deref()), ("::1", 3306, None));
        assert_eq!(MysqlOptions::parse("mysql://[::1]:7/ids").unwrap().to_string(), "mysql://[::1]:7/ids");
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_remedy() {
        for (url, remedy) in [
            ("mysql:localhost/ids", "two slashes"),
            ("postgres://h/ids", "mysql://"),
            ("mysql://", "one host"),
            ("mysql:///ids", "one host"),
            ("mysql://h", "names a database"),
            ("mysql://h/", "names a database"),
            ("mysql://a,b/ids", "one host"),
            ("mysql://h:x/ids", "not a port"),
            ("mysql://h:70000/ids", "not a port"),
            ("mysql://h:+1/ids", "not a port"),
            ("mysql://h:0/ids", "port from 1"),
            ("mysql://[::1]x/ids", "not a port"),
            ("mysql://h/%ff", "UTF-8"),
            ("mysql://h/ids?tabel=a", "table=NAME, mode=ro|rw|rwc"),
            ("mysql://h/ids?table=a%60b", "cannot be the table"),
            ("mysql://h/ids?table=1a", "cannot be the table"),
            ("mysql://h/ids?mode=rwx", "rwc (may create)"),
            ("mysql://h/ids?tls=maybe", "on and off"),
            ("mysql://h/ids?ca=x", "tls=on"),
            ("mysql://h/ids?timeout=5", "500ms, 10s, 1m"),
            ("mysql://h/ids?timeout=0s", "at least 1ms"),
            ("mysql://h/ids?timeout=1441m", "at most a day"),
            ("mysql://h/ids?mode=rw&mode=rw", "twice"),
            ("mysql://h/ids?x=a@b", "%40"),
        ] {
            let error = MysqlOptions::parse(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{url}: {error}");
            assert!(error.to_string().contains(remedy), "{url}: {error}");
        }
    }

    #[test]
    fn passwords_are_never_printed() {
        for url in [
            "mysql://app:hunter2@h/ids",
            "mysql://app:hunter2@x@h/ids",
            "mysql://app:x@hunter2@h/ids",
            "mysql://app:hunter2/x@h/ids",
            "mysql://app:x/hunter2@h/ids",
            "mysql://app:x?hunter2@h/ids",
            "mysql://app:x/y?hunter2@h/ids",
            "mysql://app:hunter2:y@h:port/ids",
            "mysql://app:hunter2@h/ids?nonsense=1",
            "mysql://app:hunter2@h/ids?timeout=1",
            "mysql://app:hunter2@/ids",
            "mysql://app:hunter2@a,b/ids",
            "mysql://app:hunter2%ff@h/ids",
            "mysql://app:hunter2",
            "mysql:app:hunter2@h/ids",
        ] {
            let shown = match MysqlOptions::parse(url) {
                Ok(options) => {
                    let database = options.database().unwrap();
                    format!("{options} {options:?} {database:?}")
                }
                Err(error) => format!("{error} {error:?}"),
            };
            assert!(!shown.contains("hunter2"), "{url}: {shown}");
        }
    }

    proptest! {
        #[test]
        fn display_reads_back(
            host in "[a-z0-9.]{1,12}", port in 1..=u16::MAX, user in proptest::option::of("\\PC{0,9}"),
            database in "\\PC{1,20}", table in "[A-Za-z_][A-Za-z0-9_]{0,63}", millis in 1..=86_400_000_u64, tls: bool,
            ca in proptest::option::of("\\PC{1,9}"),
        ) {
            let mut options =
                MysqlOptions::new(host, database).port(port).table(table).timeout(Duration::from_millis(millis));
            options.user = user;
            if tls { options = options.tls(Tls::On) }
            if let Some(ca) = ca { options = options.ca(ca) }
            let url = options.to_string();
            prop_assert_eq!(MysqlOptions::parse(&url).unwrap(), options, "{}", url);
        }

        #[test]
        fn nothing_panics(rest in prop_oneof!["\\PC{0,40}", "[a-z/%?&=0-9:@,\\[\\]]{0,30}"]) {
            let _ = MysqlOptions::parse(&format!("mysql://{rest}"));
        }
    }
}
