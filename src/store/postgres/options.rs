//! Where the PostgreSQL table or sequences are, and how a URL says so.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::config::{Host, SslMode as DriverSslMode, TargetSessionAttrs};
use tokio_postgres::{Client, Config};

use super::native::{self, NativeSequences};
use super::schema::{DEFAULT_TABLE, Table, check_name};
use super::session::Sessions;
use super::tls::connector;
use super::{DEFAULT_TIMEOUT, PostgresStore};
use crate::error::{Error, Operation, Result};
use crate::store::url::Target;
use crate::store::url::query::{self, Printed, refuse};
use crate::store::{Mode, Store, StoreFuture};

const MAX_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);
const KNOWN: &str = "table=NAME, schema=NAME, sequences=table|native, increment=N, mode=ro|rw|rwc, timeout=10s, \
                     sslmode=disable|prefer|require|verify-full, sslrootcert=FILE, application_name=NAME, \
                     target_session_attrs=any|read-write";
/// What stands for a password where a URL is printed.
const HIDDEN: &str = "***";
const APPLICATION: &str = "idmill";
/// Statements that run at the same time; more wait for their turn. Batches need one.
const CONNECTIONS: usize = 4;

/// Whether the connection is encrypted, and to whom; PostgreSQL's own words for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SslMode {
    /// In the clear.
    Disable,
    /// Encrypted if the server can; its certificate is not looked at.
    #[default]
    Prefer,
    /// Encrypted or not at all; its certificate is not looked at.
    Require,
    /// Encrypted to a server whose certificate is signed by a root that is trusted, for the host's name.
    VerifyFull,
}

impl SslMode {
    const ALL: [Self; 4] = [Self::Disable, Self::Prefer, Self::Require, Self::VerifyFull];

    fn parse(value: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == value).ok_or_else(|| {
            refuse(format!(
                "sslmode={value:?} is unknown; there are disable, prefer, require (encrypted, but to whom is not checked) and \
                 verify-full"
            ))
        })
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Disable => "disable",
            Self::Prefer => "prefer",
            Self::Require => "require",
            Self::VerifyFull => "verify-full",
        }
    }

    fn driver(self) -> DriverSslMode {
        match self {
            Self::Disable => DriverSslMode::Disable,
            Self::Prefer => DriverSslMode::Prefer,
            Self::Require | Self::VerifyFull => DriverSslMode::Require,
        }
    }
}

/// In what sequences are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Sequences {
    /// `table`: rows of a table of idmill's own, [`PostgresStore`].
    #[default]
    Table,
    /// `native`: PostgreSQL's own `SEQUENCE`s, [`NativeSequences`].
    Native,
}

impl Sequences {
    fn parse(value: &str) -> Result<Self> {
        match value {
            "table" => Ok(Self::Table),
            "native" => Ok(Self::Native),
            _ => Err(refuse(format!(
                "sequences={value:?} is unknown; there are table (rows of idmill's own) and native (PostgreSQL's)"
            ))),
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Native => "native",
        }
    }
}

/// Where sequences are kept in a PostgreSQL database and how to reach it; not yet connected to.
///
/// As a URL:
/// `postgres://USER:PASSWORD@HOST:PORT/DATABASE?table=NAME&schema=NAME&sequences=native&increment=N&mode=ro|rw|rwc&timeout=10s&sslmode=verify-full`;
/// `postgresql:` is the same. Several hosts are separated by commas; a directory with a Unix socket is a host that is percent-encoded,
/// as in `postgres://app@%2Fvar%2Frun%2Fpostgresql/shop`.
///
/// Printing hides the password.
///
/// ```
/// use idmill::store::postgres::PostgresOptions;
///
/// let options: PostgresOptions = "postgres://app:secret@db1/shop?table=numbers".parse()?;
/// assert_eq!(options.to_string(), "postgres://app:***@db1/shop?table=numbers");
/// # Ok::<(), idmill::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresOptions {
    /// User, password and hosts: all between the slashes, as it was given.
    authority: String,
    /// As it was given, percent-encoded; may be empty.
    database: String,
    table: String,
    schema: Option<String>,
    sequences: Sequences,
    increment: u64,
    mode: Mode,
    timeout: Duration,
    ssl_mode: SslMode,
    ssl_root: Option<String>,
    application: String,
    writable: bool,
}

impl PostgresOptions {
    /// Reads a URL. Touches no network.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput), saying what is wrong with it; never with the password.
    pub fn parse(url: &str) -> Result<Self> {
        let known = url.split_once(':').filter(|(scheme, _)| {
            scheme.eq_ignore_ascii_case("postgres") || scheme.eq_ignore_ascii_case("postgresql")
        });
        known.map_or_else(
            || Err(refuse("a PostgreSQL URL begins with `postgres://`")),
            |(_, rest)| Self::parse_rest(rest),
        )
    }

