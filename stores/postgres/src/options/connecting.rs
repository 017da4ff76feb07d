//! Builds the driver's configuration and the sessions from the options.

use std::str::FromStr;
use std::time::Duration;

use idmill::{Error, Operation, Result};
use idmill_kit::refuse;
use idmill_sql::postgres::Table;
use tokio_postgres::config::{Host, TargetSessionAttrs};
use tokio_postgres::{Client, Config};

use super::{PostgresOptions, Sequences, Session};
use crate::PostgresStore;
use crate::session::{Sessions, client, connecting};
use crate::tls::connector;

/// The idle time before the first TCP keepalive probe.
const KEEPALIVE: Duration = Duration::from_secs(30);

impl PostgresOptions {
    pub(super) fn checked_table(&self) -> Result<Table> {
        Table::new(self.schema.as_deref(), &self.table)
    }

    /// Connects a client for the caller's transactions, in the same way as the store. Drop the
    /// client to close it.
    ///
    /// # Errors
    /// The errors of [`PostgresStore::open_with`], except those about the table.
    pub async fn client(&self) -> Result<Client> {
        client(&self.sessions()?).await.map_err(|error| error.during(Operation::Connect))
    }

    /// Builds the driver's configuration.
    pub(super) fn config(&self) -> Result<Config> {
        let url = self.with_login(&self.authority.revealed());
        let mut config = Config::from_str(&url).map_err(|_| self.unreadable())?;
        if config.get_hosts().is_empty() {
            return Err(self.unreadable());
        }
        config.ssl_mode(self.ssl_mode.driver()).application_name(&self.application_name);
        // The timeout applies to each host, so divide it.
        let hosts = u32::try_from(config.get_hosts().len()).unwrap_or(u32::MAX);
        config.connect_timeout(self.timeout / 2 / hosts.max(1));
        config.keepalives_idle(KEEPALIVE).tcp_user_timeout(self.timeout);
        if self.session == Session::ReadWrite {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        Ok(config)
    }

    /// Omits the driver's message, which may contain a secret.
    fn unreadable(&self) -> Error {
        refuse(format!(
            "`{self}` is invalid; write `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, with special \
             characters percent-encoded"
        ))
    }

    /// The hosts and ports, for messages.
    pub(crate) fn servers(config: &Config) -> String {
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

    pub(crate) fn sessions(&self) -> Result<Sessions> {
        let config = self.check()?;
        let tls = connector(self.ssl_mode, self.ssl_root.as_deref())?;
        let place = Self::servers(&config);
        Ok(connecting(config, tls, place, self.timeout, self.keeps))
    }

    pub(crate) async fn open(&self) -> Result<PostgresStore> {
        if self.sequences == Sequences::Native {
            let message = "the URL has sequences=native; open it with `NativeSequences::open` or `connect`";
            return Err(refuse(message));
        }
        let table = self.checked_table()?;
        PostgresStore::over(self.sessions()?, table, self.mode, self.failover).await
    }
}
