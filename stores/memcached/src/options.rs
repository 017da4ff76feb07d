//! The memcached server and how its window is used, and their URL form.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use idmill::store::kit::query::{self, Printed};
use idmill::store::kit::refuse;
use idmill::tier::cache::Layout;
use idmill::tier::max_skip;
use idmill::tier::pace::Limits;
use idmill::{Error, Result};

const DEFAULT_PORT: u16 = 11211;
const DEFAULT_BLOCK: u64 = 1_000;
const DEFAULT_STUB: Duration = Duration::from_secs(5);
const DEFAULT_REFRESH: Duration = Duration::from_secs(5);
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(2);
const DEFAULT_PREFIX: &str = "idmill";
const LONGEST_PREFIX: usize = 64;
const KNOWN: &str = "block=1000, max_skip=5s, stub=5s, refresh=5s, timeout=2s, prefix=idmill";

/// A memcached server, and how its window is used.
///
/// As a URL: `memcached://HOST:PORT?block=1000&max_skip=5s&stub=5s&refresh=5s&timeout=2s&prefix=idmill`.
///
/// ```
/// use idmill_memcached::MemcachedOptions;
///
/// let options = MemcachedOptions::new("cache-1:11211").block(5_000);
/// assert_eq!(options.to_string(), "memcached://cache-1:11211?block=5000");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemcachedOptions {
    pub(super) address: String,
    pub(super) block: u64,
    pub(super) max_skip: Option<Duration>,
    pub(super) stub: Duration,
    pub(super) refresh: Duration,
    pub(super) timeout: Duration,
    pub(super) prefix: String,
}

impl MemcachedOptions {
    /// The server at `HOST:PORT`, with every option at its default. Checked when the window is made.
    pub fn new(address: impl Into<String>) -> Self {
        Self {
            address: address.into(),
            block: DEFAULT_BLOCK,
            max_skip: max_skip::DEFAULT,
            stub: DEFAULT_STUB,
            refresh: DEFAULT_REFRESH,
            timeout: DEFAULT_TIMEOUT,
            prefix: DEFAULT_PREFIX.to_owned(),
        }
    }

    /// The most ids in the window, 1 to 2^20, unless a caller requests more at once. An eviction wastes at
    /// most this many. Default 1000. With 1, nothing is ever wasted, and each id is a write to the store.
    #[must_use]
    pub fn block(mut self, ids: u64) -> Self {
        self.block = ids;
        self
    }

    /// Limits the window to about the ids drawn in this time, 10 ms to 1 h, if that is less than a
    /// [block](Self::block). The store is written to two or three times in this time. `None`: the window
    /// always has a block. Default 5 s.
    #[must_use]
    pub fn max_skip(mut self, lasts: impl Into<Option<Duration>>) -> Self {
        self.max_skip = lasts.into();
        self
    }

    /// How long others wait for a process that died during a refill: 2 s to 1 h, in whole seconds. A reserve
    /// from the store that takes longer is wasted, and an error; the next may take twice as long. Default 5
    /// s.
    #[must_use]
    pub fn stub(mut self, lives: Duration) -> Self {
        self.stub = lives;
        self
    }

    /// How often the window asks the store about a sequence in use, 100 ms to 1 h. A process can continue for
    /// this long with a sequence that was removed or set backwards. Default 5 s.
    #[must_use]
    pub fn refresh(mut self, interval: Duration) -> Self {
        self.refresh = interval;
        self
    }

    /// How long to wait for the server, 100 ms to 1 h. Default 2 s.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The prefix of every key: 1 to 64 letters, digits, `_`, `.`, `-`, `:`. Default `idmill`. A copy of a
    /// store must not share a prefix with the original on one server: to the window the two are the same.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// The address of the server, as given.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Parses a URL, without network access.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput), with what is accepted.
    pub fn parse(url: &str) -> Result<Self> {
        let rest = strip_scheme(url)?;
        let (address, query) = rest.split_once('?').unwrap_or((rest, ""));
        let options = Self::new(with_port(address.strip_suffix('/').unwrap_or(address))?);
        let options = query::read(query, options, Self::set)?;
        options.check()?;
        Ok(options)
    }