    /// Reads what follows `postgres:` in a URL.
    pub(crate) fn parse_rest(rest: &str) -> Result<Self> {
        let Some(rest) = rest.strip_prefix("//") else {
            return Err(refuse("a PostgreSQL URL begins with two slashes: `postgres://HOST/DATABASE`"));
        };
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = place.split_once('/').unwrap_or((place, ""));
        // Before anything of it could be printed: what comes here may be the end of a password.
        if database.contains('@') || query.contains('@') || authority.matches('@').count() > 1 {
            return Err(refuse(
                "the URL has an `@` too many or after its hosts: write it as %40, and in user name and password also `/` as \
                 %2F, `?` as %3F and `:` as %3A",
            ));
        }
        let options = Self {
            authority: authority.to_owned(),
            database: database.to_owned(),
            table: DEFAULT_TABLE.to_owned(),
            schema: None,
            sequences: Sequences::default(),
            increment: 1,
            mode: Mode::default(),
            timeout: DEFAULT_TIMEOUT,
            ssl_mode: SslMode::default(),
            ssl_root: None,
            application: APPLICATION.to_owned(),
            writable: false,
        };
        let options = query::read(query, options, Self::set)?;
        options.check()?;
        Ok(options)
    }

    fn set(mut self, key: &str, value: &str) -> Result<Self> {
        match key {
            "table" => value.clone_into(&mut self.table),
            "schema" => self.schema = Some(value.to_owned()),
            "sequences" => self.sequences = Sequences::parse(value)?,
            "increment" => self.increment = native::parse_increment(value)?,
            "mode" => self.mode = Mode::parse(value)?,
            "timeout" => self.timeout = query::duration(key, value, "500ms, 10s, 1m")?,
            "sslmode" => self.ssl_mode = SslMode::parse(value)?,
            "sslrootcert" => self.ssl_root = Some(value.to_owned()),
            "application_name" => value.clone_into(&mut self.application),
            "target_session_attrs" => {
                self.writable = match value {
                    "any" => false,
                    "read-write" => true,
                    _ => {
                        let message =
                            format!("target_session_attrs={value:?} is unknown; there are any, read-write");
                        return Err(refuse(message));
                    }
                };
            }
            _ => return Err(query::unknown(key, KNOWN)),
        }
        Ok(self)
    }

    /// The table to keep sequences in: up to 63 ASCII letters, digits and `_`. Default `idmill_sequences`. Tables are namespaces: a name in
    /// one has nothing to do with the same name in another.
    #[must_use]
    pub fn table(mut self, table: impl Into<String>) -> Self {
        self.table = table.into();
        self
    }

    /// The table that sequences are kept in.
    pub fn table_name(&self) -> &str {
        &self.table
    }

