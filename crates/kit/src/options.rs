//! The options of a store, in one [`Table`]: their keys, what values they take, their defaults, and a
//! sentence on each. URLs are read by it, the values that setters gave are checked by it, and the errors, the
//! printed URL and the table on the store's page come from it.
//!
//! ```
//! use std::time::Duration;
//! use idmill_kit::options::{Table, duration, option, whole, words};
//!
//! #[derive(Clone, Debug, Default, PartialEq)]
//! struct ToyOptions {
//!     timeout: Duration,
//!     copies: u32,
//!     sync: bool,
//! }
//!
//! const OPTIONS: Table<ToyOptions> = Table(&[
//!     option("timeout", duration("1ms", "24h"), "5s").means("how long to wait").field(|o| &mut o.timeout),
//!     option("copies", whole(1, 9), "1").means("how many files there are").field(|o| &mut o.copies),
//!     option("sync", words::<bool>(), "true").means("whether the disk is waited for").field(|o| &mut o.sync),
//! ]);
//!
//! let toy = OPTIONS.read("copies=3&timeout=250ms", OPTIONS.with_defaults(ToyOptions::default()))?;
//! assert_eq!(toy, ToyOptions { timeout: Duration::from_millis(250), copies: 3, sync: true });
//! assert_eq!(OPTIONS.print(&toy).to_string(), "?timeout=250ms&copies=3");
//! assert!(OPTIONS.check(&ToyOptions { copies: 10, ..toy }).is_err(), "a setter gave too many");
//! # Ok::<(), idmill::Error>(())
//! ```
//!
//! [`query`] reads what is not in a table: options that belong to a driver, say.

mod field;
mod kind;
mod page;

use super::query::{self, Printed};
use super::{history, refuse};
use idmill::{Error, Result};

pub use field::{Field, Typed, Value, Word};
pub use kind::{ADDRESS, FILE, Kind, TIMEOUT, duration, text, whole, words};

/// The options of a store whose options are an `O`, in the order in which they are printed.
#[derive(Debug)]
pub struct Table<O: 'static>(pub &'static [Entry<O>]);

/// One option of a store whose options are an `O`: see [`option`].
#[derive(Debug)]
pub struct Entry<O> {
    about: Described,
    field: fn(&mut O) -> &mut dyn Field,
}

/// An option as users see it, of which the [field](Self::field) is to follow.
#[derive(Clone, Copy, Debug)]
pub struct Described {
    key: &'static str,
    kind: Kind,
    default: &'static str,
    means: &'static str,
}

/// An option: `key=VALUE` in a URL, with a value of this kind. The default is written as in a URL, and is
/// empty if there is none.
pub const fn option(key: &'static str, kind: Kind, default: &'static str) -> Described {
    Described { key, kind, default, means: "" }
}

impl Described {
    /// What it means, in a phrase for the store's page, such as "how long to wait for the server".
    #[must_use]
    pub const fn means(self, means: &'static str) -> Self {
        Self { means, ..self }
    }

    /// Where its value is.
    pub const fn field<O>(self, field: fn(&mut O) -> &mut dyn Field) -> Entry<O> {
        Entry { about: self, field }
    }
}

impl<O: Clone> Table<O> {
    /// The same options with every default in its field. Fields of options without a default stay as they
    /// are.
    ///
    /// # Panics
    /// If the table has a default that it would not take from a URL, or not into the field.
    #[must_use]
    pub fn with_defaults(&self, mut options: O) -> O {
        for entry in self.0.iter().filter(|entry| !entry.about.default.is_empty()) {
            let set = entry.set(&mut options, entry.about.default);
            assert!(set.is_ok(), "{}={} cannot be the default", entry.about.key, entry.about.default);
        }
        options
    }

    /// Reads what follows the question mark of a URL, percent-decoded.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for an option that is not in the table, that is given
    /// twice, or whose value cannot be used. The message says what can.
    pub fn read(&self, query: &str, options: O) -> Result<O> {
        query::read(query, options, |mut options, key, value| {
            if self.set(&mut options, key, value)? { Ok(options) } else { Err(self.unknown(key)) }
        })
    }

    /// Sets the option `key`, and returns whether there is one.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for a value that cannot be used.
    pub fn set(&self, options: &mut O, key: &str, value: &str) -> Result<bool> {
        let Some(entry) = self.0.iter().find(|entry| entry.about.key == key) else { return Ok(false) };
        entry.set(options, value).map(|()| true)
    }

