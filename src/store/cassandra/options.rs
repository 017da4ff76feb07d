//! Where the cluster is and how it is used, and how a URL says so.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::errors::TranslationError;
use scylla::policies::address_translator::{AddressTranslator, UntranslatedPeer};

use super::CassandraStore;
use super::classify::connect_failed;
use super::client::Serial;
use super::geo::GeoSettings;
use super::schema::{DEFAULT_TABLE, Replicas, check_name, check_table};
use crate::error::{Error, Operation, Result};
use crate::store::url::Target;
use crate::store::{Store, StoreFuture};

const PORT: u16 = 9042;
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
const DEFAULT_CHECK: Duration = Duration::from_secs(10);
const DEFAULT_THRESHOLD: u8 = 50;
/// Cassandra's limit for the name of a keyspace.
const LONGEST_KEYSPACE: usize = 48;
const KNOWN: &str = "mode=flat|geo, dc=NAME, serial=serial|local, range=N, threshold=50%, check=10s, table=NAME, timeout=10s, \
                     create=yes|no, create_keyspace=DC:REPLICAS,…";

/// How sequences are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// `flat`: every reserve goes to the sequence's one partition.
    #[default]
    Flat,
    /// `geo`: a window for each datacenter, in front of a global counter.
    Geo,
}

impl Mode {
    fn as_str(self) -> &'static str {
        match self {
            Self::Flat => "flat",
            Self::Geo => "geo",
        }
    }
}

