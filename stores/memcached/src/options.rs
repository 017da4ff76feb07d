//! The options of the window: the memcached server, the settings, and the URL form.

use std::time::Duration;

use idmill::Result;
use idmill_kit::options::{Entry, Options as _, duration};
use idmill_kit::{Address, refuse};
use idmill_shared_cache::options::WindowOptions;

const DEFAULT_PORT: u16 = 11211;

idmill_kit::options! {
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
    pub struct MemcachedOptions at hosts "memcached" as "memcached://HOST:PORT?block=1000" {
        /// `HOST:PORT`.
        pub address: String,
        /// How the window is used.
        pub window: WindowOptions,
    }
    use window as |entry| Some(in_seconds(entry));
}

/// Restricts `stub` to whole seconds, at least 2: memcached counts lifetimes in seconds, and the first
/// second may be shorter.
fn in_seconds(mut entry: Entry<'_>) -> Entry<'_> {
    if entry.about.key == "stub" {
        entry.about.kind = duration("2s", "1h").in_steps_of("1s");
    }
    entry
}

impl MemcachedOptions {
    /// Creates options for the server at `HOST:PORT`. Every other option has its default. Options are
    /// checked when the window is created.
    pub fn new(address: impl Into<String>) -> Self {
        Self::with_defaults(address.into(), WindowOptions::default())
    }

    idmill_shared_cache::window_setters!();

    /// Returns the address of the server as given.
    pub fn address(&self) -> &str {
        &self.address
    }

    fn at(_: &str, place: &str) -> Result<Self> {
        let address = server(place.strip_suffix('/').unwrap_or(place), Some(DEFAULT_PORT))?;
        Ok(Self::new(address.to_string()))
    }

    fn place(&self) -> String {
        format!("memcached://{}", self.address)
    }

    pub(super) fn check(&self) -> Result<()> {
        server(&self.address, None)?;
        self.check_values()
    }
}

/// Parses an address. The port is optional if there is a default, as in a URL, and required otherwise.
fn server(address: &str, default: Option<u16>) -> Result<Address> {
    if address.contains('@') {
        return Err(refuse(
            "the window does not support user and password; restrict memcached's network instead",
        ));
    }
    Address::parse(address, default).ok_or_else(|| {
        refuse(format!("{address:?} is not HOST:PORT of a memcached server, such as 10.0.0.7:11211"))
    })
}

#[cfg(test)]
mod tests {
    use idmill::ErrorKind;
    use idmill_shared_cache::cache::Layout;
    use idmill_testing::OptionsPage as _;
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
    fn invalid_options_are_rejected_with_the_remedy() {
        for (url, remedy) in [
            ("", "memcached://HOST:PORT"),
            ("redis://x", "memcached://HOST:PORT"),
            ("memcached:x", "memcached://HOST:PORT"),
            ("memcached://", "HOST:PORT"),
            ("memcached://user:secret@x", "does not support"),
            ("memcached://x:0", "11211"),
            ("memcached://x:99999", "11211"),
            ("memcached://::1", "HOST:PORT"),
            ("memcached://a b", "HOST:PORT"),
            ("memcached://x/y", "HOST:PORT"),
            ("memcached://x?block=0", "1 to 1048576"),
            ("memcached://x?block=1048577", "1 to 1048576"),
            ("memcached://x?block=-1", "1 to 1048576, such as block=1000"),
            ("memcached://x?max_skip=1ms", "10ms to 1h"),
            ("memcached://x?max_skip=never", "10ms to 1h, or none, such as max_skip=5s"),
            ("memcached://x?stub=1s", "2s to 1h"),
            ("memcached://x?stub=2500ms", "2s to 1h in steps of 1s"),
            ("memcached://x?refresh=0s", "100ms to 1h"),
            ("memcached://x?timeout=61m", "100ms to 1h"),
            ("memcached://x?timeout=5", "ms, s, m or h), 100ms to 1h, such as timeout=2s"),
            ("memcached://x?prefix=", "1 to 64 letters"),
            ("memcached://x?prefix=a%20b", "1 to 64 letters"),
            ("memcached://x?bloc=5", "block=1000"),
            ("memcached://x?block=5&block=6", "duplicate option"),
        ] {
            let error = MemcachedOptions::parse(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{url}");
            assert!(error.to_string().contains(remedy), "{url}: {error}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }

    #[test]
    fn the_page_has_the_options() {
        MemcachedOptions::new("h:1").documented(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md"), "options");
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
