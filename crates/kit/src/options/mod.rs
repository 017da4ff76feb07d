//! The options of a store: a struct, declared once by [`options!`](crate::options!), whose fields each have a
//! default, bounds and a description. The declaration drives URL parsing, the validation of values from
//! setters, the errors, the printed URL and the table on the store's page.
//!
//! ```
//! use std::time::Duration;
//! use idmill_kit::options::{Options, TIMEOUT, whole, words};
//!
//! idmill_kit::options! {
//!     /// A toy.
//!     pub struct ToyOptions at path "toy" as "toy:PATH" {
//!         /// The file.
//!         pub path: String,
//!     }
//!     /// How long to wait.
//!     pub timeout: Duration = "5s" in TIMEOUT;
//!     /// How many files there are.
//!     pub copies: u32 = "1" in whole(1, 9);
//!     /// Whether to sync to disk.
//!     pub sync: bool = "true" in words::<bool>();
//! }
//!
//! impl ToyOptions {
//!     pub fn new(path: impl Into<String>) -> Self {
//!         Self::with_defaults(path.into())
//!     }
//!
//!     /// Parses the text between the colon and the question mark.
//!     fn at(_scheme: &str, place: &str) -> idmill::Result<Self> {
//!         Ok(Self::new(place))
//!     }
//!
//!     /// Prints the text before the question mark.
//!     fn place(&self) -> String {
//!         format!("toy:{}", self.path)
//!     }
//!
//!     fn check(&self) -> idmill::Result<()> {
//!         self.check_values()
//!     }
//! }
//!
//! let toy = ToyOptions::parse("toy:ids?copies=3&timeout=250ms")?;
//! assert_eq!(toy, ToyOptions::new("ids").timeout(Duration::from_millis(250)).copies(3));
//! assert_eq!(toy.to_string(), "toy:ids?timeout=250ms&copies=3");
//! assert!(toy.copies(10).check().is_err(), "`copies` is above its maximum");
//! # Ok::<(), idmill::Error>(())
//! ```

mod declare;
mod field;
mod kind;
mod tls;

use std::fmt::Write as _;

use super::{query, refuse};
use idmill::{Error, Result};

pub use field::{Field, Typed, Word};
pub use kind::{ADDRESS, FILE, Kind, TIMEOUT, duration, text, whole, words};
pub use tls::Tls;

/// Options declared by [`options!`](crate::options!), which implements this trait.
pub trait Options: Clone {
    /// Returns each option with its field, in printing order.
    fn entries(&mut self) -> Vec<Entry<'_>>;

    /// Parses the text after the question mark of a URL, and decodes its percent-encoding.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for an unknown option or an invalid value, with the
    /// valid ones; for a duplicate option.
    fn read(self, query: &str) -> Result<Self> {
        query::read(query, self, |mut options, key, value| {
            if options.set(key, value)? { Ok(options) } else { Err(options.unknown(key)) }
        })
    }

    /// Sets the option `key`. Returns whether it exists.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for an invalid value.
    fn set(&mut self, key: &str, value: &str) -> Result<bool> {
        let Some(entry) = self.entries().into_iter().find(|entry| entry.about.key == key) else {
            return Ok(false);
        };
        if entry.about.set(entry.field, value) { Ok(true) } else { Err(entry.about.refuse(value)) }
    }

    /// Checks all values, including those from setters, by the same rules as [`read`](Self::read).
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn check_values(&self) -> Result<()> {
        self.clone().entries().iter().try_for_each(|Entry { about, field }| {
            let value = field.get();
            if about.fits(value.as_deref()) { Ok(()) } else { Err(about.refuse(&about.text(value))) }
        })
    }

    /// Returns the URL: `place`, and the options that are not at their defaults.
    fn url(&self, mut place: String) -> String {
        for Entry { about, field } in self.clone().entries() {
            let value = about.text(field.get());
            if value != about.default {
                query::append(&mut place, about.key, &value);
            }
        }
        place
    }