/// Where a Cassandra or ScyllaDB cluster is, and how sequences are kept in it; checked when it is opened.
///
/// As a URL: `cassandra://user:password@host:9042,host2/keyspace?mode=geo&dc=dc1&range=100000`. Passwords are never printed.
///
/// ```
/// use idmill::store::cassandra::CassandraOptions;
///
/// let options = CassandraOptions::new(["10.0.0.1", "10.0.0.2:9043"], "ids").geo("dc1", 1_000_000);
/// assert_eq!(options.to_string(), "cassandra://10.0.0.1,10.0.0.2:9043/ids?mode=geo&dc=dc1&range=1000000");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct CassandraOptions {
    hosts: Vec<String>,
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
    /// Flat sequences in this keyspace of the cluster that these hosts (`host` or `host:port`) belong to.
    pub fn new<H: Into<String>>(hosts: impl IntoIterator<Item = H>, keyspace: impl Into<String>) -> Self {
        Self {
            hosts: hosts.into_iter().map(Into::into).collect(),
            keyspace: keyspace.into(),
            user: None,
            mode: Mode::Flat,
            datacenter: None,
            serial: Serial::Everywhere,
            range: None,
            threshold: DEFAULT_THRESHOLD,
            check: DEFAULT_CHECK,
            table: DEFAULT_TABLE.to_owned(),
            timeout: DEFAULT_TIMEOUT,
            create: true,
            replicas: Vec::new(),
            translation: Translation::default(),
        }
    }

    /// Datacenter windows, seen from this datacenter, that take `range` ids at a time from the global counter.
    /// [`Sizing`](super::Sizing) computes how many.
    #[must_use]
    pub fn geo(mut self, datacenter: impl Into<String>, range: u64) -> Self {
        self.mode = Mode::Geo;
        self.range = Some(range);
        self.datacenter(datacenter)
    }

    /// The datacenter whose nodes are asked, as `nodetool status` spells it. Without one, any node is.
    #[must_use]
    pub fn datacenter(mut self, datacenter: impl Into<String>) -> Self {
        self.datacenter = Some(datacenter.into());
        self
    }

    /// Among whom flat sequences are agreed on. Default [`Serial::Everywhere`]; [`Serial::Local`] needs a datacenter.
    #[must_use]
    pub fn serial(mut self, serial: Serial) -> Self {
        self.serial = serial;
        self
    }

    /// At how many percent of a range left the next one is preloaded: 1 to 100. Default 50.
    #[must_use]
    pub fn threshold(mut self, percent: u8) -> Self {
        self.threshold = percent;
        self
    }

    /// How long a process may go on with a window after the sequence was set or removed elsewhere, while the global
    /// counter can be reached. Default 10 s; one SERIAL read in this time is what it costs.
    #[must_use]
    pub fn check_every(mut self, interval: Duration) -> Self {
        self.check = interval;
        self
    }

    /// The table of sequences: letters, digits and underscores, at most 40. Default `idmill_sequences`. That of the
    /// windows has `_windows` added.
    #[must_use]
    pub fn table(mut self, table: impl Into<String>) -> Self {
        self.table = table.into();
        self
    }

    /// How long a statement may take. Default 10 s.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Whether tables that are missing are created. Default true.
    #[must_use]
    pub fn create_tables(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Creates the keyspace, if it is missing, with so many replicas in each of these datacenters.
    #[must_use]
    pub fn create_keyspace<D: Into<String>>(mut self, replicas: impl IntoIterator<Item = (D, u32)>) -> Self {
        self.replicas = replicas.into_iter().map(|(datacenter, count)| (datacenter.into(), count)).collect();
        self
    }

    /// Logs in with a password.
    #[must_use]
    pub fn credentials(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.user = Some((user.into(), password.into()));
        self
    }

    /// Connects to these addresses in place of those that the nodes say they have: for a proxy in between.
    #[must_use]
    pub fn translate(mut self, addresses: impl IntoIterator<Item = (SocketAddr, SocketAddr)>) -> Self {
        self.translation.pairs.extend(addresses);
        self
    }

    /// Connects to this address whatever node is meant: for a cluster of one node behind a proxy.
    #[must_use]
    pub fn through(mut self, proxy: SocketAddr) -> Self {
        self.translation.all = Some(proxy);
        self
    }

    /// Reads what follows `cassandra:` in a URL.
    pub(crate) fn parse(rest: &str) -> Result<Self> {
        let rest = rest
            .strip_prefix("//")
            .ok_or_else(|| refuse("hosts follow two slashes: `cassandra://HOST/KEYSPACE`".into()))?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, keyspace) = place.split_once('/').unwrap_or((place, ""));
        let (user, hosts) = match authority.rsplit_once('@') {
            Some((user, hosts)) => (Some(parse_user(user)?), hosts),
            None => (None, authority),
        };
        let mut options = Self::new(hosts.split(','), decode(keyspace)?);
        options.user = user;
        let mut seen = Vec::new();
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            if seen.contains(&key) {
                return Err(refuse(format!("the option `{key}` is given twice")));
            }
            options = options.set(&key, &value)?;
            seen.push(key);
        }
        options.check()?;
        Ok(options)
    }

    fn set(mut self, key: &str, value: &str) -> Result<Self> {
        match key {
            "mode" => self.mode = one_of(key, value, &[("flat", Mode::Flat), ("geo", Mode::Geo)])?,
            "dc" => self.datacenter = Some(value.to_owned()),
            "serial" => {
                self.serial =
                    one_of(key, value, &[("serial", Serial::Everywhere), ("local", Serial::Local)])?;
            }
            "range" => self.range = Some(whole(key, value)?),
            "threshold" => self.threshold = whole(key, value.strip_suffix('%').unwrap_or(value))?,
            "check" => self.check = parse_duration(key, value)?,
            "table" => value.clone_into(&mut self.table),
            "timeout" => self.timeout = parse_duration(key, value)?,
            "create" => self.create = one_of(key, value, &[("yes", true), ("no", false)])?,
            "create_keyspace" => self.replicas = parse_replicas(value)?,
            _ => return Err(refuse(format!("unknown option `{key}`; there are {KNOWN}"))),
        }
        Ok(self)
    }

    /// Everything that can be known to be wrong without asking the cluster.
    pub(super) fn check(&self) -> Result<Checked> {
        for host in &self.hosts {
            check_host(host)?;
        }
        if self.hosts.is_empty() {
            return Err(refuse("no host is named: `cassandra://HOST/KEYSPACE`".into()));
        }
        check_name("keyspace", &self.keyspace, LONGEST_KEYSPACE)?;
        check_table(&self.table)?;
        if self.timeout.is_zero() {
            return Err(refuse("a timeout of nothing leaves no time for an answer".into()));
        }
        let geo = self.check_geo()?;
        if self.serial == Serial::Local && self.datacenter.is_none() {
            return Err(refuse("serial=local needs the datacenter that it is local to: `dc=NAME`".into()));
        }
        if self.replicas.iter().any(|(_, count)| *count == 0) {
            return Err(refuse("create_keyspace: a datacenter needs at least 1 replica, better 3".into()));
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
            let none =
                self.range.is_none() && self.threshold == DEFAULT_THRESHOLD && self.check == DEFAULT_CHECK;
            let only = "range, threshold and check are of datacenter windows; add `mode=geo&dc=NAME`";
            return if none { Ok(None) } else { Err(refuse(only.into())) };
        }
        let (Some(datacenter), Some(range @ 1..)) = (self.datacenter.clone(), self.range) else {
            return Err(refuse(
                "mode=geo needs the datacenter that this process is in, `dc=NAME`, and the size of a range, `range=N`".into(),
            ));
        };
        if self.serial == Serial::Local {
            return Err(refuse(
                "in mode=geo the global counter is agreed on everywhere; leave out serial=local".into(),
            ));
        }
        if !(1..=100).contains(&self.threshold) {
            return Err(refuse(format!("threshold={}% is not between 1 and 100", self.threshold)));
        }
        let threshold = u128::from(range) * u128::from(self.threshold) / 100;
        let threshold = u64::try_from(threshold).unwrap_or(range);
        Ok(Some(GeoSettings { datacenter, range, threshold, check: self.check }))
    }

    pub(super) async fn connect_session(&self) -> Result<Session> {
        let mut builder = SessionBuilder::new().connection_timeout(self.timeout);
        for host in &self.hosts {
            builder =
                builder.known_node(if has_port(host) { host.clone() } else { format!("{host}:{PORT}") });
        }
        if let Some((user, password)) = &self.user {
            builder = builder.user(user, password);
        }
        if self.translation != Translation::default() {
            builder = builder.address_translator(Arc::new(self.translation.clone()));
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

impl Target for CassandraOptions {
    fn scheme(&self) -> &'static str {
        "cassandra"
    }

    fn existing(&self) -> Arc<dyn Target> {
        Arc::new(Self { replicas: Vec::new(), ..self.clone().create_tables(false) })
    }

    fn connect(&self) -> StoreFuture<'_, Result<Arc<dyn Store>>> {
        Box::pin(async { Ok(Arc::new(CassandraStore::open(self.clone()).await?) as Arc<dyn Store>) })
    }
}

