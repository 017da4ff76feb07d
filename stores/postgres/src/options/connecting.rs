//! Builds the driver's configuration and the sessions from the options.

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use idmill::{Error, Operation, Result};
use idmill_kit::refuse;
use idmill_sql::postgres::Table;
use tokio_postgres::config::{ChannelBinding, Host, TargetSessionAttrs};
use tokio_postgres::{Client, Config};

use super::{Binding, PostgresOptions, SslMode, Storage, TargetSession};
use crate::PostgresStore;
use crate::session::{Sessions, Source, client};
use crate::tls::connector;

/// The host of a URL without one, as in libpq: the directory of the server's socket on this machine.
const LOCAL: &str = if cfg!(unix) { "/var/run/postgresql" } else { "localhost" };
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
            config.host(LOCAL);
        }
        config.ssl_mode(self.ssl_mode.driver()).application_name(&self.application_name);
        // The timeout applies to each host, so divide it.
        let hosts = u32::try_from(config.get_hosts().len()).unwrap_or(u32::MAX);
        let most = self.timeout / 2 / hosts.max(1);
        let own = self.connect_timeout.filter(|seconds| *seconds > 0).map(Duration::from_secs);
        config.connect_timeout(own.map_or(most, |own| own.min(most)));
        config.keepalives_idle(KEEPALIVE).tcp_user_timeout(self.timeout);
        if self.session == TargetSession::ReadWrite {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        config.channel_binding(match self.channel_binding {
            Binding::Disable => ChannelBinding::Disable,
            Binding::Prefer => ChannelBinding::Prefer,
            Binding::Require => ChannelBinding::Require,
        });
        if let Some(options) = &self.server_options {
            config.options(options);
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
        self.sessions_of(self.check()?)
    }

    /// Returns sessions with this configuration, whose `ssl_mode` is only made stricter.
    pub(crate) fn sessions_of(&self, mut config: Config) -> Result<Sessions> {
        if matches!(self.ssl_mode, SslMode::Require | SslMode::VerifyFull) {
            config.ssl_mode(self.ssl_mode.driver());
        }
        let identity = [self.ssl_cert.as_deref(), self.ssl_key.as_deref()];
        let tls = connector(self.ssl_mode, self.ssl_root.as_deref(), identity)?;
        let (place, keeping) = (Self::servers(&config), Arc::new(AtomicBool::new(true)));
        let source = Source::Connect { config: Box::new(config), tls, place, keeping };
        Ok(Sessions::new(source, self.timeout, self.keeps))
    }

    pub(crate) async fn open(&self) -> Result<PostgresStore> {
        self.open_over(self.sessions()).await
    }

    pub(crate) async fn open_over(&self, sessions: Result<Sessions>) -> Result<PostgresStore> {
        let opening = async {
            self.check_options()?;
            if self.sequences == Storage::Native {
                let message =
                    "the options have sequences=native; open them with `NativeSequences::open` or `connect`";
                return Err(refuse(message));
            }
            PostgresStore::over(sessions?, self.checked_table()?, self.opening()).await
        };
        opening.await.map_err(|error| error.during(Operation::Connect))
    }
}
