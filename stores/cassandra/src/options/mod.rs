//! The location of the cluster and how to use it.

mod url;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use idmill::{Error, ErrorKind, Result};
use idmill_kit::options::Word;
use idmill_kit::{Address, refuse};
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::errors::TranslationError;
use scylla::policies::address_translator::{AddressTranslator, UntranslatedPeer};
use tokio::task::spawn_blocking;

use super::classify::connect_failed;
use super::client::{AGREEMENT, Serial, patience};
use super::geo::GeoSettings;
use super::schema::{Replicas, check_name};
use url::OPTIONS;

const PORT: u16 = 9042;
/// How long a connection is idle before it is asked whether anybody is there.
const KEEPALIVE: Duration = Duration::from_secs(1);
/// Cassandra's limit for the name of a keyspace.
const LONGEST_KEYSPACE: usize = 48;

/// How sequences are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// `flat`: one partition for each sequence, which every reserve writes.
    #[default]
    Flat,
    /// `geo`: a window for each datacenter, in front of a global counter.
    Geo,
}

impl Word for Mode {
    const WORDS: &'static [(Self, &'static str, &'static str)] = &[
        (Self::Flat, "flat", "one partition for each sequence"),
        (Self::Geo, "geo", "a window for each datacenter"),
    ];
}

/// The location of a Cassandra or ScyllaDB cluster, and how sequences are kept in it. Options are checked
/// when the store is opened.
///
/// As a URL: `cassandra://user:password@host:9042,host2/keyspace?mode=geo&dc=dc1&range=100000`; over TLS with
/// `tls=true&ca=FILE&cert=FILE&key=FILE`.
/// Passwords are never printed.
///
/// ```
/// use idmill_cassandra::CassandraOptions;
///
/// let options = CassandraOptions::new(["10.0.0.1", "10.0.0.2:9043"], "ids").geo("dc1", 1_000_000);
/// assert_eq!(options.to_string(), "cassandra://10.0.0.1,10.0.0.2:9043/ids?mode=geo&dc=dc1&range=1000000");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct CassandraOptions {
    pub(super) hosts: Vec<String>,
    keyspace: String,
    user: Option<(String, String)>,
    mode: Mode,
    datacenter: Option<String>,
    serial: Serial,
    range: Option<u64>,
    threshold: u8,
    check: Duration,
    table: String,
    timeout: Duration,
    create: bool,
    replicas: Replicas,
    tls: Option<bool>,
    pub(super) ca: Option<PathBuf>,
    pub(super) cert: Option<PathBuf>,
    pub(super) key: Option<PathBuf>,
    translation: Translation,
}

/// Options that were checked.
#[derive(Clone, Debug)]
pub(super) struct Checked {
    pub(super) keyspace: String,
    pub(super) table: String,
    pub(super) datacenter: Option<String>,
    pub(super) serial: Serial,
    pub(super) timeout: Duration,
    pub(super) create: bool,
    pub(super) replicas: Replicas,
    pub(super) geo: Option<GeoSettings>,
}

impl CassandraOptions {
    /// Flat sequences in this keyspace, in the cluster of these hosts (`host` or `host:port`).
    pub fn new<H: Into<String>>(hosts: impl IntoIterator<Item = H>, keyspace: impl Into<String>) -> Self {
        let (threshold, check, table, timeout, create) = Default::default();
        OPTIONS.with_defaults(Self {
            hosts: hosts.into_iter().map(Into::into).collect(),
            keyspace: keyspace.into(),
            user: None,
            mode: Mode::Flat,
            datacenter: None,
            serial: Serial::Everywhere,
            range: None,
            threshold,
            check,
            table,
            timeout,
            create,
            replicas: Replicas::default(),
            tls: None,
            ca: None,
            cert: None,
            key: None,
            translation: Translation::default(),
        })
    }

    /// Geo mode, used from this datacenter. Its windows take `range` ids at a time from the global counter.
    /// [`Sizing`](super::Sizing) computes the range.
    #[must_use]
    pub fn geo(mut self, datacenter: impl Into<String>, range: u64) -> Self {
        self.mode = Mode::Geo;
        self.range = Some(range);
        self.datacenter(datacenter)
    }