    /// Returns the error for an unknown option: it lists all options, or for `failover` advises a guard.
    fn unknown(&self, key: &str) -> Error {
        if key == "failover" {
            return refuse(
                "unknown option `failover`: this store detects no failovers; use `idmill-guard` or `guard=URL` against \
                 repeated ids",
            );
        }
        refuse(format!("unknown option `{key}`; use one of: {}", self.known()))
    }

    /// Lists all options for messages, each with its words, default or placeholder: `timeout=5s, ca=FILE`.
    fn known(&self) -> String {
        let mut known = String::new();
        for Entry { about: Described { key, kind, default, .. }, .. } in self.clone().entries() {
            let separator = if known.is_empty() { "" } else { ", " };
            let _ = write!(known, "{separator}{key}={}", kind.hint(default));
        }
        known
    }
}

/// An option with its field.
#[expect(missing_debug_implementations, reason = "a field may hold a secret")]
#[expect(clippy::exhaustive_structs, reason = "the macro `options!` constructs it")]
pub struct Entry<'a> {
    /// The description of the option.
    pub about: Described,
    /// The field with the value.
    pub field: &'a mut dyn Field,
}

impl Entry<'_> {
    /// Returns the entry if its key is one of `keys`: for `use FIELD as FILTER` in
    /// [`options!`](crate::options!).
    pub fn among(self, keys: &[&str]) -> Option<Self> {
        keys.contains(&self.about.key).then_some(self)
    }
}

/// The description of an option.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "made by `options!`")]
pub struct Described {
    /// The key in a URL, `key=VALUE`.
    pub key: &'static str,
    /// The valid values.
    pub kind: Kind,
    /// The default, written as in a URL; empty for none.
    pub default: &'static str,
    /// The meaning, in Markdown. The first paragraph appears on the store's page.
    pub means: &'static str,
}

impl Described {
    /// Returns the default as the value of a field.
    ///
    /// # Panics
    /// If the default is invalid, or the field cannot hold it.
    pub fn usual<T: Typed>(self) -> T {
        let unset = self.default.is_empty().then(T::unset).flatten();
        let usual = unset.or_else(|| self.kind.fits(self.default).then(|| T::of(self.default)).flatten());
        usual.unwrap_or_else(|| panic!("{}={} cannot be the default", self.key, self.default))
    }

    /// Sets the field. Returns whether the value is valid.
    fn set(self, field: &mut dyn Field, text: &str) -> bool {
        if self.kind.takes_none() && text == kind::NONE {
            return field.set(None);
        }
        self.kind.fits(text) && field.set(Some(text))
    }

    /// Returns whether the value is valid: within its bounds, or missing where it is optional.
    fn fits(self, value: Option<&str>) -> bool {
        value.map_or(self.default.is_empty() || self.kind.takes_none(), |value| self.kind.fits(value))
    }

    /// Returns the text for a URL; empty or `none` if the value is unset.
    fn text(self, value: Option<String>) -> String {
        let unset = if self.kind.takes_none() { kind::NONE } else { "" };
        value.unwrap_or_else(|| unset.to_owned())
    }

    fn refuse(self, value: &str) -> Error {
        refuse(format!("{}={value:?} {}", self.key, self.kind.remedy(self.key, self.default)))
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use super::*;
    use crate::Mode;
    use idmill::ErrorKind;
    use proptest::prelude::*;

    const NAME: Kind = text("NAME", "1 to 9 letters", |name| {
        (1..=9).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphabetic())
    });
    crate::options! {
        #[derive(Debug)]
        struct Toy {}
        /// What opening may do.
        mode: Mode = "rwc" in words::<Mode>();
        /// How long to wait.
        timeout: Duration = "5s" in duration("100ms", "1h");
        /// How long it lasts.
        lasts: Option<Duration> = "2s" in duration("10ms", "1h").or_none();
        /// How long it lives.
        stub: Duration = "5s" in duration("2s", "1h").in_steps_of("1s");
        /// How many there are.
        copies: u8 = "2" in whole(1, 9);
        /// How many ids.
        range: Option<u64> = "" in whole(1, u64::MAX);
        /// Its name | and more.
        name: String = "toy" in NAME;
        /// Whom to trust.
        ca: Option<PathBuf> = "" in FILE;
        /// Whether it is encrypted.
        encrypted ("tls"): Option<bool> = "" in words::<bool>();
    }

