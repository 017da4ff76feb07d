//! The options that the windows on all caches have, and how they mean the same in each.

use std::time::Duration;

use super::cache::Layout;
use super::pace::Limits;
use idmill_kit::options::{Entry, Kind, duration, option, text, whole};

/// How long a cache may be waited for.
pub const WAIT: Kind = duration("100ms", "1h");
/// What keys in a cache may begin with.
pub const PREFIX: Kind = text("NAME", "1 to 64 letters, digits, `_`, `.`, `-`, `:`", |prefix| {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-:".contains(&byte);
    (1..=64).contains(&prefix.len()) && prefix.bytes().all(plain)
});

/// The values of these options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WindowOptions {
    pub block: u64,
    pub max_skip: Option<Duration>,
    pub stub: Duration,
    pub refresh: Duration,
    pub timeout: Duration,
    pub prefix: String,
}

impl WindowOptions {
    pub fn limits(&self) -> Limits {
        Limits { most: self.block, lasts: self.max_skip, claim: self.stub }
    }
}

/// Options of a window that have these among them.
pub trait Windowed {
    fn window(&mut self) -> &mut WindowOptions;
}

pub const fn block<O: Windowed>() -> Entry<O> {
    let means = "the most ids in the window, unless a caller asks for more at once. If the cache forgets the window, at most this \
                 many are skipped. With 1, nothing is ever skipped, and each id is a write to the store";
    option("block", whole(1, Layout::MAX_LEN), "1000").means(means).field(|o| &mut o.window().block)
}

pub const fn max_skip<O: Windowed>() -> Entry<O> {
    let means = "limits the window to the ids drawn in this time, if that is less than a block; `none`: always a block";
    option("max_skip", duration("10ms", "1h").or_none(), "5s")
        .means(means)
        .field(|o| &mut o.window().max_skip)
}

/// How long a claim lives, in what a cache measures times in.
pub const fn stub<O: Windowed>(lives: Kind) -> Entry<O> {
    let means = "how long others wait for a process that died during a refill. A reserve from the store that takes longer is wasted, \
                 and an error that says so; the next claim lives twice as long as that reserve took";
    option("stub", lives, "5s").means(means).field(|o| &mut o.window().stub)
}

pub const fn refresh<O: Windowed>() -> Entry<O> {
    let means = "how long a process can continue with a sequence that was removed or set backwards; the window asks the store about \
                 a sequence in use this often";
    option("refresh", WAIT, "5s").means(means).field(|o| &mut o.window().refresh)
}

pub const fn timeout<O: Windowed>() -> Entry<O> {
    option("timeout", WAIT, "2s").means("how long to wait for the server").field(|o| &mut o.window().timeout)
}

pub const fn prefix<O: Windowed>() -> Entry<O> {
    option("prefix", PREFIX, "idmill").means("the prefix of every key").field(|o| &mut o.window().prefix)
}

/// The setters of these options, for the options of a window, which are [`Windowed`].
#[doc(hidden)]
#[macro_export]
macro_rules! window_setters {
    () => {
        /// The most ids in the window, 1 to 2^20, unless a caller requests more at once. A cache that forgets
        /// the window wastes at most this many. Default 1000. With 1, nothing is ever wasted, and each id is
        /// a write to the store.
        #[must_use]
        pub fn block(mut self, ids: u64) -> Self {
            self.window().block = ids;
            self
        }

        /// Limits the window to about the ids drawn in this time, 10 ms to 1 h, if that is less than a
        /// [block](Self::block). The store is written to two or three times in this time. `None`: the window
        /// always has a block. Default 5 s.
        #[must_use]
        pub fn max_skip(mut self, lasts: impl Into<Option<::std::time::Duration>>) -> Self {
            self.window().max_skip = lasts.into();
            self
        }

        /// How long others wait for a process that died during a refill, at most 1 h. A reserve from the
        /// store that takes longer is wasted, and an error; the next may take twice as long. Default 5 s.
        #[must_use]
        pub fn stub(mut self, lives: ::std::time::Duration) -> Self {
            self.window().stub = lives;
            self
        }

        /// How often the window asks the store about a sequence in use, 100 ms to 1 h. A process can continue
        /// for this long with a sequence that was removed or set backwards. Default 5 s.
        #[must_use]
        pub fn refresh(mut self, interval: ::std::time::Duration) -> Self {
            self.window().refresh = interval;
            self
        }

        /// How long to wait for the server, 100 ms to 1 h. Default 2 s.
        #[must_use]
        pub fn timeout(mut self, timeout: ::std::time::Duration) -> Self {
            self.window().timeout = timeout;
            self
        }

        /// The prefix of every key: 1 to 64 letters, digits, `_`, `.`, `-`, `:`. Default `idmill`. A copy of
        /// a store must not share a prefix with the original on one server: to the window the two are the
        /// same.
        #[must_use]
        pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
            self.window().prefix = prefix.into();
            self
        }
    };
}
