//! The location of a server, and how to reach it.

mod url;

use std::borrow::Cow;
use std::path::PathBuf;
use std::time::Duration;

use futures_util::{FutureExt, TryFutureExt};
use idmill::Result;
use idmill_kit::Mode;
use idmill_kit::history::Failover;
use idmill_kit::refuse;
use idmill_sql::mysql::{Table, must_be_durable, settings};
use mysql_async::{Opts, OptsBuilder, Pool, PoolConstraints, PoolOpts, SslOpts};
use rustls::crypto::{CryptoProvider, aws_lc_rs};

use super::Opening;
use super::convert::Carried;
use super::database::{Connections, Database};
use super::session::Bare;
use url::OPTIONS;

const PORT: u16 = 3306;
/// MySQL's own limit for names.
const LONGEST_DATABASE: usize = 64;
/// The most connections at a time, and how long one may be idle.
const CONNECTIONS: usize = 10;
const IDLE: Duration = Duration::from_secs(60);
/// How many statements a connection keeps prepared: there is one.
const KEPT: usize = 4;

/// The location of a MySQL or MariaDB server, and how to reach it. Options do not connect.
///
/// As a URL: `mysql://USER:PASSWORD@HOST:PORT/DATABASE?table=NAME&mode=ro|rw|rwc&timeout=10s`; `mariadb://`
/// means the same. The other options are `failover=refuse`, `tls=true` and `ca=FILE`. The user, the password
/// and the database are percent-encoded. Printing hides the password.
///
/// ```
/// use idmill_mysql::MysqlOptions;
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
    failover: Option<Failover>,
    tls: bool,
    ca: Option<PathBuf>,
    timeout: Duration,
}

impl MysqlOptions {
    /// This database on this host, with every option at its default.
    pub fn new(host: impl Into<String>, database: impl Into<String>) -> Self {
        let (table, tls, timeout) = Default::default();
        OPTIONS.with_defaults(Self {
            host: host.into(),
            port: PORT,
            user: None,
            password: None,
            database: database.into(),
            table,
            mode: Mode::default(),
            failover: None,
            tls,
            ca: None,
            timeout,
        })
    }

    /// The port. Default 3306.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// The user and password to log in with.
    #[must_use]
    pub fn credentials(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        (self.user, self.password) = (Some(user.into()), Some(password.into()));
        self
    }

    /// The table to keep sequences in: `[A-Za-z_][A-Za-z0-9_]{0,63}`. Default `idmill_sequences`. Each table
    /// is its own namespace.
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

    /// Whether the connection is encrypted. Default false: passwords are sent in a form that does not reveal
    /// them, and everything else in the clear. If true, the server's certificate must be for the named host,
    /// and signed by a well-known authority or [a given one](Self::ca).
    ///
    /// If the process has no default cryptography for `rustls` yet, connecting makes `aws-lc-rs` the default.
    #[must_use]
    pub fn tls(mut self, tls: bool) -> Self {
        self.tls = tls;
        self
    }

    /// A PEM file with the authorities to trust in place of the well-known ones. Turns [TLS](Self::tls) on.
    #[must_use]
    pub fn ca(mut self, file: impl Into<PathBuf>) -> Self {
        (self.ca, self.tls) = (Some(file.into()), true);
        self
    }

    /// What happens to a sequence that was last written by another server, whose last writes may be missing
    /// here. By default it is refused.
    #[must_use]
    pub fn failover(mut self, failover: Failover) -> Self {
        self.failover = Some(failover);
        self
    }

    /// How long one statement may take, and how long it may take to get a connection: 1 ms to a day. Default
    /// 10 s. The server stops waiting for a lock after half of it, in whole seconds, with an error.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The table that sequences are kept in.
    pub fn table_name(&self) -> &str {
        &self.table
    }

    /// A pool of connections to the same server and database, for the caller's own transactions. Does not
    /// connect yet.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) if an option is invalid.
    pub fn pool(&self) -> Result<Pool> {
        self.check()?;
        Ok(Pool::new(self.driver(true)))
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
        OPTIONS.check(self)?;
        if self.ca.is_some() && !self.tls {
            return Err(refuse("ca=FILE is for TLS: write tls=true too"));
        }
        Table::new(&self.table)
    }

    /// What a store is opened with.
    pub(super) fn database(&self) -> Result<(Database, Opening)> {
        let table = self.check()?;
        // The store leaves nothing in a session but a prepared statement.
        let mut options = self.driver(false);
        if self.mode != Mode::ReadOnly {
            // Each connection may lead to another server than the last.
            options = options.after_connect(|connection| {
                let durable = async { must_be_durable(&mut Bare(connection)).await };
                durable.map_err(Carried::by_driver).boxed()
            });
        }
        let place = format!("{}:{}", bracketed(&self.host), self.port);
        let connections = Connections::own(options.into());
        let opening = Opening { table, mode: self.mode, failover: self.failover };
        Ok((Database { connections, timeout: self.timeout, place }, opening))
    }

    fn driver(&self, reset: bool) -> OptsBuilder {
        // None is kept for ever: one that was idle for long may have been forgotten by a firewall in between.
        let constraints = PoolConstraints::new(0, CONNECTIONS).expect("0 is less than 10");
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
            .stmt_cache_size(if reset { 0 } else { KEPT })
            .tcp_keepalive(Some(IDLE))
            .setup(vec![settings(self.timeout)])
            .pool_opts(pool)
            .ssl_opts(self.ssl())
    }

    fn ssl(&self) -> Option<SslOpts> {
        if !self.tls {
            return None;
        }
        // The driver takes the process' default, and where there is none and two to choose from, as other
        // stores bring with them, it panics.
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

fn bracketed(host: &str) -> Cow<'_, str> {
    if host.contains(':') { format!("[{host}]").into() } else { host.into() }
}