    fn set(self, key: &str, value: &str) -> Result<Self> {
        Ok(match key {
            "block" => {
                let ids =
                    value.parse().map_err(|_| refuse(format!("block={value:?} is not a number of ids")))?;
                self.block(ids)
            }
            "max_skip" => self.max_skip(max_skip::read(value)?),
            "stub" => self.stub(duration(key, value)?),
            "refresh" => self.refresh(duration(key, value)?),
            "timeout" => self.timeout(duration(key, value)?),
            "prefix" => self.prefix(value),
            _ => return Err(query::unknown(key, KNOWN)),
        })
    }

    pub(super) fn limits(&self) -> Limits {
        Limits { most: self.block, lasts: self.max_skip, claim: self.stub }
    }

    pub(super) fn check(&self) -> Result<()> {
        check_address(&self.address)?;
        if !(1..=Layout::MAX_LEN).contains(&self.block) {
            return Err(refuse(format!("block={}; it must be 1 to {} ids", self.block, Layout::MAX_LEN)));
        }
        max_skip::check(self.max_skip)?;
        let whole = self.stub.subsec_nanos() == 0;
        if !whole || !(2..=3600).contains(&self.stub.as_secs()) {
            return Err(refuse(format!("stub={:?}; it must be whole seconds, 2s to 60m", self.stub)));
        }
        for (key, value) in [("refresh", self.refresh), ("timeout", self.timeout)] {
            if !(Duration::from_millis(100)..=Duration::from_secs(3600)).contains(&value) {
                return Err(refuse(format!("{key}={value:?}; it must be 100ms to 60m")));
            }
        }
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-:".contains(&byte);
        if self.prefix.is_empty() || self.prefix.len() > LONGEST_PREFIX || !self.prefix.bytes().all(plain) {
            let rule = "it must be 1 to 64 letters, digits, `_`, `.`, `-`, `:`";
            return Err(refuse(format!("prefix={:?}; {rule}", self.prefix)));
        }
        Ok(())
    }
}

impl FromStr for MemcachedOptions {
    type Err = Error;

    fn from_str(url: &str) -> Result<Self> {
        Self::parse(url)
    }
}

impl fmt::Display for MemcachedOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let block = Printed::default().differing("block", self.block, DEFAULT_BLOCK);
        let options = max_skip::print(block, self.max_skip)
            .duration("stub", self.stub, DEFAULT_STUB)
            .duration("refresh", self.refresh, DEFAULT_REFRESH)
            .duration("timeout", self.timeout, DEFAULT_TIMEOUT)
            .differing("prefix", self.prefix.as_str(), DEFAULT_PREFIX);
        write!(f, "memcached://{}{options}", self.address)
    }
}

fn strip_scheme(url: &str) -> Result<&str> {
    let (scheme, rest) = url.split_once("://").unwrap_or((url, ""));
    if scheme.eq_ignore_ascii_case("memcached") {
        return Ok(rest);
    }
    // Not the text itself: it may hold a password.
    Err(refuse("a window is written `memcached://HOST:PORT?block=1000`"))
}

fn with_port(address: &str) -> Result<String> {
    check_host(address)?;
    // The colons inside the brackets of an IPv6 address are none of a port.
    let after = address.rfind(']').map_or(0, |bracket| bracket + 1);
    let port = address[after..].contains(':');
    Ok(if port { address.to_owned() } else { format!("{address}:{DEFAULT_PORT}") })
}

