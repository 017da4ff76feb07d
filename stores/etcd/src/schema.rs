//! The key that holds a sequence, and its value.
//!
//! The value is JSON, readable with `etcdctl`. Its claim is random and new for every write, so two writes
//! of a key never have the same bytes: if a process reads back its own bytes, its write was applied.

use idmill::store::{Identity, Page, SequenceInfo};
use idmill::{Result, SequenceName};
use idmill_kit::{InvalidRow, Numbers, Versioned, paging};
use serde_json::{Value, json};

use super::wire::{KeyValue, Range};

/// The layout version of a value. Other versions are rejected.
const FORMAT: i128 = 1;

/// A sequence that was read or written.
pub(super) type Stored = Versioned<Version>;

/// The condition for changing a sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) value: Vec<u8>,
    pub(super) mod_revision: i64,
}

/// The key prefix. The keys under it with no further slash are sequences.
#[derive(Clone, Debug)]
pub(super) struct Prefix {
    prefix: String,
}

impl Prefix {
    pub(super) fn new(prefix: impl Into<String>) -> Self {
        Self { prefix: prefix.into() }
    }

    /// The prefix of the records. The records' prefix is inside the sequences' prefix, but no sequence key
    /// has another slash after its prefix.
    pub(super) fn of_records(&self) -> Self {
        Self { prefix: format!("{}witness/", self.prefix) }
    }

    pub(super) fn key(&self, name: &SequenceName) -> String {
        format!("{}{}", self.prefix, escape(name))
    }

    /// The range with only this name's key.
    pub(super) fn the_key(&self, name: &SequenceName) -> Range {
        Range { key: self.key(name).into_bytes(), ..Range::default() }
    }

    /// The prefix, which is below the key of every sequence, since no name is empty.
    pub(super) fn first(&self) -> Vec<u8> {
        self.prefix.clone().into_bytes()
    }

    /// The first key after all keys with the prefix, which ends with a slash.
    pub(super) fn end(&self) -> Vec<u8> {
        let mut end = self.first();
        if let Some(last) = end.last_mut() {
            *last += 1;
        }
        end
    }

    /// The lowest key with the prefix of a page, and the first key after all keys with that prefix. Escaping
    /// keeps prefixes: an escaped name begins with the escaped prefix of the name.
    fn range(&self, page: &Page) -> (Vec<u8>, Vec<u8>) {
        let keys = Page::of(format!("{}{}", self.prefix, escape(&page.prefix)));
        let end = paging::end(&keys.prefix).map_or_else(|| self.end(), String::into_bytes);
        (keys.prefix.into_bytes(), end)
    }

    /// The range of a page, starting after its cursor.
    pub(super) fn page(&self, page: &Page) -> Result<Range> {
        let (mut key, end) = self.range(page);
        if let Some(after) = &page.after {
            key = paging::bytes(after)?;
            key.push(0);
        }
        Ok(Range { key, end, limit: i64::from(paging::limit(page)) })
    }

    /// The name of a key, or the key if it has no valid name.
    pub(super) fn shown(&self, key: &[u8]) -> String {
        self.name(key).map_or_else(|| String::from_utf8_lossy(key).into_owned(), |name| name.to_string())
    }

    /// Whether a key is under another prefix inside this one.
    pub(super) fn is_deeper(&self, key: &[u8]) -> bool {
        key.get(self.prefix.len()..).is_some_and(|rest| rest.contains(&b'/'))
    }

    /// Decodes a key and its value as a sequence.
    pub(super) fn decode(&self, stored: KeyValue) -> Result<Stored> {
        let name = self.name(&stored.key).ok_or(InvalidRow::from("is not the name of a sequence"));
        let info = name
            .and_then(|name| decode(name, &stored.value))
            .map_err(|fault| fault.of(format_args!("the key {:?}", String::from_utf8_lossy(&stored.key))))?;
        Ok(Versioned { info, version: Version { value: stored.value, mod_revision: stored.mod_revision } })
    }

    fn name(&self, key: &[u8]) -> Option<SequenceName> {
        unescape(std::str::from_utf8(key).ok()?.strip_prefix(&self.prefix)?)
    }
}

/// Escapes slashes: they would put the key under another prefix inside this one.
fn escape(name: &str) -> String {
    name.replace('%', "%25").replace('/', "%2F")
}

fn unescape(key: &str) -> Option<SequenceName> {
    let name = key.replace("%2F", "/").replace("%25", "%");
    SequenceName::new(&name).ok().filter(|name| escape(name) == key)
}

/// Encodes a sequence with a new claim.
pub(super) fn encode(info: &SequenceInfo) -> Vec<u8> {
    let value = json!({
        "format": FORMAT,
        "next": info.next,
        "start": info.bounds.start(),
        "max": info.bounds.max(),
        "incarnation": info.identity.incarnation,
        "epoch": info.identity.epoch,
        // Random, like an incarnation.
        "claim": format!("{:016x}", Identity::fresh().incarnation),
    });
    value.to_string().into_bytes()
}

