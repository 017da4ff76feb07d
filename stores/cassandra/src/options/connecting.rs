//! Builds the driver's session from the options.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use idmill::{Error, ErrorKind, Result};
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::errors::TranslationError;
use scylla::policies::address_translator::{AddressTranslator, UntranslatedPeer};
use tokio::task::spawn_blocking;

use super::{CassandraOptions, PORT};
use crate::classify::connect_failed;
use crate::connection::{AGREEMENT, per_node};

/// Longest interval of the keepalive requests on each connection.
const KEEPALIVE: Duration = Duration::from_secs(1);

impl CassandraOptions {
    pub(crate) async fn connect_session(&self) -> Result<Session> {
        // These timeouts detect a frozen node both while connecting and on an open connection.
        let timeout = per_node(self.timeout).max(Duration::from_millis(1));
        let mut builder = SessionBuilder::new()
            .connection_timeout(timeout)
            .keepalive_interval(KEEPALIVE.min(timeout))
            .keepalive_timeout(timeout)
            .metadata_request_clientside_timeout(self.timeout)
            .schema_agreement_timeout(AGREEMENT);
        let addresses = self.authority.addresses(PORT)?;
        for address in &addresses {
            builder = builder.known_node(address.to_string());
        }
        if let Some((user, password)) = self.authority.login()? {
            builder = builder.user(user, password);
        }
        if self.translation != Translation::default() {
            builder = builder.address_translator(Arc::new(self.translation.clone()));
        }
        if self.tls.is_on() {
            let tls = self.tls.clone();
            let config = spawn_blocking(move || crate::tls::config(&addresses, &tls)).await;
            let config = config.map_err(|error| Error::from(ErrorKind::Unavailable).because(error))??;
            builder = builder.tls_context(Some(Arc::new(config)));
        }
        builder.build().await.map_err(|error| connect_failed(error, &self.authority.hosts))
    }
}

/// Replacements for the addresses that nodes announce.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Translation {
    pub(super) pairs: HashMap<SocketAddr, SocketAddr>,
    pub(super) all: Option<SocketAddr>,
}

impl AddressTranslator for Translation {
    fn translate_address<'a, 'b, 'async_trait>(
        &'a self,
        peer: &'b UntranslatedPeer<'_>,
    ) -> Pin<Box<dyn Future<Output = Result<SocketAddr, TranslationError>> + Send + 'async_trait>>
    where
        Self: 'async_trait,
        'a: 'async_trait,
        'b: 'async_trait,
    {
        let theirs = peer.untranslated_address();
        let ours = self.pairs.get(&theirs).copied().or(self.all).unwrap_or(theirs);
        Box::pin(std::future::ready(Ok(ours)))
    }
}