    fn usual() -> Toy {
        Toy::with_defaults()
    }

    #[test]
    fn omitted_options_have_defaults_and_are_not_printed() {
        let expected = Toy {
            mode: Mode::Create,
            timeout: Duration::from_secs(5),
            lasts: Some(Duration::from_secs(2)),
            stub: Duration::from_secs(5),
            copies: 2,
            range: None,
            name: "toy".to_owned(),
            ca: None,
            encrypted: None,
        };
        assert_eq!(usual(), expected);
        assert_eq!(usual().read("").unwrap(), expected);
        assert_eq!(expected.url("toy:".to_owned()), "toy:");
        assert!(expected.check_values().is_ok());
    }

    #[test]
    fn every_kind_is_read_and_printed() {
        let url = "mode=ro&timeout=2m&lasts=none&stub=90s&copies=9&range=7&name=x&ca=/a%20b&tls=false";
        let read = usual().read(url).unwrap();
        let expected = Toy {
            mode: Mode::ReadOnly,
            timeout: Duration::from_secs(120),
            lasts: None,
            stub: Duration::from_secs(90),
            copies: 9,
            range: Some(7),
            name: "x".to_owned(),
            ca: Some("/a b".into()),
            encrypted: Some(false),
        };
        assert_eq!(read, expected);
        assert_eq!(read.url("toy:".to_owned()), format!("toy:?{url}"));
        assert!(read.check_values().is_ok());
    }

    #[test]
    fn bad_option_error_names_key_value_and_allowed_values() {
        let known = "unknown option `nmae`; use one of: mode=ro|rw|rwc, timeout=5s, lasts=2s, stub=5s, copies=2, range=N, name=toy, \
                     ca=FILE, tls=true|false";
        let time = "write a whole number and its unit (ms, s, m or h)";
        for (query, message) in [
            ("nmae=x", known.to_owned()),
            ("name=x&n%61me=y", "duplicate option `name`; keep only one".to_owned()),
            (
                "mode=x",
                "mode=\"x\" is unknown; use one of: ro (read-only), rw (must exist), rwc (may create)"
                    .to_owned(),
            ),
            ("tls=yes", "tls=\"yes\" is unknown; use one of: true, false".to_owned()),
            ("timeout=5", format!("timeout=\"5\" cannot be used: {time}, 100ms to 1h, such as timeout=5s")),
            (
                "timeout=99ms",
                format!("timeout=\"99ms\" cannot be used: {time}, 100ms to 1h, such as timeout=5s"),
            ),
            (
                "lasts=never",
                format!("lasts=\"never\" cannot be used: {time}, 10ms to 1h, or none, such as lasts=2s"),
            ),
            (
                "stub=2500ms",
                format!("stub=\"2500ms\" cannot be used: {time}, 2s to 1h in steps of 1s, such as stub=5s"),
            ),
            (
                "copies=-1",
                "copies=\"-1\" cannot be used: write a whole number, 1 to 9, such as copies=2".to_owned(),
            ),
            ("copies=300", "write a whole number, 1 to 9, such as copies=2".to_owned()),
            ("range=0", "range=\"0\" cannot be used: write a whole number, 1 or more".to_owned()),
            ("name=", "name=\"\" cannot be used: write 1 to 9 letters, such as name=toy".to_owned()),
            ("ca=", "ca=\"\" cannot be used: write the path of a file".to_owned()),
        ] {
            let error = usual().read(query).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{query}");
            assert!(error.to_string().ends_with(&message), "{query}: {error}");
        }
    }

    /// The option would have no effect, but its user would rely on it.
    #[test]
    fn store_without_history_rejects_failover() {
        let error = usual().read("failover=refuse").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let message = "connect: unknown option `failover`: this store detects no failovers; use `idmill-guard` or `guard=URL` \
                       against repeated ids";
        assert_eq!(error.to_string(), message);
    }