impl fmt::Display for CassandraOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cassandra://")?;
        if let Some((user, _)) = &self.user {
            write!(f, "{}:***@", utf8_percent_encode(user, NON_ALPHANUMERIC))?;
        }
        write!(f, "{}/{}", self.hosts.join(","), self.keyspace)?;
        let mut separator = '?';
        let mut option = |key: &str, value: &str| {
            let encoded: String = form_urlencoded::byte_serialize(value.as_bytes()).collect();
            // Both may stand in a query as they are, and read better.
            write!(f, "{separator}{key}={}", encoded.replace("%3A", ":").replace("%2C", ","))?;
            separator = '&';
            Ok(())
        };
        if self.mode != Mode::Flat {
            option("mode", self.mode.as_str())?;
        }
        if let Some(datacenter) = &self.datacenter {
            option("dc", datacenter)?;
        }
        if self.serial != Serial::Everywhere {
            option("serial", self.serial.as_str())?;
        }
        if let Some(range) = self.range {
            option("range", &range.to_string())?;
        }
        if self.threshold != DEFAULT_THRESHOLD {
            option("threshold", &self.threshold.to_string())?;
        }
        if self.check != DEFAULT_CHECK {
            option("check", &format!("{}ms", self.check.as_millis()))?;
        }
        if self.table != DEFAULT_TABLE {
            option("table", &self.table)?;
        }
        if self.timeout != DEFAULT_TIMEOUT {
            option("timeout", &format!("{}ms", self.timeout.as_millis()))?;
        }
        if !self.create {
            option("create", "no")?;
        }
        if !self.replicas.is_empty() {
            let list: Vec<_> = self.replicas.iter().map(|(dc, count)| format!("{dc}:{count}")).collect();
            option("create_keyspace", &list.join(","))?;
        }
        Ok(())
    }
}