    /// Checks all values, as [`read`](Self::read) does. For those that setters gave.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn check(&self, options: &O) -> Result<()> {
        let mut options = options.clone();
        let mut wrong = self.0.iter().filter_map(|entry| {
            let value = entry.value(&mut options);
            (!entry.about.fits(&value)).then(|| entry.about.refuse(&value.exactly()))
        });
        wrong.next().map_or(Ok(()), Err)
    }

    /// The options that are not at their defaults, as the end of a URL.
    pub fn print(&self, options: &O) -> Printed {
        self.print_after(Printed::default(), options)
    }

    /// The same, after what was printed already.
    #[must_use]
    pub fn print_after(&self, printed: Printed, options: &O) -> Printed {
        let mut options = options.clone();
        self.0.iter().fold(printed, |printed, entry| {
            let value = entry.about.text(&entry.value(&mut options));
            printed.given(entry.about.key, (value != entry.about.default).then_some(value))
        })
    }

    /// The error for an option that there is not, with those that there are.
    pub fn unknown(&self, key: &str) -> Error {
        if key == history::KEY {
            return history::not_told();
        }
        refuse(format!("unknown option `{key}`; there are {}", self.known()))
    }

    /// All options with their defaults, or with what they take, for messages: `timeout=5s, ca=FILE`.
    pub fn known(&self) -> String {
        let known =
            self.0.iter().map(|Entry { about: it, .. }| format!("{}={}", it.key, it.kind.hint(it.default)));
        known.collect::<Vec<_>>().join(", ")
    }
}

impl<O> Entry<O> {
    fn set(&self, options: &mut O, text: &str) -> Result<()> {
        let value = self.about.kind.read(text).filter(|value| self.about.fits(value));
        let set = value.is_some_and(|value| (self.field)(options).set(value));
        if set { Ok(()) } else { Err(self.about.refuse(text)) }
    }

    fn value(&self, options: &mut O) -> Value {
        (self.field)(options).get()
    }
}

impl Described {
    /// Whether the value may be: within its bounds, or not given where it need not be.
    fn fits(&self, value: &Value) -> bool {
        match value {
            Value::Unset => self.default.is_empty() || self.kind.takes_none(),
            _ => self.kind.fits(value),
        }
    }

    /// The value as a URL has it; empty if it has not.
    fn text(&self, value: &Value) -> String {
        let none = *value == Value::Unset && self.kind.takes_none();
        if none { kind::NONE.to_owned() } else { value.to_string() }
    }

    fn refuse(&self, value: &str) -> Error {
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

    #[derive(Clone, Debug, Default, PartialEq)]
    struct Toy {
        mode: Mode,
        timeout: Duration,
        lasts: Option<Duration>,
        stub: Duration,
        copies: u8,
        range: Option<u64>,
        name: String,
        ca: Option<PathBuf>,
        tls: Option<bool>,
    }

    const NAME: Kind = text("NAME", "1 to 9 letters", |name| {
        (1..=9).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphabetic())
    });
    const OPTIONS: Table<Toy> = Table(&[
        option("mode", words::<Mode>(), "rwc").means("what opening may do").field(|o| &mut o.mode),
        option("timeout", duration("100ms", "1h"), "5s").means("how long to wait").field(|o| &mut o.timeout),
        option("lasts", duration("10ms", "1h").or_none(), "2s")
            .means("how long it lasts")
            .field(|o| &mut o.lasts),
        option("stub", duration("2s", "1h").in_steps_of("1s"), "5s")
            .means("how long it lives")
            .field(|o| &mut o.stub),
        option("copies", whole(1, 9), "2").means("how many there are").field(|o| &mut o.copies),
        option("range", whole(1, u64::MAX), "").means("how many ids").field(|o| &mut o.range),
        option("name", NAME, "toy").means("its name | and more").field(|o| &mut o.name),
        option("ca", FILE, "").means("whom to trust").field(|o| &mut o.ca),
        option("tls", words::<bool>(), "").means("whether it is encrypted").field(|o| &mut o.tls),
    ]);

    fn usual() -> Toy {
        OPTIONS.with_defaults(Toy::default())
    }

