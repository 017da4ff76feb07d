//! The driver's connections, as the options want them.

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

/// The most connections at a time, and how long one may be idle.
const CONNECTIONS: usize = 10;
const IDLE: Duration = Duration::from_secs(60);
/// How many statements a connection keeps prepared: there is one.
const KEPT: usize = 4;

impl MysqlOptions {
    /// A pool of connections to the same server and database, for the caller's own transactions. Does not
    /// connect yet.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) if an option is invalid.
    pub fn pool(&self) -> Result<Pool> {
        let (address, _) = self.check()?;
        Ok(Pool::new(self.driver(&address, true)))
    }

    /// The parts that a store is opened with.
    pub(crate) fn open_database(&self) -> Result<(Database, Table)> {
        let (address, table) = self.check()?;
        // The store leaves nothing in a session but a prepared statement.
        let mut options = self.driver(&address, false);
        if self.mode != Mode::ReadOnly {
            // Each connection may lead to another server than the last.
            options = options.after_connect(|connection| {
                let durable = async { must_be_durable(&mut Bare(connection)).await };
                durable.map_err(Carried::by_driver).boxed()
            });
        }
        let connections = Connections::own(options.into());
        Ok((Database { connections, timeout: self.timeout, place: address.to_string() }, table))
    }

    fn driver(&self, address: &Address, reset: bool) -> OptsBuilder {
        // None is kept for ever: one that was idle for long may have been forgotten by a firewall in between.
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
        if !self.tls.is_on() {
            return None;
        }
        // The driver takes the process' default, and where there is none and two to choose from, as other
        // stores bring with them, it panics.
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
