//! The driver's configuration, and the sessions, as the options want them.

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

/// After how long without a word the system asks whether the server is still there.
const KEEPALIVE: Duration = Duration::from_secs(30);

impl PostgresOptions {
    pub(super) fn checked_table(&self) -> Result<Table> {
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
    pub(super) fn config(&self) -> Result<Config> {
        let url = self.with_login(&self.authority.revealed());
        let mut config = Config::from_str(&url).map_err(|_| self.unreadable())?;
        if config.get_hosts().is_empty() {
            return Err(self.unreadable());
        }
        config.ssl_mode(self.ssl_mode.driver()).application_name(&self.application_name);
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
            let message = "the URL says sequences=native: open it with `NativeSequences` or `store::connect`";
            return Err(refuse(message));
        }
        let table = self.checked_table()?;
        PostgresStore::over(self.sessions()?, table, self.mode, self.failover).await
    }
}