fn decode(name: SequenceName, value: &[u8]) -> Result<SequenceInfo, InvalidRow> {
    let value: Value = serde_json::from_slice(value).map_err(|_| "has a value that is not JSON")?;
    let read = |what: &str| {
        let number = value[what].as_u64().map(i128::from);
        number.ok_or_else(|| InvalidRow::from(format!("has no whole number for {what}")))
    };
    if read("format")? != FORMAT {
        return Err(InvalidRow::Format);
    }
    let next = if value.get("next") == Some(&Value::Null) { None } else { Some(read("next")?) };
    let (start, max) = (read("start")?, read("max")?);
    Numbers { next, start, max, incarnation: read("incarnation")?, epoch: read("epoch")? }.of(name)
}

#[cfg(test)]
mod tests {
    use idmill::ErrorKind;
    use idmill::store::Bounds;
    use proptest::prelude::*;

    use super::*;

    fn prefix() -> Prefix {
        Prefix::new("/idmill/")
    }

    fn stored(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> KeyValue {
        KeyValue { key: key.into(), mod_revision: 7, value: value.into() }
    }

    proptest! {
        #[test]
        fn values_read_back_as_written(name in "[%/2F5]{0,5}\\PC{1,50}", a: u64, b: u64, offset: u64, all: bool, epoch: u64) {
            let Ok(name) = SequenceName::new(&name) else { return Ok(()) };
            let bounds = Bounds::new(a.min(b), a.max(b)).unwrap();
            let next = bounds.start() + offset % (bounds.max() - bounds.start()).saturating_add(1);
            let identity = Identity { epoch, ..Identity::fresh() };
            let info = SequenceInfo::stored(name, (!all).then_some(next), bounds, identity);
            let (key, value) = (prefix().key(&info.name), encode(&info));
            prop_assert!(!prefix().is_deeper(key.as_bytes()));
            prop_assert!(prefix().first() < key.clone().into_bytes() && key.clone().into_bytes() < prefix().end());
            let read = prefix().decode(stored(key, value.clone())).unwrap();
            prop_assert_eq!(read, Versioned { info, version: Version { value, mod_revision: 7 } });
        }

        #[test]
        fn names_and_keys_are_one_to_one(a in "[%/25F]{1,7}", b in "[%/25F]{1,7}") {
            let (Ok(a), Ok(b)) = (SequenceName::new(&a), SequenceName::new(&b)) else { return Ok(()) };
            prop_assert_eq!(escape(&a) == escape(&b), a == b);
            prop_assert_eq!(unescape(&escape(&a)), Some(a));
        }
    }

    #[test]
    fn keys_that_no_name_has_are_not_read_as_one() {
        for key in ["", "%", "a%2f", "a%", "%26", " a", "a/b"] {
            assert_eq!(unescape(key), None, "{key:?}");
        }
        let error = prefix().decode(stored(*b"/idmill/\xff", "{}")).unwrap_err();
        assert!(error.to_string().contains("not the name of a sequence"), "{error}");
        assert!(prefix().is_deeper(b"/idmill/other/s") && !prefix().is_deeper(b"/idmill/s"));
        let (records, s) = (prefix().of_records(), SequenceName::new("a/s").unwrap());
        assert_eq!(records.key(&s), "/idmill/witness/a%2Fs");
        assert!(
            prefix().is_deeper(records.key(&s).as_bytes()) && !records.is_deeper(records.key(&s).as_bytes())
        );
    }

    #[test]
    fn no_two_writes_leave_the_same_bytes() {
        let info = SequenceInfo::new(SequenceName::new("s").unwrap(), Bounds::of::<u64>());
        assert_ne!(encode(&info), encode(&info));
    }

    #[test]
    fn values_that_cannot_be_are_named_and_refused() {
        let mut info = SequenceInfo::new(SequenceName::new("s").unwrap(), Bounds::new(10, 20).unwrap());
        info.next = Some(15);
        let good: Value = serde_json::from_slice(&encode(&info)).unwrap();
        for (field, value, fault) in [
            ("next", json!(5), "next 5 outside"),
            ("next", json!(21), "next 21 outside"),
            ("next", json!(-1), "no whole number for next"),
            ("next", json!("15"), "no whole number for next"),
            ("next", json!(15.0), "no whole number for next"),
            ("max", json!(9), "invalid bounds"),
            ("max", Value::Null, "no whole number for max"),
            ("incarnation", json!(0), "incarnation 0"),
            ("epoch", Value::Null, "no whole number for epoch"),
            ("format", json!(2), "another format"),
        ] {
            let mut bad = good.clone();
            bad[field] = value;
            refused(&bad.to_string(), fault);
        }
        let mut bad = good;
        bad.as_object_mut().unwrap().remove("next");
        refused(&bad.to_string(), "no whole number for next");
        refused("15", "no whole number for format");
        refused("", "not JSON");
    }

    fn refused(value: &str, fault: &str) {
        let error = prefix().decode(stored("/idmill/s", value)).unwrap_err();
        let expected =
            if fault == "another format" { ErrorKind::Unsupported } else { ErrorKind::StoreViolation };
        assert_eq!(error.kind(), expected, "{value}");
        assert!(
            error.to_string().contains(fault) && error.to_string().contains("/idmill/s"),
            "{value}: {error}"
        );
    }
}