fn check_host(address: &str) -> Result<()> {
    if address.contains('@') {
        return Err(refuse("a user and a password are not supported for memcached: restrict its network"));
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-:[]%".contains(&byte);
    if address.is_empty() || !address.bytes().all(plain) {
        return Err(refuse(format!("{address:?} is not HOST:PORT of a memcached server")));
    }
    Ok(())
}

fn check_address(address: &str) -> Result<()> {
    check_host(address)?;
    let port = address.rsplit_once(':').filter(|(host, _)| {
        let bracketed = host.starts_with('[') && host.ends_with(']');
        !host.is_empty() && (bracketed || !host.contains([':', '[', ']']))
    });
    if port.and_then(|(_, port)| port.parse::<u16>().ok()).is_none_or(|port| port == 0) {
        return Err(refuse(format!(
            "{address:?} is not HOST:PORT of a memcached server, such as 10.0.0.7:11211"
        )));
    }
    Ok(())
}

fn duration(key: &str, value: &str) -> Result<Duration> {
    query::duration(key, value, "500ms, 5s, 1m")
}

#[cfg(test)]
mod tests {
    use idmill::ErrorKind;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_option_is_read() {
        let url = "memcached://cache-1?block=5&max_skip=200ms&stub=2s&refresh=500ms&timeout=1m&prefix=a:b";
        let expected = MemcachedOptions::new("cache-1:11211")
            .block(5)
            .max_skip(Duration::from_millis(200))
            .stub(Duration::from_secs(2))
            .refresh(Duration::from_millis(500))
            .timeout(Duration::from_secs(60))
            .prefix("a:b");
        assert_eq!(MemcachedOptions::parse(url).unwrap(), expected);
        for (url, address) in [
            ("memcached://10.0.0.1:5", "10.0.0.1:5"),
            ("MEMCACHED://x/", "x:11211"),
            ("memcached://[::1]", "[::1]:11211"),
            ("memcached://[::1]:5", "[::1]:5"),
        ] {
            assert_eq!(MemcachedOptions::parse(url).unwrap(), MemcachedOptions::new(address), "{url}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_remedy() {
        for (url, remedy) in [
            ("", "memcached://HOST:PORT"),
            ("redis://x", "memcached://HOST:PORT"),
            ("memcached:x", "memcached://HOST:PORT"),
            ("memcached://", "HOST:PORT"),
            ("memcached://user:secret@x", "not supported"),
            ("memcached://x:0", "11211"),
            ("memcached://x:99999", "11211"),
            ("memcached://::1", "11211"),
            ("memcached://a b", "HOST:PORT"),
            ("memcached://x/y", "HOST:PORT"),
            ("memcached://x?block=0", "1 to 1048576"),
            ("memcached://x?block=1048577", "1 to 1048576"),
            ("memcached://x?block=-1", "number of ids"),
            ("memcached://x?max_skip=1ms", "10ms to 60m"),
            ("memcached://x?max_skip=never", "500ms, 5s, none"),
            ("memcached://x?stub=1s", "2s to 60m"),
            ("memcached://x?stub=2500ms", "whole seconds"),
            ("memcached://x?refresh=0s", "100ms to 60m"),
            ("memcached://x?timeout=61m", "100ms to 60m"),
            ("memcached://x?timeout=5", "500ms, 5s, 1m"),
            ("memcached://x?prefix=", "1 to 64 letters"),
            ("memcached://x?prefix=a%20b", "1 to 64 letters"),
            ("memcached://x?bloc=5", "block=1000"),
            ("memcached://x?block=5&block=6", "twice"),
        ] {
            let error = MemcachedOptions::parse(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{url}");
            assert!(error.to_string().contains(remedy), "{url}: {error}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn display_reads_back(
            host in "[a-z0-9.-]{1,20}", port in 1..=u16::MAX, block in 1..=Layout::MAX_LEN, stub in 2..=3600_u64,
            refresh in 100..=3_600_000_u64, timeout in 100..=3_600_000_u64, prefix in "[A-Za-z0-9_.:-]{1,64}",
            skip in prop::option::of(10..=3_600_000_u64),
        ) {
            let options = MemcachedOptions::new(format!("{host}:{port}"))
                .block(block)
                .max_skip(skip.map(Duration::from_millis))
                .stub(Duration::from_secs(stub))
                .refresh(Duration::from_millis(refresh))
                .timeout(Duration::from_millis(timeout))
                .prefix(prefix);
            prop_assert_eq!(MemcachedOptions::parse(&options.to_string()).unwrap(), options);
        }
    }
}