    /// The datacenter whose nodes the store uses, as `nodetool status` spells it. Without one, it uses any
    /// node.
    #[must_use]
    pub fn datacenter(mut self, datacenter: impl Into<String>) -> Self {
        self.datacenter = Some(datacenter.into());
        self
    }

    /// Which replicas agree on flat sequences. Default [`Serial::Everywhere`]; [`Serial::Local`] needs a
    /// datacenter.
    #[must_use]
    pub fn serial(mut self, serial: Serial) -> Self {
        self.serial = serial;
        self
    }

    /// The remaining percentage of a range at which the next one is preloaded: 1 to 100. Default 50.
    #[must_use]
    pub fn threshold(mut self, percent: u8) -> Self {
        self.threshold = percent;
        self
    }

    /// How long a process can continue with a window after the sequence was set or removed elsewhere, while
    /// the global counter can be reached, at most a day. Default 10 s. It costs one SERIAL read in each
    /// interval.
    #[must_use]
    pub fn check_every(mut self, interval: Duration) -> Self {
        self.check = interval;
        self
    }

    /// The table of sequences: letters, digits and underscores, at most 40. Default `idmill_sequences`. The
    /// windows' table has `_windows` appended.
    #[must_use]
    pub fn table(mut self, table: impl Into<String>) -> Self {
        self.table = table.into();
        self
    }