impl fmt::Debug for CassandraOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CassandraOptions({self})")
    }
}

fn refuse(message: String) -> Error {
    Error::invalid(message).during(Operation::Connect)
}

fn check_host(host: &str) -> Result<()> {
    let (name, port) =
        if has_port(host) { host.rsplit_once(':').unwrap_or((host, "")) } else { (host, "9042") };
    let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '[' | ']');
    if name.is_empty() || !name.chars().all(valid) || port.parse::<u16>().is_err() {
        return Err(refuse(format!(
            "the host {host:?} cannot be; write HOST or HOST:PORT, with commas between several"
        )));
    }
    Ok(())
}

/// `[::1]` has colons and no port.
fn has_port(host: &str) -> bool {
    host.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'))
}

fn parse_user(user: &str) -> Result<(String, String)> {
    // Not echoed: it may be the password alone.
    let (user, password) = user.split_once(':').ok_or_else(|| {
        refuse("credentials are written `user:password@`; percent-encode what has a meaning in a URL".into())
    })?;
    Ok((decode(user)?, decode(password)?))
}

fn decode(text: &str) -> Result<String> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded
        .map(std::borrow::Cow::into_owned)
        .map_err(|_| refuse("what is percent-encoded in the URL is not UTF-8".into()))
}

fn one_of<T: Copy>(key: &str, value: &str, known: &[(&str, T)]) -> Result<T> {
    known.iter().find(|(name, _)| *name == value).map(|(_, known)| *known).ok_or_else(|| {
        let names: Vec<_> = known.iter().map(|(name, _)| *name).collect();
        refuse(format!("{key}={value:?} is unknown; there are {}", names.join(", ")))
    })
}

fn whole<T: std::str::FromStr>(key: &str, value: &str) -> Result<T> {
    value.parse().map_err(|_| refuse(format!("{key}={value:?} is not a whole number that can be")))
}

fn parse_duration(key: &str, value: &str) -> Result<Duration> {
    let digits = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    let (number, unit) = value.split_at(digits);
    let millis = match unit {
        "ms" => Some(1),
        "s" => Some(1000),
        "m" => Some(60_000),
        _ => None,
    };
    let total =
        number.parse::<u64>().ok().zip(millis).and_then(|(number, millis)| number.checked_mul(millis));
    let total = total.filter(|total| u32::try_from(*total).is_ok());
    total.map(Duration::from_millis).ok_or_else(|| {
        refuse(format!("{key}={value:?} is not a duration; write a whole number and a unit: 500ms, 5s, 1m (at most 49 days)"))
    })
}