    #[test]
    fn setters_are_held_to_the_same_bounds() {
        let nanosecond = Duration::from_nanos(1);
        for (toy, message) in [
            (Toy { timeout: Duration::from_nanos(99_999_999), ..usual() }, "timeout=\"99999999ns\""),
            (Toy { timeout: Duration::from_secs(3600) + nanosecond, ..usual() }, "100ms to 1h"),
            (Toy { stub: Duration::from_millis(2500), ..usual() }, "in steps of 1s"),
            (Toy { lasts: Some(Duration::ZERO), ..usual() }, "lasts=\"0s\""),
            (Toy { copies: 0, ..usual() }, "copies=\"0\" cannot be used: write a whole number, 1 to 9"),
            (Toy { range: Some(0), ..usual() }, "1 or more"),
            (Toy { name: "x y".to_owned(), ..usual() }, "name=\"x y\" cannot be used"),
            (Toy { ca: Some("".into()), ..usual() }, "the path of a file"),
        ] {
            let error = toy.check_values().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains(message), "{error}");
        }
    }

    #[test]
    #[should_panic(expected = "copies=x cannot be the default")]
    fn a_default_that_cannot_be_is_found() {
        crate::options! {
            struct Wrong {}
            /// How many there are.
            copies: u8 = "x" in whole(1, 9);
        }
        let _ = Wrong::with_defaults();
    }

    proptest! {
        #[test]
        fn valid_options_round_trip(query in "((timeout|lasts|stub|copies|range|name|ca|mode)=([0-9]{1,4}(ms|s|m|h)?|none|rw|[a-z]{1,9}|\\PC{0,9})&?){0,3}") {
            if let Ok(toy) = usual().read(&query) {
                prop_assert!(toy.check_values().is_ok());
                let printed = toy.url(String::new());
                prop_assert_eq!(usual().read(printed.trim_start_matches('?')).unwrap(), toy);
            }
        }
    }

    /// The default timeout of a request is between the bounds that every store shares.
    #[test]
    fn shared_kinds_have_their_documented_bounds() {
        for (kind, takes, valid, invalid) in [
            (TIMEOUT, "1ms to 24h", ["1ms", "24h"], ["999us", "86400001ms"]),
            (FILE, "the path of a file", ["x", "/a/b"], ["", ""]),
            (ADDRESS, "HOST:PORT, as in `localhost:9010`", ["h:1", "[::1]:65535"], ["h", "h:0"]),
            (whole(2, 9), "2 to 9", ["2", "9"], ["1", "10"]),
            (
                duration("2s", "4s").in_steps_of("2s"),
                "2s to 4s in steps of 2s",
                ["2s", "4000ms"],
                ["3s", "6s"],
            ),
            (duration("2s", "4s").or_none(), "2s to 4s, or `none`", ["2s", "3s"], ["1s", "none"]),
            (words::<Mode>(), "`ro`, `rw`, `rwc`", ["ro", "rwc"], ["", "RO"]),
        ] {
            assert_eq!(kind.takes(), takes);
            for (value, fits) in
                valid.map(|value| (value, true)).into_iter().chain(invalid.map(|value| (value, false)))
            {
                assert_eq!(kind.fits(value), fits, "{takes}: {value}");
            }
        }
        let remedy = "write a whole number and its unit (ms, s, m or h), 1ms to 24h";
        let error = TIMEOUT.check("IDMILL_TIMEOUT", "5").unwrap_err().to_string();
        assert_eq!(error, format!("connect: IDMILL_TIMEOUT=\"5\" cannot be used: {remedy}"));
        TIMEOUT.check("IDMILL_TIMEOUT", "5s").unwrap();
    }

    #[test]
    fn subset_of_the_options_has_only_its_keys() {
        let mut toy = usual();
        let keys = |entries: Vec<Entry<'_>>| entries.iter().map(|entry| entry.about.key).collect::<Vec<_>>();
        let some = toy.entries().into_iter().filter_map(|entry| entry.among(&["tls", "ca"])).collect();
        assert_eq!(keys(some), ["ca", "tls"]);
    }
}