    /// How long a statement may take, 1 ms to a day. Default 10 s. If a node leaves a request unanswered for
    /// a quarter of it, the store turns to other nodes.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Whether missing tables are created. Default true.
    #[must_use]
    pub fn create_tables(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Creates the keyspace if it is missing, with this number of replicas in each datacenter.
    #[must_use]
    pub fn create_keyspace<D: Into<String>>(mut self, replicas: impl IntoIterator<Item = (D, u32)>) -> Self {
        let each = replicas.into_iter().map(|(datacenter, count)| (datacenter.into(), count));
        self.replicas = Replicas(each.collect());
        self
    }

    /// The user and password to log in with.
    #[must_use]
    pub fn credentials(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.user = Some((user.into(), password.into()));
        self
    }

    /// Whether connections are encrypted. Default: only if a certificate is named. Trusts the system's
    /// authorities, unless [`ca`](Self::ca) names others. A node's certificate has to be for its address, or
    /// for one of the hosts.
    #[must_use]
    pub fn tls(mut self, tls: bool) -> Self {
        self.tls = Some(tls);
        self
    }

    /// A PEM file with the authorities that sign the nodes' certificates. Read when the store is opened.
    #[must_use]
    pub fn ca(mut self, file: impl Into<PathBuf>) -> Self {
        self.ca = Some(file.into());
        self
    }

    /// PEM files with the client's certificate and its key, if the nodes require one (`require_client_auth`).
    /// Read when the store is opened.
    #[must_use]
    pub fn client_certificate(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        (self.cert, self.key) = (Some(certificate.into()), Some(key.into()));
        self
    }

    fn is_encrypted(&self) -> bool {
        self.tls.unwrap_or(self.ca.is_some() || self.cert.is_some())
    }

    fn check_files(&self) -> Result<()> {
        if self.cert.is_some() != self.key.is_some() {
            return Err(refuse("a certificate and its key go together: cert=FILE&key=FILE"));
        }
        if self.tls == Some(false) && (self.ca.is_some() || self.cert.is_some()) {
            return Err(refuse("tls=false has no use for certificates; leave it out, or them"));
        }
        Ok(())
    }

    /// Maps the addresses that nodes announce to others to connect to, for a proxy in between.
    #[must_use]
    pub fn translate(mut self, addresses: impl IntoIterator<Item = (SocketAddr, SocketAddr)>) -> Self {
        self.translation.pairs.extend(addresses);
        self
    }

    /// Connects to this address for every node, for a cluster of one node behind a proxy.
    #[must_use]
    pub fn through(mut self, proxy: SocketAddr) -> Self {
        self.translation.all = Some(proxy);
        self
    }

    /// Everything that can be known to be wrong without asking the cluster.
    pub(super) fn check(&self) -> Result<Checked> {
        for host in &self.hosts {
            address(host)?;
        }
        if self.hosts.is_empty() {
            return Err(refuse("no host is named: `cassandra://HOST/KEYSPACE`"));
        }
        check_name("keyspace", &self.keyspace, LONGEST_KEYSPACE)?;
        OPTIONS.check(self)?;
        self.check_files()?;
        let geo = self.check_geo()?;
        if self.serial == Serial::Local && self.datacenter.is_none() {
            return Err(refuse("serial=local needs the datacenter that it is local to: `dc=NAME`"));
        }
        Ok(Checked {
            keyspace: self.keyspace.clone(),
            table: self.table.clone(),
            datacenter: self.datacenter.clone(),
            serial: self.serial,
            timeout: self.timeout,
            create: self.create,
            replicas: self.replicas.clone(),
            geo,
        })
    }

    fn check_geo(&self) -> Result<Option<GeoSettings>> {
        if self.mode == Mode::Flat {
            let usual = Self::new([""; 0], "");
            let none =
                (self.range, self.threshold, self.check) == (usual.range, usual.threshold, usual.check);
            let only = "range, threshold and check are of datacenter windows; add `mode=geo&dc=NAME`";
            return if none { Ok(None) } else { Err(refuse(only)) };
        }
        let (Some(datacenter), Some(range)) = (self.datacenter.clone(), self.range) else {
            return Err(refuse(
                "mode=geo needs the datacenter that this process is in, `dc=NAME`, and the size of a range, `range=N`",
            ));
        };
        if self.serial == Serial::Local {
            return Err(refuse(
                "in mode=geo the global counter is agreed on everywhere; leave out serial=local",
            ));
        }
        let threshold = u128::from(range) * u128::from(self.threshold) / 100;
        let threshold = u64::try_from(threshold).unwrap_or(range);
        Ok(Some(GeoSettings { datacenter, range, threshold, check: self.check }))
    }

    pub(super) async fn connect_session(&self) -> Result<Session> {
        // A node that is frozen is found out: when it is connected to, and by what it is asked while it is.
        let patience = patience(self.timeout).max(Duration::from_millis(1));
        let mut builder = SessionBuilder::new()
            .connection_timeout(patience)
            .keepalive_interval(KEEPALIVE.min(patience))
            .keepalive_timeout(patience)
            .metadata_request_clientside_timeout(self.timeout)
            .schema_agreement_timeout(AGREEMENT);
        for host in &self.hosts {
            builder = builder.known_node(address(host)?.to_string());
        }
        if let Some((user, password)) = &self.user {
            builder = builder.user(user, password);
        }
        if self.translation != Translation::default() {
            builder = builder.address_translator(Arc::new(self.translation.clone()));
        }
        if self.is_encrypted() {
            let hosts = self.hosts.iter().map(|host| Ok(address(host)?.host().to_owned()));
            let (hosts, options) = (hosts.collect::<Result<Vec<_>>>()?, self.clone());
            let (ca, cert, key) = (options.ca, options.cert, options.key);
            let config = move || super::tls::config(&hosts, ca.as_deref(), cert.as_deref(), key.as_deref());
            let config = spawn_blocking(config).await;
            let config = config.map_err(|error| Error::from(ErrorKind::Unavailable).because(error))??;
            builder = builder.tls_context(Some(Arc::new(config)));
        }
        builder.build().await.map_err(|error| connect_failed(error, &self.hosts))
    }
}

/// Where nodes are reached instead of where they say they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Translation {
    pairs: HashMap<SocketAddr, SocketAddr>,
    all: Option<SocketAddr>,
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

pub(super) fn address(host: &str) -> Result<Address> {
    Address::parse(host, Some(PORT)).ok_or_else(|| {
        refuse(format!("the host {host:?} cannot be; write HOST or HOST:PORT, with commas between several"))
    })
}
