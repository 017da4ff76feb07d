//! Where the PostgreSQL table or sequences are, and how they are reached.

mod url;

use std::str::FromStr;
use std::time::Duration;

use tokio_postgres::config::{Host, SslMode as DriverSslMode, TargetSessionAttrs};
use tokio_postgres::{Client, Config};

use super::PostgresStore;
use super::durable::Keeps;
use super::native::{self, NativeSequences};
use super::schema::{Table, check_name};
use super::session::Sessions;
use super::tls::connector;
use crate::error::{Error, Operation, Result};
use crate::store::Mode;
use crate::store::url::query::refuse;

const MAX_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);
/// After how long without a word the system asks whether the server is still there.
const KEEPALIVE: Duration = Duration::from_secs(30);
const APPLICATION: &str = "idmill";

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
    pub(super) const ALL: [Self; 4] = [Self::Disable, Self::Prefer, Self::Require, Self::VerifyFull];

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
/// `postgres://USER:PASSWORD@HOST:PORT/DATABASE?table=NAME&schema=NAME&sequences=native&increment=N&mode=ro|rw|rwc&durability=disk|trust&timeout=10s&sslmode=verify-full`;
/// `postgresql:` is the same. Several hosts are separated by commas; a directory with a Unix socket is a host
/// that is percent-encoded, as in `postgres://app@%2Fvar%2Frun%2Fpostgresql/shop`.
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
    keeps: Keeps,
    timeout: Duration,
    ssl_mode: SslMode,
    ssl_root: Option<String>,
    application: String,
    writable: bool,
}

impl PostgresOptions {
    /// The table to keep sequences in: up to 63 ASCII letters, digits and `_`. Default `idmill_sequences`.
    /// Tables are namespaces: a name in one has nothing to do with the same name in another.
    #[must_use]
    pub fn table(mut self, table: impl Into<String>) -> Self {
        self.table = table.into();
        self
    }

    /// The table that sequences are kept in.
    pub fn table_name(&self) -> &str {
        &self.table
    }

    /// The schema of the table or of the sequences. By default they are found along the connection's
    /// `search_path`, and created in its first schema where there are none.
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

    /// The `INCREMENT BY` of native sequences that are created: how many ids a `nextval` takes. 1 to 2^31;
    /// default 1. Those that exist keep their own.
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

    /// What makes sure that a crash of the server takes nothing back. Default [`Keeps::Disk`].
    #[must_use]
    pub fn keeps(mut self, keeps: Keeps) -> Self {
        self.keeps = keeps;
        self
    }

    /// How long one statement may take before its outcome is unknown, 1 ms to a day; default 10 s. A
    /// statement waits for locks, and a connection is waited for, half of that.
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

    /// A client of the caller's own, for its transactions: connected as the store would be. It
    /// is closed when it is dropped.
    ///
    /// # Errors
    /// Those of [`PostgresStore::open_with`], but for those of the table.
    pub async fn client(&self) -> Result<Client> {
        self.sessions()?.client().await.map_err(|error| error.during(Operation::Connect))
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
        config.keepalives_idle(KEEPALIVE).tcp_user_timeout(self.timeout);
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

    fn sessions(&self) -> Result<Sessions> {
        let config = self.check()?;
        let tls = connector(self.ssl_mode, self.ssl_root.as_deref())?;
        let place = Self::place(&config);
        Ok(Sessions::connect(config, tls, place, self.timeout, self.keeps))
    }

    pub(super) async fn open(&self) -> Result<PostgresStore> {
        if self.sequences == Sequences::Native {
            let message = "the URL says sequences=native: open it with `NativeSequences` or `store::connect`";
            return Err(refuse(message));
        }
        let table = self.checked_table()?;
        PostgresStore::over(self.sessions()?, table, self.mode).await
    }

    pub(super) async fn open_native(&self) -> Result<NativeSequences> {
        NativeSequences::over(self.sessions()?, self.schema.as_deref(), self.increment, self.mode).await
    }
}
