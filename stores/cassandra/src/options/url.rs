//! How a URL says which cluster and how.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use idmill::store::{Store, StoreFuture};
use idmill::{Error, Result};
use idmill_kit::Target;
use idmill_kit::options::{FILE, Kind, TIMEOUT, Table, Typed, Value, duration, option, text, whole, words};
use idmill_kit::secrets::check_login;
use idmill_kit::{query, refuse};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::{CassandraOptions, Mode};
use crate::CassandraStore;
use crate::client::Serial;
use crate::schema::{DEFAULT_TABLE, Replicas, TABLE};

pub(super) const OPTIONS: Table<CassandraOptions> = Table(&[
    option("mode", words::<Mode>(), "flat").means("how sequences are kept").field(|o| &mut o.mode),
    option("dc", DATACENTER, "")
        .means("the datacenter whose nodes the store uses; required for `geo` and `serial=local`")
        .field(|o| &mut o.datacenter),
    option("serial", words::<Serial>(), "serial")
        .means("flat only: which replicas agree")
        .field(|o| &mut o.serial),
    option("range", whole(1, u64::MAX), "")
        .means("geo only, and required: how many ids a window takes from the global counter at a time")
        .field(|o| &mut o.range),
    option("threshold", whole(1, 100), "50")
        .means("geo only: the remaining part of a range at which the next one is preloaded, in percent")
        .field(|o| &mut o.threshold),
    option("check", duration("0s", "24h"), "10s")
        .means("geo only: how soon a process learns that a sequence was set or removed elsewhere")
        .field(|o| &mut o.check),
    option("table", TABLE, DEFAULT_TABLE)
        .means(
            "the table; a keyspace can hold several, each its own namespace. The windows are in `…_windows`",
        )
        .field(|o| &mut o.table),
    option("timeout", TIMEOUT, "10s").means("how long a statement may take").field(|o| &mut o.timeout),
    option("create", words::<bool>(), "true")
        .means(
            "whether missing tables are created; otherwise they are an error that contains the CQL to \
             create them",
        )
        .field(|o| &mut o.create),
    option("create_keyspace", REPLICAS, "")
        .means(
            "creates a missing keyspace with these replicas; without it, a missing keyspace is an error \
             that contains the CQL",
        )
        .field(|o| &mut o.replicas),
    option("tls", words::<bool>(), "")
        .means("whether connections are encrypted; without it, they are if a file is named")
        .field(|o| &mut o.tls),
    option("ca", FILE, "")
        .means("a PEM file with the authorities that sign the nodes' certificates, in place of the system's")
        .field(|o| &mut o.ca),
    option("cert", FILE, "")
        .means("a PEM file with the client's certificate, if the nodes require one (`require_client_auth`)")
        .field(|o| &mut o.cert),
    option("key", FILE, "").means("a PEM file with the key of that certificate").field(|o| &mut o.key),
]);
const DATACENTER: Kind =
    text("NAME", "the name of a datacenter as `nodetool status` spells it", |name| !name.is_empty());
const REPLICAS: Kind =
    text("DC:REPLICAS,…", "DATACENTER:REPLICAS, with commas between several: `dc1:3,dc2:3`", |text| {
        parse_replicas(text).is_some()
    });

impl CassandraOptions {
    /// Reads what follows `cassandra:` in a URL.
    pub(crate) fn parse(rest: &str) -> Result<Self> {
        let rest = rest
            .strip_prefix("//")
            .ok_or_else(|| refuse("hosts follow two slashes: `cassandra://HOST/KEYSPACE`"))?;
        check_login(rest)?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, keyspace) = place.split_once('/').unwrap_or((place, ""));
        let (user, hosts) = match authority.rsplit_once('@') {
            Some((user, hosts)) => (Some(parse_user(user)?), hosts),
            None => (None, authority),
        };
        let mut options = Self::new(hosts.split(','), query::decoded(keyspace)?);
        options.user = user;
        let options = OPTIONS.read(query, options)?;
        options.check()?;
        Ok(options)
    }
}

impl FromStr for CassandraOptions {
    type Err = Error;

    fn from_str(url: &str) -> Result<Self> {
        Self::parse(query::after("cassandra", url)?)
    }
}

impl Target for CassandraOptions {
    fn scheme(&self) -> &'static str {
        "cassandra"
    }

    fn existing(&self) -> Arc<dyn Target> {
        Arc::new(Self { replicas: Replicas::default(), ..self.clone().create_tables(false) })
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
        write!(f, "{}/{}{}", self.hosts.join(","), self.keyspace, OPTIONS.print(self))
    }
}

impl fmt::Debug for CassandraOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CassandraOptions({self})")
    }
}

fn parse_user(user: &str) -> Result<(String, String)> {
    // Not echoed: it may be the password alone.
    let (user, password) = user.split_once(':').ok_or_else(|| {
        refuse("credentials are written `user:password@`; percent-encode what has a meaning in a URL")
    })?;
    Ok((query::decoded(user)?, query::decoded(password)?))
}

impl Typed for Replicas {
    fn of(value: Value) -> Option<Self> {
        if let Value::Text(text) = value { parse_replicas(&text) } else { None }
    }

    fn value(&self) -> Value {
        if self.0.is_empty() {
            return Value::Unset;
        }
        let each = self.0.iter().map(|(datacenter, count)| format!("{datacenter}:{count}"));
        Value::Text(each.collect::<Vec<_>>().join(","))
    }
}

fn parse_replicas(text: &str) -> Option<Replicas> {
    let one = |part: &str| {
        let (datacenter, count) = part.rsplit_once(':')?;
        let count = count.parse().ok().filter(|count| *count > 0)?;
        (!datacenter.is_empty()).then(|| (datacenter.to_owned(), count))
    };
    text.split(',').map(one).collect::<Option<_>>().map(Replicas)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use idmill::ErrorKind;
    use proptest::prelude::*;

    use super::*;

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
            ("//a/ids?mode=goe", "flat (one partition for each sequence), geo ("),
            ("//a/ids?mode=geo", "dc=NAME"),
            ("//a/ids?mode=geo&dc=x", "range=N"),
            ("//a/ids?mode=geo&dc=x&range=0", "range=\"0\" cannot be used: write a whole number, 1 or more"),
            ("//a/ids?mode=geo&dc=x&range=5&threshold=0", "1 to 100"),
            ("//a/ids?mode=geo&dc=x&range=5&threshold=101", "1 to 100"),
            ("//a/ids?mode=geo&dc=x&range=5&serial=local", "leave out serial=local"),
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
            ("//a/ids?cert=a.pem", "go together"),
            ("//a/ids?tls=false&ca=a.pem", "tls=false"),
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

    #[test]
    fn the_page_has_the_options() {
        OPTIONS.documented(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md"), "options");
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
            let read = CassandraOptions::parse(url.strip_prefix("cassandra:").unwrap()).unwrap();
            prop_assert!(read == options, "{}", url);
        }
    }
}
