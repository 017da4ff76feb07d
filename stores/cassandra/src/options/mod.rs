//! The options of the store: the location of the cluster, and how sequences are stored in it.

mod connecting;

use std::net::SocketAddr;
use std::time::Duration;

use idmill::Result;
use idmill_kit::options::{Kind, Options as _, TIMEOUT, Tls, Word, duration, text, whole, words};
use idmill_kit::{Authority, Target, query, refuse};

use super::CassandraStore;
use super::connection::Serial;
use super::geo::GeoSettings;
use super::schema::{DEFAULT_TABLE, KEYSPACE, REPLICAS, TABLE};
use connecting::Translation;

const PORT: u16 = 9042;
const DATACENTER: Kind =
    text("NAME", "the name of a datacenter, as `nodetool status` prints it", |name| !name.is_empty());
/// How sequences are stored.
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

idmill_kit::options! {
    /// The location of a Cassandra or ScyllaDB cluster, and how sequences are stored in it. Options are
    /// checked when the store is opened.
    ///
    /// As a URL: `cassandra://user:password@host:9042,host2/keyspace?mode=geo&dc=dc1&range=100000`; over TLS
    /// with `tls=true&ca=FILE&cert=FILE&key=FILE`. Passwords are never printed.
    ///
    /// ```
    /// use idmill_cassandra::CassandraOptions;
    ///
    /// let options = CassandraOptions::new(["10.0.0.1", "10.0.0.2:9043"], "ids").geo("dc1", 1_000_000);
    /// assert_eq!(options.to_string(), "cassandra://10.0.0.1,10.0.0.2:9043/ids?mode=geo&dc=dc1&range=1000000");
    /// ```
    pub struct CassandraOptions at hosts "cassandra" as "cassandra://HOST/KEYSPACE" {
        /// The nodes to contact first, and the user to log in as.
        pub authority: Authority,
        /// The keyspace.
        pub keyspace: String,
        /// How connections are encrypted. A node's certificate has to be for its address, or for one of the
        /// hosts.
        pub tls: Tls,
        translation: Translation,
    }

    /// How sequences are stored.
    pub mode: Mode = "flat" in words::<Mode>();
    /// The datacenter whose nodes the store prefers; windows and `serial=local` use no other nodes. Required
    /// for `geo` and `serial=local`.
    ///
    /// Without a datacenter, the store uses any node.
    pub datacenter ("dc"): Option<String> = "" in DATACENTER;
    /// Flat only: which replicas must agree.
    pub serial: Serial = "serial" in words::<Serial>();
    /// Geo only, required: how many ids a window takes from the global counter at a time; more if a reserve
    /// requests more.
    pub range: Option<u64> = "" in whole(1, u64::MAX);
    /// Geo only: the next range is preloaded when this percentage of `range` is left.
    pub threshold: u8 = "50" in whole(1, 100);
    /// Geo only: how soon a process detects that a sequence was set or removed elsewhere.
    ///
    /// Until then, or longer while the global counter is unreachable, the process can continue with its
    /// window. The check costs one SERIAL read per interval, process and sequence.
    pub check_every ("check"): Duration = "10s" in duration("0s", "24h");
    /// The table. Each table is a separate namespace. The windows are in the table `TABLE_windows`.
    pub table: String = DEFAULT_TABLE in TABLE;
    /// How long a statement may take.
    ///
    /// If a node does not answer a request within a quarter of this time, the store uses other nodes.
    pub timeout: Duration = "10s" in TIMEOUT;
    /// Whether missing tables are created. If not, opening, or writing the first record, fails with an error
    /// that contains the CQL.
    pub create_tables ("create"): bool = "true" in words::<bool>();
    /// Creates a missing keyspace with these replicas. Default: opening fails with an error that contains the
    /// CQL.
    pub(super) replicas ("create_keyspace"): Option<String> = "" in REPLICAS;

    use tls;
}

impl CassandraOptions {
    /// Creates options for flat sequences in this keyspace, in the cluster of these hosts (`host` or
    /// `host:port`).
    pub fn new<H: Into<String>>(hosts: impl IntoIterator<Item = H>, keyspace: impl Into<String>) -> Self {
        let translation = Translation::default();
        Self::with_defaults(Authority::of(hosts), keyspace.into(), Tls::default(), translation)
    }

