//! The common options of the windows on caches.

use std::time::Duration;

use super::cache::Layout;
use super::pace::Limits;
use idmill_kit::options::{Kind, duration, text, whole};

/// The valid timeouts of a cache.
pub const WAIT: Kind = duration("100ms", "1h");
/// The valid prefixes of keys in a cache.
pub const PREFIX: Kind = text("NAME", "1 to 64 letters, digits, `_`, `.`, `-`, `:`", |prefix| {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-:".contains(&byte);
    (1..=64).contains(&prefix.len()) && prefix.bytes().all(plain)
});

idmill_kit::options! {
    /// The options that the windows on all caches have.
    #[derive(Debug)]
    pub struct WindowOptions {}

    /// Maximum number of ids in the window, unless one call requests more, or the window is on memcached and
    /// its end, far from the sequence's start, is rounded up. If the cache loses the window, at most these
    /// ids are skipped. With `1`, none are skipped, but each id costs a write to the store.
    pub block: u64 = "1000" in whole(1, Layout::MAX_LEN);
    /// Limits the window to about the number of ids drawn in this time, if that is less than `block`. `none`:
    /// no such limit.
    pub max_skip: Option<Duration> = "5s" in duration("10ms", "1h").or_none();
    /// How long other processes wait, at least, if a process dies during a refill. A reserve that takes
    /// longer fails, and its ids become a gap. After that, the next refill may take twice as long as this
    /// reserve.
    pub stub: Duration = "5s" in WAIT;
    /// How often the window checks a sequence in use against the store. A process can use a removed or reset
    /// sequence for this long.
    pub refresh: Duration = "5s" in WAIT;
    /// How long to wait for the server.
    pub timeout: Duration = "2s" in WAIT;
    /// The prefix of every key.
    pub prefix: String = "idmill" in PREFIX;
}

impl Default for WindowOptions {
    fn default() -> Self {
        Self::with_defaults()
    }
}

impl WindowOptions {
    pub fn limits(&self) -> Limits {
        Limits { most: self.block, lasts: self.max_skip, claim: self.stub }
    }
}

/// Generates the setters of these options, which are in the field `window`.
#[doc(hidden)]
#[macro_export]
macro_rules! window_setters {
    () => {
        idmill_kit::setter! {
            /// The maximum number of ids in the window, 1 to 2^20, unless a caller requests more in one call,
            /// or the window is on memcached and its end, far from the sequence's start, is rounded up. A
            /// cache that loses the window wastes at most these ids. Default 1000. With 1, no id is wasted,
            /// and each id costs a write to the store.
            pub block = window.block: u64
        }
        idmill_kit::setter! {
            /// Limits the window to about the ids drawn in this time, 10 ms to 1 h, if that is less than a
            /// [block](Self::block). Refills then need two or three writes to the store in this time. `None`:
            /// the window always gets a full block. Default 5 s.
            pub max_skip = window.max_skip: Option<Duration>
        }
        idmill_kit::setter! {
            /// Minimum time that a refill blocks others if its process died, at most 1 h. A reserve from the
            /// store that takes longer fails, and its ids become a gap; the next refill may then take twice
            /// as long as that reserve. Default 5 s.
            pub stub = window.stub: Duration
        }
        idmill_kit::setter! {
            /// How often the window reads a sequence in use from the store, 100 ms to 1 h. A process can
            /// continue for this long with a sequence that was removed or set backwards. Default 5 s.
            pub refresh = window.refresh: Duration
        }
        idmill_kit::setter! {
            /// The timeout for the server, 100 ms to 1 h. Default 2 s.
            pub timeout = window.timeout: Duration
        }
        idmill_kit::setter! {
            /// The prefix of every key: 1 to 64 letters, digits, `_`, `.`, `-`, `:`. Default `idmill`. A copy
            /// of a store must not share a prefix with the original on one server: the window cannot
            /// distinguish them.
            pub prefix = window.prefix: String
        }
    };
}