    /// The schema of the table or of the sequences. Default: the connection's first.
    #[must_use]
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = Some(schema.into());
        self
    }

    /// The schema, where one was named.
    pub fn schema_name(&self) -> Option<&str> {
        self.schema.as_deref()
    }

    /// In what sequences are kept. Default [`Sequences::Table`].
    #[must_use]
    pub fn sequences(mut self, sequences: Sequences) -> Self {
        self.sequences = sequences;
        self
    }

    /// The `INCREMENT BY` of native sequences that are created: how many ids a `nextval` takes. 1 to 2^31; default 1. Those
    /// that exist keep their own.
    #[must_use]
    pub fn increment(mut self, increment: u64) -> Self {
        self.increment = increment;
        self
    }

    /// What opening may do. Default [`Mode::Create`].
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// How long one statement may take before its outcome is unknown, 1 ms to a day; default 10 s. A statement waits for locks, and a
    /// connection is waited for, half of that.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Whether and how the connection is encrypted. Default [`SslMode::Prefer`].
    #[must_use]
    pub fn ssl_mode(mut self, mode: SslMode) -> Self {
        self.ssl_mode = mode;
        self
    }

    /// Everything that can be known to be wrong without asking the network.
    fn check(&self) -> Result<Config> {
        self.checked_table()?;
        native::check_increment(self.increment)?;
        if self.timeout.is_zero() || self.timeout > MAX_TIMEOUT {
            return Err(refuse(format!("timeout={:?} must be at least 1ms and at most a day", self.timeout)));
        }
        if self.ssl_root.is_some() && self.ssl_mode != SslMode::VerifyFull {
            return Err(refuse("sslrootcert= is looked at with sslmode=verify-full only; add that"));
        }
        self.config()
    }

    fn checked_table(&self) -> Result<Table> {
        self.schema.as_deref().map_or(Ok(()), |schema| check_name("schema", schema))?;
        Table::new(self.schema.as_deref(), &self.table)
    }

    /// A client of the caller's own, for its transactions: connected as the store would be. It is closed when it is dropped.
    ///
    /// # Errors
    /// Those of [`PostgresStore::open_with`], but for those of the table.
    pub async fn client(&self) -> Result<Client> {
        self.sessions(1)?.client().await.map_err(|error| error.during(Operation::Connect))
    }

    /// As the driver wants it.
    fn config(&self) -> Result<Config> {
        let url = format!("postgres://{}/{}", self.authority, self.database);
        let mut config = Config::from_str(&url).map_err(|_| self.unreadable())?;
        if config.get_hosts().is_empty() {
            return Err(self.unreadable());
        }
        config.ssl_mode(self.ssl_mode.driver()).application_name(&self.application);
        // Of several hosts each has its share.
        let hosts = u32::try_from(config.get_hosts().len()).unwrap_or(u32::MAX);
        config.connect_timeout(self.timeout / 2 / hosts.max(1));
        if self.writable {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        Ok(config)
    }

    /// The driver's complaint, which may cite a secret, is left out.
    fn unreadable(&self) -> Error {
        refuse(format!(
            "`{self}` cannot be read: write `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, with what is special in user name \
             and password percent-encoded"
        ))
    }

    /// Who and where, without how: for messages.
    fn place(config: &Config) -> String {
        let hosts = config.get_hosts().iter().enumerate().map(|(place, host)| {
            let ports = config.get_ports();
            let port = ports.get(place).or(ports.first()).copied().unwrap_or(5432);
            match host {
                Host::Tcp(host) => format!("{host}:{port}"),
                #[cfg(unix)]
                Host::Unix(path) => format!("{}/.s.PGSQL.{port}", path.display()),
            }
        });
        hosts.collect::<Vec<_>>().join(",")
    }

    fn sessions(&self, most: usize) -> Result<Sessions> {
        let config = self.check()?;
        let tls = connector(self.ssl_mode, self.ssl_root.as_deref())?;
        let place = Self::place(&config);
        Ok(Sessions::connect(config, tls, place, self.timeout, most))
    }

    pub(super) async fn open(&self) -> Result<PostgresStore> {
        if self.sequences == Sequences::Native {
            let message = "the URL says sequences=native: open it with `NativeSequences` or `store::connect`";
            return Err(refuse(message));
        }
        let table = self.checked_table()?;
        PostgresStore::over(self.sessions(CONNECTIONS)?, table, self.mode).await
    }

    pub(super) async fn open_native(&self) -> Result<NativeSequences> {
        // One, so that the values that it draws grow.
        let sessions = self.sessions(1)?;
        NativeSequences::over(sessions, self.schema.as_deref(), self.increment, self.mode).await
    }
}

impl Target for PostgresOptions {
    fn scheme(&self) -> &'static str {
        "postgres"
    }

    fn existing(&self) -> Arc<dyn Target> {
        Arc::new(self.clone().mode(self.mode.existing()))
    }

    fn connect(&self) -> StoreFuture<'_, Result<Arc<dyn Store>>> {
        Box::pin(async {
            let during = |error: Error| error.during(Operation::Connect);
            Ok(match self.sequences {
                Sequences::Table => Arc::new(self.open().await.map_err(during)?) as Arc<dyn Store>,
                Sequences::Native => Arc::new(self.open_native().await.map_err(during)?) as Arc<dyn Store>,
            })
        })
    }
}

impl FromStr for PostgresOptions {
    type Err = Error;

    fn from_str(url: &str) -> Result<Self> {
        Self::parse(url)
    }
}

impl fmt::Display for PostgresOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let options = Printed::default()
            .differing("table", self.table.as_str(), DEFAULT_TABLE)
            .given("schema", self.schema.as_ref())
            .differing("sequences", self.sequences.as_str(), Sequences::default().as_str())
            .differing("increment", self.increment, 1)
            .differing("mode", self.mode.as_str(), Mode::default().as_str())
            .duration("timeout", self.timeout, DEFAULT_TIMEOUT)
            .differing("sslmode", self.ssl_mode.as_str(), SslMode::default().as_str())
            .given("sslrootcert", self.ssl_root.as_ref())
            .differing("application_name", self.application.as_str(), APPLICATION)
            .given("target_session_attrs", self.writable.then_some("read-write"));
        write!(f, "postgres://{}/{}{options}", without_password(&self.authority), self.database)
    }
}