    /// Selects geo mode, and the datacenter whose windows are used. The windows take `range` ids at a time
    /// from the global counter. [`Sizing`](super::Sizing) computes the range.
    #[must_use]
    pub fn geo(self, datacenter: impl Into<String>, range: u64) -> Self {
        self.mode(Mode::Geo).range(range).datacenter(datacenter)
    }

    /// Creates the keyspace if it is missing, with this number of replicas in each datacenter.
    #[must_use]
    pub fn create_keyspace<D: Into<String>>(mut self, replicas: impl IntoIterator<Item = (D, u32)>) -> Self {
        let each = replicas.into_iter().map(|(datacenter, count)| format!("{}:{count}", datacenter.into()));
        self.replicas = Some(each.collect::<Vec<_>>().join(",")).filter(|text| !text.is_empty());
        self
    }

    /// Sets the user and the password to log in with.
    #[must_use]
    pub fn credentials(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.authority.log_in(user, password);
        self
    }

    idmill_kit::tls_setters!([tls] optional, ca, client_certificate);

    /// Maps the addresses that nodes announce to the addresses to connect to. Use it if nodes are behind
    /// proxies.
    #[must_use]
    pub fn translate(mut self, addresses: impl IntoIterator<Item = (SocketAddr, SocketAddr)>) -> Self {
        self.translation.pairs.extend(addresses);
        self
    }

    /// Connects to this address for every node. Use it for a cluster of one node behind a proxy.
    #[must_use]
    pub fn through(mut self, proxy: SocketAddr) -> Self {
        self.translation.all = Some(proxy);
        self
    }

    fn at(_: &str, place: &str) -> Result<Self> {
        let (authority, keyspace) = place.split_once('/').unwrap_or((place, ""));
        let (authority, keyspace) = (Authority::parse(authority)?, query::decoded(keyspace)?);
        Ok(Self::with_defaults(authority, keyspace, Tls::default(), Translation::default()))
    }

    fn place(&self) -> String {
        format!("cassandra://{}/{}", self.authority, self.keyspace)
    }

    /// Checks the options without contacting the cluster. Returns the settings of geo mode, if it is
    /// selected.
    pub(super) fn check(&self) -> Result<Option<GeoSettings>> {
        self.authority.addresses(PORT)?;
        self.authority.login()?;
        KEYSPACE.check("the keyspace", &self.keyspace)?;
        self.check_values()?;
        self.tls.check("tls=false", "tls=true")?;
        let geo = self.check_geo()?;
        if self.serial == Serial::Local && self.datacenter.is_none() {
            return Err(refuse("serial=local needs a datacenter; add `dc=NAME`"));
        }
        Ok(geo)
    }

    fn check_geo(&self) -> Result<Option<GeoSettings>> {
        if self.mode == Mode::Flat {
            let given = |o: &Self| (o.range, o.threshold, o.check_every);
            let none = given(self) == given(&Self::new([""; 0], ""));
            let only = "range, threshold and check are for datacenter windows; add `mode=geo&dc=NAME`";
            return if none { Ok(None) } else { Err(refuse(only)) };
        }
        let (Some(datacenter), Some(range)) = (self.datacenter.clone(), self.range) else {
            return Err(refuse(
                "mode=geo needs the datacenter of this process and the size of a range; add `dc=NAME&range=N`",
            ));
        };
        if self.serial == Serial::Local {
            return Err(refuse(
                "serial=local is invalid with mode=geo, whose global counter spans all datacenters; remove it",
            ));
        }
        let threshold = u128::from(range) * u128::from(self.threshold) / 100;
        let threshold = u64::try_from(threshold).unwrap_or(range);
        Ok(Some(GeoSettings { datacenter, range, threshold, check: self.check_every }))
    }
}

impl Target for CassandraOptions {
    idmill_kit::target!(|options| "cassandra" => CassandraStore::open, existing {
        (options.create_tables, options.replicas) = (false, None);
    });
}

#[cfg(test)]
mod tests {
    use idmill::ErrorKind;
    use idmill_testing::OptionsPage as _;
    use proptest::prelude::*;

    use super::*;

    fn parse(rest: &str) -> Result<CassandraOptions> {
        CassandraOptions::parse(&format!("cassandra:{rest}"))
    }