fn parse_replicas(value: &str) -> Result<Replicas> {
    let one = |part: &str| {
        let (datacenter, count) = part.rsplit_once(':')?;
        let count = count.parse().ok().filter(|count| *count > 0)?;
        (!datacenter.is_empty()).then(|| (datacenter.to_owned(), count))
    };
    value.split(',').map(one).collect::<Option<_>>().ok_or_else(|| {
        refuse(format!(
            "create_keyspace={value:?} is not DATACENTER:REPLICAS, with commas between several: dc1:3,dc2:3"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use proptest::prelude::*;

    #[test]
    fn every_option_is_read() {
        let url = "//u%40x:p%3Ass@a:1,[::1],b.c/ids?mode=geo&dc=dc1&range=1000&threshold=25%&check=3s&table=t_1&timeout=250ms\
                   &create=no&create_keyspace=dc1:3,dc2:2";
        let expected = CassandraOptions::new(["a:1", "[::1]", "b.c"], "ids")
            .credentials("u@x", "p:ss")
            .geo("dc1", 1000)
            .threshold(25)
            .check_every(Duration::from_secs(3))
            .table("t_1")
            .timeout(Duration::from_millis(250))
            .create_tables(false)
            .create_keyspace([("dc1", 3), ("dc2", 2)]);
        assert!(CassandraOptions::parse(url).unwrap() == expected);
        let local = CassandraOptions::parse("//a/ids?serial=local&dc=x").unwrap();
        assert!(local == CassandraOptions::new(["a"], "ids").serial(Serial::Local).datacenter("x"));
        assert_eq!(expected.check().unwrap().geo.unwrap().threshold, 250);
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_remedy() {
        for (url, remedy) in [
            ("a/ids", "two slashes"),
            ("//", "HOST:PORT"),
            ("//a", "keyspace"),
            ("//a/i-ds", "keyspace"),
            ("//a,,b/ids", "HOST:PORT"),
            ("//a:x/ids", "HOST:PORT"),
            ("//a:99999/ids", "HOST:PORT"),
            ("//secret@a/ids", "user:password@"),
            ("//a/ids?mode=goe", "flat, geo"),
            ("//a/ids?mode=geo", "dc=NAME"),
            ("//a/ids?mode=geo&dc=x", "range=N"),
            ("//a/ids?mode=geo&dc=x&range=0", "range=N"),
            ("//a/ids?mode=geo&dc=x&range=5&threshold=0%", "between 1 and 100"),
            ("//a/ids?mode=geo&dc=x&range=5&threshold=101", "between 1 and 100"),
            ("//a/ids?mode=geo&dc=x&range=5&serial=local", "leave out serial=local"),
            ("//a/ids?range=5", "mode=geo"),
            ("//a/ids?serial=local", "dc=NAME"),
            ("//a/ids?serial=LOCAL", "serial, local"),
            ("//a/ids?table=a%22", "table"),
            ("//a/ids?timeout=0s", "timeout"),
            ("//a/ids?timeout=5", "500ms, 5s, 1m"),
            ("//a/ids?create_keyspace=dc1", "dc1:3,dc2:3"),
            ("//a/ids?create_keyspace=dc1:0", "dc1:3,dc2:3"),
            ("//a/ids?dc=x&dc=y", "twice"),
            ("//a/ids?tabel=x", "create_keyspace=DC:REPLICAS"),
        ] {
            let error = CassandraOptions::parse(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{url}");
            assert!(error.to_string().contains(remedy), "{url}: {error}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }

    #[test]
    fn passwords_are_never_printed() {
        let options = CassandraOptions::parse("//me:secret@a/ids").unwrap();
        assert_eq!(options.to_string(), "cassandra://me:***@a/ids");
        assert!(!format!("{options:?}").contains("secret"));
    }

    proptest! {
        #[test]
        fn display_reads_back(
            hosts in proptest::collection::vec("[a-z][a-z0-9.-]{0,9}(:[1-9][0-9]{0,3})?", 1..4),
            keyspace in "[A-Za-z][A-Za-z0-9_]{0,47}",
            table in "[A-Za-z][A-Za-z0-9_]{0,39}",
            dc in "\\PC{1,9}",
            geo: bool,
            range in 1..=u64::MAX,
            percent in 1..=100_u8,
            millis in 1..=u64::from(u32::MAX),
            replicas in proptest::collection::vec(("[a-z&= ]{1,5}", 1..9_u32), 0..3),
        ) {
            let mut options = CassandraOptions::new(hosts, keyspace).table(table).datacenter(&dc);
            options = options.timeout(Duration::from_millis(millis)).create_keyspace(replicas);
            if geo {
                options = options.geo(dc, range).threshold(percent).check_every(Duration::from_millis(millis));
            }
            let url = options.to_string();
            let read = CassandraOptions::parse(url.strip_prefix("cassandra:").unwrap()).unwrap();
            prop_assert!(read == options, "{}", url);
        }
    }
}
