//! The location of the PostgreSQL table or sequences, and how to reach it.

mod url;

use std::str::FromStr;
use std::time::Duration;

use idmill::{Error, Operation, Result};
use idmill_kit::Mode;
use idmill_kit::history::Failover;
use idmill_kit::options::Word;
use idmill_kit::refuse;
use idmill_sql::postgres::native::Values;
use idmill_sql::postgres::{Keeps, Table};
use tokio_postgres::config::{Host, TargetSessionAttrs};
use tokio_postgres::{Client, Config};

use super::PostgresStore;
use super::session::{Sessions, client, connecting};
use super::tls::{SslMode, connector};
use url::OPTIONS;

/// After how long without a word the system asks whether the server is still there.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// What holds the sequences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Sequences {
    /// `table`: rows of idmill's own table, see [`PostgresStore`].
    #[default]
    Table,
    /// `native`: PostgreSQL's own `SEQUENCE`s, see [`NativeSequences`](super::NativeSequences).
    Native,
}

impl Word for Sequences {
    const WORDS: &'static [(Self, &'static str, &'static str)] = &[
        (Self::Table, "table", "rows of idmill's own table"),
        (Self::Native, "native", "PostgreSQL's own sequences"),
    ];
}

/// Which of several hosts will do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Session {
    #[default]
    Any,
    ReadWrite,
}

impl Word for Session {
    const WORDS: &'static [(Self, &'static str, &'static str)] =
        &[(Self::Any, "any", ""), (Self::ReadWrite, "read-write", "one that accepts writes")];
}

/// The location of sequences in a PostgreSQL database, and how to reach it. Options do not connect.
///
/// As a URL: `postgres://USER:PASSWORD@HOST:PORT/DATABASE?table=NAME&sequences=native`; `postgresql:` is the
/// same. The other options are `schema=NAME`, `increment=N`, `values=first|last`, `mode=ro|rw|rwc`, `durability=disk|trust`,
/// `failover=refuse|allow|skip:N`, `timeout=10s`, `sslmode=verify-full`, `sslrootcert=FILE`,
/// `target_session_attrs=read-write` and `application_name=NAME`. Commas separate several hosts. The
/// directory of a Unix socket is a percent-encoded host, as in
/// `postgres://app@%2Fvar%2Frun%2Fpostgresql/shop`.
///
/// Printing hides the password.
///
/// ```
/// use idmill_postgres::PostgresOptions;
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
    pub(super) increment: u64,
    pub(super) values: Option<Values>,
    pub(super) mode: Mode,
    keeps: Keeps,
    failover: Option<Failover>,
    timeout: Duration,
    ssl_mode: SslMode,
    ssl_root: Option<String>,
    application: String,
    session: Session,
}

impl PostgresOptions {
    /// The table to keep sequences in: up to 63 ASCII letters, digits and `_`. Default `idmill_sequences`.
    /// Each table is its own namespace.
    #[must_use]
    pub fn table(mut self, table: impl Into<String>) -> Self {
        self.table = table.into();
        self
    }

    /// The table that sequences are kept in.
    pub fn table_name(&self) -> &str {
        &self.table
    }

    /// The schema of the table or the sequences. By default they are found along the connection's
    /// `search_path`, and missing ones are created in its first schema.
    #[must_use]
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = Some(schema.into());
        self
    }

    /// The schema, if one was named.
    pub fn schema_name(&self) -> Option<&str> {
        self.schema.as_deref()
    }

    /// What holds the sequences. Default [`Sequences::Table`].
    #[must_use]
    pub fn sequences(mut self, sequences: Sequences) -> Self {
        self.sequences = sequences;
        self
    }

    /// The `INCREMENT BY` of the native sequences that idmill creates: how many ids a `nextval` takes. 1 to
    /// 2^31, default 1. Existing sequences keep theirs.
    #[must_use]
    pub fn increment(mut self, increment: u64) -> Self {
        self.increment = increment;
        self
    }

    /// Which ids a value of a native sequence stands for, where its increment is above 1. By default this is
    /// [`Values::Last`] for sequences that idmill creates, and others are refused. A sequence of idmill's keeps
    /// what it was created with.
    #[must_use]
    pub fn values(mut self, values: Values) -> Self {
        self.values = Some(values);
        self
    }

    /// What opening may do. Default [`Mode::Create`].
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// What ensures that a server crash loses no reservation. Default [`Keeps::Disk`].
    #[must_use]
    pub fn keeps(mut self, keeps: Keeps) -> Self {
        self.keeps = keeps;
        self
    }

    /// What happens to a sequence that was last written on another cluster or timeline, whose last writes may
    /// be missing here. By default it is refused, if the server tells which it is. Native sequences do not
    /// have it.
    #[must_use]
    pub fn failover(mut self, failover: Failover) -> Self {
        self.failover = Some(failover);
        self
    }

    /// How long one statement may take before its outcome is unknown, 1 ms to a day; default 10 s. Waiting
    /// for a lock, or for a connection, is limited to half of that.
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
        OPTIONS.check(self)?;
        if self.ssl_root.is_some() && self.ssl_mode != SslMode::VerifyFull {
            return Err(refuse("sslrootcert= is looked at with sslmode=verify-full only; add that"));
        }
        if self.failover.is_some() && self.sequences == Sequences::Native {
            return Err(refuse(
                "failover= is for sequences in idmill's table: a native sequence has no row that says which server drew \
                 last; leave it out, and put a guard in front: guard=URL",
            ));
        }
        self.config()
    }

    fn checked_table(&self) -> Result<Table> {
        Table::new(self.schema.as_deref(), &self.table)
    }

    /// Connects a client for the caller's transactions, as the store would connect. Dropping the client
    /// closes it.
    ///
    /// # Errors
    /// Those of [`PostgresStore::open_with`], except those about the table.
    pub async fn client(&self) -> Result<Client> {
        client(&self.sessions()?).await.map_err(|error| error.during(Operation::Connect))
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
        if self.session == Session::ReadWrite {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        Ok(config)
    }

    /// The driver's complaint, which may cite a secret, is left out.
    fn unreadable(&self) -> Error {
        refuse(format!(
            "`{self}` cannot be read: write `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, with special \
             characters in user name and password percent-encoded"
        ))
    }

    /// Who and where, without how: for messages.
    pub(super) fn place(config: &Config) -> String {
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

    pub(super) fn sessions(&self) -> Result<Sessions> {
        let config = self.check()?;
        let tls = connector(self.ssl_mode, self.ssl_root.as_deref())?;
        let place = Self::place(&config);
        Ok(connecting(config, tls, place, self.timeout, self.keeps))
    }

    pub(super) async fn open(&self) -> Result<PostgresStore> {
        if self.sequences == Sequences::Native {
            let message = "the URL says sequences=native: open it with `NativeSequences` or `store::connect`";
            return Err(refuse(message));
        }
        let table = self.checked_table()?;
        PostgresStore::over(self.sessions()?, table, self.mode, self.failover).await
    }
}