    #[test]
    fn every_option_is_read() {
        let url = "//u%40x:p%3Ass@a:1,[::1],b.c/ids?mode=geo&dc=dc1&range=1000&threshold=25&check=3s&table=t_1&timeout=250ms\
                   &create=false&create_keyspace=dc1:3,dc2:2&tls=true&ca=/c.pem&cert=a.pem&key=b.pem";
        let expected = CassandraOptions::new(["a:1", "[::1]", "b.c"], "ids")
            .credentials("u@x", "p:ss")
            .geo("dc1", 1000)
            .threshold(25)
            .check_every(Duration::from_secs(3))
            .table("t_1")
            .timeout(Duration::from_millis(250))
            .create_tables(false)
            .create_keyspace([("dc1", 3), ("dc2", 2)])
            .tls(true)
            .ca("/c.pem")
            .client_certificate("a.pem", "b.pem");
        assert!(parse(url).unwrap() == expected);
        let local = parse("//a/ids?serial=local&dc=x").unwrap();
        assert!(local == CassandraOptions::new(["a"], "ids").serial(Serial::Local).datacenter("x"));
        assert_eq!(expected.check().unwrap().unwrap().threshold, 250);
    }

    #[test]
    fn invalid_options_are_rejected_with_the_remedy() {
        for (url, remedy) in [
            ("a/ids", "two slashes"),
            ("//", "HOST:PORT"),
            ("//a", "keyspace"),
            ("//a/i-ds", "keyspace"),
            ("//a,,b/ids", "HOST:PORT"),
            ("//a:x/ids", "HOST:PORT"),
            ("//a:99999/ids", "HOST:PORT"),
            ("//secret@a/ids", "USER:PASSWORD@"),
            ("//a/ids?mode=goe", "flat (one partition for each sequence), geo ("),
            ("//a/ids?mode=geo", "dc=NAME"),
            ("//a/ids?mode=geo&dc=x", "range=N"),
            ("//a/ids?mode=geo&dc=x&range=0", "range=\"0\" cannot be used: write a whole number, 1 or more"),
            ("//a/ids?mode=geo&dc=x&range=5&threshold=0", "1 to 100"),
            ("//a/ids?mode=geo&dc=x&range=5&threshold=101", "1 to 100"),
            ("//a/ids?mode=geo&dc=x&range=5&serial=local", "serial=local is invalid"),
            ("//a/ids?range=5", "mode=geo"),
            ("//a/ids?serial=local", "dc=NAME"),
            ("//a/ids?serial=LOCAL", "serial (all replicas), local ("),
            ("//a/ids?table=a%22", "table"),
            ("//a/ids?timeout=0s", "1ms to 24h"),
            ("//a/ids?timeout=5", "ms, s, m or h), 1ms to 24h, such as timeout=10s"),
            ("//a/ids?check=86400001ms", "0s to 24h"),
            ("//a/ids?threshold=50%", "write a whole number, 1 to 100, such as threshold=50"),
            ("//a/ids?create=no", "true, false"),
            ("//a/ids?dc=", "the name of a datacenter"),
            ("//a/ids?create_keyspace=dc1", "dc1:3,dc2:3"),
            ("//a/ids?create_keyspace=dc1:0", "dc1:3,dc2:3"),
            ("//a/ids?cert=a.pem", "set both"),
            ("//a/ids?tls=false&ca=a.pem", "tls=false"),
            ("//a/ids?dc=x&dc=y", "duplicate option"),
            ("//a/ids?tabel=x", "create_keyspace=DC:REPLICAS"),
        ] {
            let error = parse(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{url}");
            assert!(error.to_string().contains(remedy), "{url}: {error}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }

    #[test]
    fn passwords_are_never_printed() {
        let options = parse("//me:secret@a/ids").unwrap();
        assert_eq!(options.to_string(), "cassandra://me:***@a/ids");
        assert!(!format!("{options:?}").contains("secret"));
    }

    #[test]
    fn the_page_has_the_options() {
        CassandraOptions::new(["h"], "ids")
            .documented(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md"), "options");
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
            millis in 1..=86_400_000_u64,
            replicas in proptest::collection::vec(("[a-z&= ]{1,5}", 1..9_u32), 0..3),
        ) {
            let mut options = CassandraOptions::new(hosts, keyspace).table(table).datacenter(&dc);
            options = options.timeout(Duration::from_millis(millis)).create_keyspace(replicas);
            if geo {
                options = options.geo(dc, range).threshold(percent).check_every(Duration::from_millis(millis));
            }
            let url = options.to_string();
            let read = CassandraOptions::parse(&url).unwrap();
            prop_assert!(read == options, "{}", url);
        }
    }
}