/// As it is printed.
impl fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresOptions").field("url", &self.to_string()).finish_non_exhaustive()
    }
}

/// `user:***@hosts`.
fn without_password(authority: &str) -> String {
    let Some((credentials, hosts)) = authority.rsplit_once('@') else { return authority.to_owned() };
    match credentials.split_once(':') {
        Some((user, _)) => format!("{user}:{HIDDEN}@{hosts}"),
        None => authority.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use proptest::prelude::*;

    #[test]
    fn every_option_is_read_and_the_driver_gets_its_part() {
        let url = "postgresql://u:p%40ss@a:1,b:2/shop?table=t&schema=s&sequences=native&increment=50&mode=ro&timeout=250ms\
                   &sslmode=verify-full&sslrootcert=/x.pem&application_name=app&target_session_attrs=read-write";
        let options = PostgresOptions::parse(url).unwrap();
        let config = options.check().unwrap();
        assert_eq!((config.get_user(), config.get_password()), (Some("u"), Some(&b"p@ss"[..])));
        assert_eq!((config.get_ports(), config.get_dbname()), (&[1, 2][..], Some("shop")));
        assert_eq!(config.get_ssl_mode(), DriverSslMode::Require);
        assert_eq!(PostgresOptions::place(&config), "a:1,b:2");
        let printed = url.replace("postgresql", "postgres").replace("p%40ss", "***");
        assert_eq!(options.to_string(), printed);
        let short = PostgresOptions::parse("postgres://localhost").unwrap();
        assert_eq!(short.to_string(), "postgres://localhost/");
        let socket = PostgresOptions::parse("postgres://app@%2Frun%2Fpostgresql/shop").unwrap();
        assert_eq!(PostgresOptions::place(&socket.check().unwrap()), "/run/postgresql/.s.PGSQL.5432");
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_remedy() {
        for (url, remedy) in [
            ("postgres:localhost", "two slashes"),
            ("mysql://h/", "begins with `postgres://`"),
            ("postgres:///db", "USER:PASSWORD@HOST"),
            ("postgres://h:port/", "USER:PASSWORD@HOST"),
            ("postgres://h/?tabel=a", "table=NAME"),
            ("postgres://h/?table=a-b", "cannot be the table"),
            ("postgres://h/?schema=pg_catalog", "cannot be the schema"),
            ("postgres://h/?table=a&table=b", "twice"),
            ("postgres://h/?mode=rwx", "rwc (may create)"),
            ("postgres://h/?sequences=x", "native"),
            ("postgres://h/?increment=0", "write 1 to"),
            ("postgres://h/?timeout=0s", "at least 1ms"),
            ("postgres://h/?sslmode=verify-ca", "verify-full"),
            ("postgres://h/?sslrootcert=x", "sslmode=verify-full"),
            ("postgres://h/?target_session_attrs=x", "read-write"),
        ] {
            let error = PostgresOptions::parse(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{url}: {error}");
            assert!(error.to_string().contains(remedy), "{url}: {error}");
        }
    }

    #[test]
    fn passwords_are_never_printed() {
        for url in [
            "postgres://app:hunter2@h/",
            "postgres://app:hunter2@x@h/",
            "postgres://app:hunter2/x@h/",
            "postgres://app:x/hunter2@h/",
            "postgres://app:x?hunter2@h/",
            "postgres://app:hunter2:y@h:port/",
            "postgres://app:hunter2@h/?nonsense=1",
        ] {
            let shown = match PostgresOptions::parse(url) {
                Ok(options) => format!("{options} {options:?}"),
                Err(error) => format!("{error} {error:?}"),
            };
            assert!(!shown.contains("hunter2"), "{url}: {shown}");
        }
    }

    #[test]
    fn certificates_that_cannot_be_read_are_named() {
        let missing = connector(SslMode::VerifyFull, Some("/no/such.pem")).err().unwrap();
        assert!(missing.to_string().contains("/no/such.pem"), "{missing}");
        // Whatever providers other stores bring: none of these panics.
        for mode in SslMode::ALL.into_iter().filter(|mode| *mode != SslMode::VerifyFull) {
            assert!(connector(mode, None).is_ok());
        }
    }

    proptest! {
        #[test]
        fn nothing_panics_and_what_is_printed_reads_back(rest in "\\PC{0,40}|//[a-z0-9:@,%./]{1,20}(\\?[a-z=&0-9]{0,20})?") {
            if let Ok(options) = PostgresOptions::parse_rest(&rest) {
                let again = PostgresOptions::parse(&options.to_string());
                prop_assert!(again.is_ok_and(|again| again.to_string() == options.to_string()));
            }
        }
    }
}
