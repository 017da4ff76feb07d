//! How a URL says which cluster and how.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use idmill::store::Target;
use idmill::store::kit::query::{self, Printed};
use idmill::store::kit::refuse;
use idmill::store::kit::secrets::check_login;
use idmill::store::{Store, StoreFuture};
use idmill::{Error, Result};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::{CassandraOptions, DEFAULT_CHECK, DEFAULT_THRESHOLD, DEFAULT_TIMEOUT, Mode};
use crate::CassandraStore;
use crate::client::Serial;
use crate::schema::{DEFAULT_TABLE, Replicas};

const KNOWN: &str = "mode=flat|geo, dc=NAME, serial=serial|local, range=N, threshold=50%, check=10s, table=NAME, timeout=10s, \
                     create=yes|no, create_keyspace=DC:REPLICAS,…";
/// Milliseconds in 32 bits.
const LONGEST_DURATION: Duration = Duration::from_millis(u32::MAX as u64);

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
        let options = query::read(query, options, Self::set)?;
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
            "check" => self.check = duration(key, value)?,
            "table" => value.clone_into(&mut self.table),
            "timeout" => self.timeout = duration(key, value)?,
            "create" => self.create = one_of(key, value, &[("yes", true), ("no", false)])?,
            "create_keyspace" => self.replicas = parse_replicas(value)?,
            _ => return Err(query::unknown(key, KNOWN)),
        }
        Ok(self)
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
        let replicas: Vec<_> = self.replicas.iter().map(|(dc, count)| format!("{dc}:{count}")).collect();
        let options = Printed::default()
            .differing("mode", self.mode.as_str(), Mode::Flat.as_str())
            .given("dc", self.datacenter.as_ref())
            .differing("serial", self.serial.as_str(), Serial::Everywhere.as_str())
            .given("range", self.range)
            .differing("threshold", self.threshold, DEFAULT_THRESHOLD)
            .duration("check", self.check, DEFAULT_CHECK)
            .differing("table", self.table.as_str(), DEFAULT_TABLE)
            .duration("timeout", self.timeout, DEFAULT_TIMEOUT)
            .given("create", (!self.create).then_some("no"))
            .differing("create_keyspace", replicas.join(",").as_str(), "");
        write!(f, "{options}")
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

fn one_of<T: Copy>(key: &str, value: &str, known: &[(&str, T)]) -> Result<T> {
    known.iter().find(|(name, _)| *name == value).map(|(_, known)| *known).ok_or_else(|| {
        let names: Vec<_> = known.iter().map(|(name, _)| *name).collect();
        refuse(format!("{key}={value:?} is unknown; there are {}", names.join(", ")))
    })
}

fn whole<T: std::str::FromStr>(key: &str, value: &str) -> Result<T> {
    value.parse().map_err(|_| refuse(format!("{key}={value:?} is not a whole number that can be")))
}

fn duration(key: &str, value: &str) -> Result<Duration> {
    let such_as = "500ms, 5s, 1m (at most 49 days)";
    let read = query::duration(key, value, such_as)?;
    if read > LONGEST_DURATION { Err(query::not_a_duration(key, value, such_as)) } else { Ok(read) }
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
    use idmill::ErrorKind;
    use proptest::prelude::*;

    use super::*;

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
            ("//a/ids?check=4294967296ms", "49 days"),
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
