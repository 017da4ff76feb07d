//! Builds the driver's options and connections from the options.

use std::time::Duration;

use futures_util::{FutureExt, TryFutureExt};
use idmill::Result;
use idmill_kit::{Address, Mode};
use idmill_sql::mysql::{Table, must_be_durable, settings};
use mysql_async::{Opts, OptsBuilder, Pool, PoolConstraints, PoolOpts, SslOpts};
use rustls::crypto::{CryptoProvider, aws_lc_rs};

use super::MysqlOptions;
use crate::convert::Carried;
use crate::database::{Connections, Database};
use crate::session::Bare;

/// The maximum number of connections, and their maximum idle time.
const CONNECTIONS: usize = 10;
const IDLE: Duration = Duration::from_secs(60);
/// The size of a connection's statement cache. One statement is prepared.
const KEPT: usize = 4;

impl MysqlOptions {
    /// Creates a pool of connections to the same server and database, for the caller's own
    /// transactions. Does not connect yet.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) if an option is invalid.
    pub fn pool(&self) -> Result<Pool> {
        let (address, _) = self.check()?;
        Ok(Pool::new(self.driver(&address, true)))
    }

    /// Returns the database and the table that a store is opened with.
    pub(crate) fn open_database(&self) -> Result<(Database, Table)> {
        let (address, table) = self.check()?;
        // No reset between uses: the store leaves only prepared statements in a session.
        let mut options = self.driver(&address, false);
        if self.mode != Mode::ReadOnly {
            // Each connection may reach a different server.
            options = options.after_connect(|connection| {
                let durable = async { must_be_durable(&mut Bare(connection)).await };
                durable.map_err(Carried::by_driver).boxed()
            });
        }
        let connections = Connections::own(options.into());
        Ok((Database { connections, timeout: self.timeout, place: address.to_string() }, table))
    }

    fn driver(&self, address: &Address, reset: bool) -> OptsBuilder {
        // No minimum: a firewall may silently drop a connection that is idle for a long time.
        let constraints = PoolConstraints::new(0, CONNECTIONS).expect("0 is less than 10");
        let pool = PoolOpts::default()
            .with_constraints(constraints)
            .with_inactive_connection_ttl(IDLE)
            .with_reset_connection(reset);
        OptsBuilder::from_opts(Opts::default())
            .ip_or_hostname(address.host())
            .tcp_port(address.port())
            .user(self.authority.user.clone())
            .pass(self.authority.password.clone())
            .db_name(Some(self.database.clone()))
            // The driver would otherwise bypass the given port and use the server's socket.
            .prefer_socket(false)
            .client_found_rows(false)
            .stmt_cache_size(if reset { 0 } else { KEPT })
            .tcp_keepalive(Some(IDLE))
            .setup(vec![settings(self.timeout)])
            .pool_opts(pool)
            .ssl_opts(self.ssl())
    }

    fn ssl(&self) -> Option<SslOpts> {
        if !self.tls.is_on() {
            return None;
        }
        // The driver uses the process default. If no default is set, and other stores link a second provider,
        // the driver panics.
        if CryptoProvider::get_default().is_none() {
            let _ = aws_lc_rs::default_provider().install_default();
        }
        let options = SslOpts::default();
        Some(match &self.tls.ca {
            Some(file) => {
                options.with_root_certs(vec![file.clone().into()]).with_disable_built_in_roots(true)
            }
            None => options,
        })
    }
}