    #[test]
    fn what_is_not_given_is_as_usual_and_is_not_printed() {
        let expected = Toy {
            mode: Mode::Create,
            timeout: Duration::from_secs(5),
            lasts: Some(Duration::from_secs(2)),
            stub: Duration::from_secs(5),
            copies: 2,
            name: "toy".to_owned(),
            ..Toy::default()
        };
        assert_eq!(usual(), expected);
        assert_eq!(OPTIONS.read("", usual()).unwrap(), expected);
        assert_eq!(OPTIONS.print(&expected).to_string(), "");
        assert!(OPTIONS.check(&expected).is_ok());
    }

    #[test]
    fn every_kind_is_read_and_printed() {
        let url = "mode=ro&timeout=2m&lasts=none&stub=90s&copies=9&range=7&name=x&ca=/a%20b&tls=false";
        let read = OPTIONS.read(url, usual()).unwrap();
        let expected = Toy {
            mode: Mode::ReadOnly,
            timeout: Duration::from_secs(120),
            lasts: None,
            stub: Duration::from_secs(90),
            copies: 9,
            range: Some(7),
            name: "x".to_owned(),
            ca: Some("/a b".into()),
            tls: Some(false),
        };
        assert_eq!(read, expected);
        assert_eq!(OPTIONS.print(&read).to_string(), format!("?{url}"));
        assert!(OPTIONS.check(&read).is_ok());
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_key_the_value_and_what_can_be() {
        let known = "unknown option `nmae`; there are mode=ro|rw|rwc, timeout=5s, lasts=2s, stub=5s, copies=2, range=N, name=toy, \
                     ca=FILE, tls=true|false";
        let time = "write a whole number and its unit (ms, s, m or h)";
        for (query, message) in [
            ("nmae=x", known.to_owned()),
            ("name=x&n%61me=y", "the option `name` is given twice".to_owned()),
            (
                "mode=x",
                "mode=\"x\" is unknown; there are ro (look only), rw (must exist), rwc (may create)"
                    .to_owned(),
            ),
            ("tls=yes", "tls=\"yes\" is unknown; there are true, false".to_owned()),
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
            let error = OPTIONS.read(query, usual()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{query}");
            assert!(error.to_string().ends_with(&message), "{query}: {error}");
        }
    }

    /// It would do nothing, and whoever writes it counts on it.
    #[test]
    fn a_store_that_cannot_tell_its_history_says_so() {
        let error = OPTIONS.read("failover=refuse", usual()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("has no option `failover`"), "{error}");
        assert!(error.to_string().contains("guard=URL"), "{error}");
    }

    #[test]
    fn setters_are_held_to_the_same_bounds() {
        let nanosecond = Duration::from_nanos(1);
        for (toy, message) in [
            (Toy { timeout: Duration::from_nanos(99_999_999), ..usual() }, "timeout=\"99.999999ms\""),
            (Toy { timeout: Duration::from_secs(3600) + nanosecond, ..usual() }, "100ms to 1h"),
            (Toy { stub: Duration::from_millis(2500), ..usual() }, "in steps of 1s"),
            (Toy { lasts: Some(Duration::ZERO), ..usual() }, "lasts=\"0ns\""),
            (Toy { copies: 0, ..usual() }, "copies=\"0\" cannot be used: write a whole number, 1 to 9"),
            (Toy { range: Some(0), ..usual() }, "1 or more"),
            (Toy { name: "x y".to_owned(), ..usual() }, "name=\"x y\" cannot be used"),
            (Toy { ca: Some("".into()), ..usual() }, "the path of a file"),
        ] {
            let error = OPTIONS.check(&toy).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains(message), "{error}");
        }
    }

    #[test]
    #[should_panic(expected = "copies=x cannot be the default")]
    fn a_default_that_cannot_be_is_found() {
        const WRONG: Table<Toy> =
            Table(&[option("copies", whole(1, 9), "x").means("how many there are").field(|o| &mut o.copies)]);
        let _ = WRONG.with_defaults(Toy::default());
    }

    proptest! {
        #[test]
        fn what_is_read_and_may_be_reads_back(query in "((timeout|lasts|stub|copies|range|name|ca|mode)=([0-9]{1,4}(ms|s|m|h)?|none|rw|[a-z]{1,9}|\\PC{0,9})&?){0,3}") {
            if let Ok(toy) = OPTIONS.read(&query, usual()) {
                prop_assert!(OPTIONS.check(&toy).is_ok());
                let printed = OPTIONS.print(&toy).to_string();
                prop_assert_eq!(OPTIONS.read(printed.trim_start_matches('?'), usual()).unwrap(), toy);
            }
        }
    }
}
