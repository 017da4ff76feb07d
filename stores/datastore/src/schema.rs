//! The entity of a sequence and its key, in JSON.
//!
//! A `u64` is stored as the signed integer with the same 64 bits, because Datastore has no unsigned type.
//! The console shows values below 2^63 unchanged, and larger values minus 2^64 (`u64::MAX` is -1). The
//! server never compares or adds these values.

use idmill::store::SequenceInfo;
use idmill::{Result, SequenceName};
use idmill_kit::{InvalidRow, Numbers, Versioned};
use serde_json::{Value, json};

use super::options::{DEFAULT_KIND, DatastoreOptions};

/// The layout version of an entity. Other versions are rejected.
const FORMAT: i64 = 1;
const WITNESS_KIND: &str = "IdmillWitness";
const WITNESS_SUFFIX: &str = "_witness";
/// A key that differs from every escaped sequence name. Opening a store looks up this key to test the
/// connection.
const NOBODY: &str = "~nobody";

/// The location of the entities: project, database, namespace and kind.
#[derive(Clone, Debug)]
pub(super) struct Entities {
    pub(super) project: String,
    pub(super) database: String,
    namespace: String,
    pub(super) kind: String,
}

/// A sequence and the version of its entity. A change carries the version, so that it is applied only if the
/// entity is unchanged since this read.
pub(super) type Stored = Versioned<String>;

impl Entities {
    pub(super) fn new(options: &DatastoreOptions) -> Self {
        Self {
            project: options.project.clone(),
            database: options.database.clone(),
            namespace: options.namespace.clone(),
            kind: options.kind.clone(),
        }
    }

    /// Returns the location of the records, which differs only in its kind.
    pub(super) fn of_records(&self) -> Self {
        let kind = if self.kind == DEFAULT_KIND {
            WITNESS_KIND.to_owned()
        } else {
            format!("{}{WITNESS_SUFFIX}", self.kind)
        };
        Self { kind, ..self.clone() }
    }

    /// Returns the entity of a record.
    pub(super) fn record(&self, name: &SequenceName, record: &str) -> Value {
        let properties = json!({
            "record": plain(json!({ "stringValue": record })),
            "format": plain(integer(FORMAT.cast_unsigned())),
        });
        json!({ "key": self.key(name), "properties": properties })
    }

    /// Decodes a record, and the version of its entity.
    pub(super) fn decode_record(&self, result: &Value) -> Result<(String, String)> {
        let entity = &result["entity"];
        let properties = &entity["properties"];
        let record = properties["record"]["stringValue"].as_str();
        let read = record.zip(result["version"].as_str());
        let format = read_integer(&properties["format"]);
        let owned = |(record, version): (&str, &str)| (record.to_owned(), version.to_owned());
        read.filter(|_| format == Some(FORMAT)).map(owned).ok_or_else(|| {
            let fault = InvalidRow::from("is not a record of this version");
            fault.error(self.shown(entity), "nothing was changed")
        })
    }

    fn shown(&self, entity: &Value) -> String {
        format!("the entity {} of kind {:?}", entity["key"]["path"], self.kind)
    }

    pub(super) fn partition(&self) -> Value {
        json!({ "projectId": self.project, "databaseId": self.database, "namespaceId": self.namespace })
    }

    pub(super) fn key(&self, name: &SequenceName) -> Value {
        self.key_named(&escape(name))
    }

    pub(super) fn nobody(&self) -> Value {
        self.key_named(NOBODY)
    }

    fn key_named(&self, name: &str) -> Value {
        json!({ "partitionId": self.partition(), "path": [{ "kind": self.kind, "name": name }] })
    }

    /// Returns the entity of a sequence.
    pub(super) fn entity(&self, info: &SequenceInfo) -> Value {
        let next = info.next.map_or(json!({ "nullValue": null }), integer);
        let properties = json!({
            "next": plain(next),
            "start": plain(integer(info.bounds.start())),
            "max": plain(integer(info.bounds.max())),
            "incarnation": plain(integer(info.identity.incarnation)),
            "epoch": plain(integer(info.identity.epoch)),
            "format": plain(integer(FORMAT.cast_unsigned())),
        });
        json!({ "key": self.key(&info.name), "properties": properties })
    }

    /// Returns whether a query result belongs to this database and namespace.
    pub(super) fn holds(&self, result: &Value) -> bool {
        let partition = &result["entity"]["key"]["partitionId"];
        let is = |what: &str, ours: &str| partition[what].as_str().unwrap_or_default() == ours;
        is("databaseId", &self.database) && is("namespaceId", &self.namespace)
    }

    /// Decodes a sequence, and the version of its entity.
    pub(super) fn decode(&self, result: &Value) -> Result<Stored> {
        let entity = &result["entity"];
        decode(entity, &result["version"]).map_err(|fault| fault.of(self.shown(entity)))
    }
}

/// Escapes a sequence name for a key. Different names have different keys. Datastore reserves `__…__` and
/// advises against slashes. Datastore may also reject `.` and `..` in the future, as Firestore's native mode
/// does.
fn escape(name: &str) -> String {
    let name = name.replace('~', "~0").replace('/', "~1");
    if name.starts_with("__") || name == "." || name == ".." { format!("~{name}") } else { name }
}

fn unescape(key: &str) -> Option<SequenceName> {
    let escaped = if key.starts_with("~_") || key.starts_with("~.") { &key[1..] } else { key };
    let name = escaped.replace("~1", "/").replace("~0", "~");
    SequenceName::new(&name).ok().filter(|name| escape(name) == key)
}

/// Excludes a value from indexes. An index would cost two writes per reserve, and an index on an
/// ever-growing value is a hot spot.
fn plain(mut value: Value) -> Value {
    value["excludeFromIndexes"] = Value::Bool(true);
    value
}

/// Encodes an integer as text, because JSON numbers are exact only up to 2^53.
fn integer(value: u64) -> Value {
    json!({ "integerValue": value.cast_signed().to_string() })
}

fn decode(entity: &Value, version: &Value) -> Result<Stored, InvalidRow> {
    let read = |what: &str| {
        let number = read_integer(&entity["properties"][what]);
        number.ok_or_else(|| InvalidRow::from(format!("has no integer for {what}")))
    };
    // The stored integer has the same 64 bits as the id.
    let id = |what: &str| read(what).map(|number| i128::from(number.cast_unsigned()));
    if read("format")? != FORMAT {
        return Err(InvalidRow::Format);
    }
    let name = key_name(&entity["key"]).ok_or("has a key that does not name a sequence")?;
    let is_null = entity["properties"]["next"].get("nullValue").is_some();
    let next = if is_null { None } else { Some(id("next")?) };
    let (incarnation, epoch) = (read("incarnation")?.into(), read("epoch")?.into());
    let info = Numbers { next, start: id("start")?, max: id("max")?, incarnation, epoch }.of(name)?;
    let version = version.as_str().ok_or("has no version")?.to_owned();
    Ok(Versioned { info, version })
}

fn read_integer(property: &Value) -> Option<i64> {
    property["integerValue"].as_str()?.parse().ok()
}

/// Returns the name of a query result, or its key if the key has no valid name.
pub(super) fn shown(result: &Value) -> String {
    let key = &result["entity"]["key"];
    key_name(key).map_or_else(|| key["path"].to_string(), |name| name.to_string())
}

fn key_name(key: &Value) -> Option<SequenceName> {
    let [element] = key["path"].as_array()?.as_slice() else { return None };
    unescape(element["name"].as_str()?)
}

#[cfg(test)]
mod tests {
    use idmill::ErrorKind;
    use idmill::store::{Bounds, Identity};
    use proptest::prelude::*;

    use super::*;

    fn entities() -> Entities {
        Entities::new(&DatastoreOptions::new("p").namespace("n"))
    }

    fn is_reserved(key: &str) -> bool {
        key.len() >= 4 && key.starts_with("__") && key.ends_with("__")
    }

    #[test]
    fn records_have_a_separate_kind_and_round_trip() {
        let (entities, s) = (entities(), SequenceName::new("s").unwrap());
        let records = entities.of_records();
        assert_ne!(records.kind, entities.kind);
        let other = Entities { kind: "Kind".to_owned(), ..entities };
        assert_eq!(other.of_records().kind, "Kind_witness");
        let stored = json!({ "entity": records.record(&s, "a b"), "version": "7" });
        assert_eq!(records.decode_record(&stored).unwrap(), ("a b".to_owned(), "7".to_owned()));
        let unversioned = json!({ "entity": records.record(&s, "a b") });
        assert_eq!(records.decode_record(&unversioned).unwrap_err().kind(), ErrorKind::StoreViolation);
    }

    proptest! {
        #[test]
        fn entities_round_trip(name in "[_~]{0,5}\\PC{1,50}[_~]{0,5}", a: u64, b: u64, offset: u64, all: bool, epoch in 0..=i64::MAX as u64) {
            let Ok(name) = SequenceName::new(&name) else { return Ok(()) };
            let bounds = Bounds::new(a.min(b), a.max(b)).unwrap();
            let next = bounds.start() + offset % (bounds.max() - bounds.start()).saturating_add(1);
            let identity = Identity { epoch, ..Identity::fresh() };
            let info = SequenceInfo::stored(name, (!all).then_some(next), bounds, identity);
            let result = json!({ "entity": entities().entity(&info), "version": "7" });
            prop_assert_eq!(entities().decode(&result).unwrap(), Versioned { info, version: "7".to_owned() });
        }

        #[test]
        fn escaped_names_are_unique_and_not_reserved(a in "[_~/.01a]{1,7}", b in "[_~/.01a]{1,7}") {
            let (Ok(a), Ok(b)) = (SequenceName::new(&a), SequenceName::new(&b)) else { return Ok(()) };
            prop_assert_eq!(escape(&a) == escape(&b), a == b);
            prop_assert!(!is_reserved(&escape(&a)) && !escape(&a).contains('/'));
            prop_assert!(![NOBODY, ".", ".."].contains(&escape(&a).as_str()));
            prop_assert_eq!(unescape(&escape(&a)), Some(a));
        }
    }

    #[test]
    fn keys_that_no_name_has_are_not_read_as_one() {
        for key in ["~a", "__a", "__a__", "a/b", ".", "a~", "~.a", "~_a", NOBODY, "", "~"] {
            assert_eq!(unescape(key), None, "{key}");
        }
    }

    #[test]
    fn invalid_entities_are_rejected_by_name() {
        let mut info = SequenceInfo::new(SequenceName::new("s").unwrap(), Bounds::new(10, 20).unwrap());
        info.next = Some(15);
        let good = json!({ "entity": entities().entity(&info), "version": "7" });
        for (property, value, fault) in [
            ("next", json!({ "integerValue": "5" }), "next 5 outside"),
            ("next", json!({ "integerValue": "21" }), "next 21 outside"),
            ("next", json!({ "integerValue": "-1" }), "next 18446744073709551615 outside"),
            ("next", json!({ "integerValue": 15 }), "no integer for next"),
            ("next", json!({ "doubleValue": 15.0 }), "no integer for next"),
            ("next", Value::Null, "no integer for next"),
            ("max", json!({ "integerValue": "9" }), "invalid bounds"),
            ("max", json!({ "stringValue": "20" }), "no integer for max"),
            ("incarnation", json!({ "integerValue": "0" }), "incarnation 0"),
            ("incarnation", json!({ "integerValue": "-3" }), "incarnation -3"),
            ("epoch", json!({ "integerValue": "-1" }), "epoch -1"),
            ("format", json!({ "integerValue": "2" }), "another format"),
        ] {
            let mut bad = good.clone();
            bad["entity"]["properties"][property] = value.clone();
            refused(&bad, fault);
        }
        let mut bad = good.clone();
        bad["entity"]["key"]["path"] = json!([{ "kind": "K", "id": "5" }]);
        refused(&bad, "does not name a sequence");
        bad["entity"]["key"]["path"] = json!([{ "kind": "K", "name": "a" }, { "kind": "K", "name": "b" }]);
        refused(&bad, "does not name a sequence");
        let mut bad = good;
        bad["version"] = Value::Null;
        refused(&bad, "has no version");
    }

    fn refused(result: &Value, fault: &str) {
        let error = entities().decode(result).unwrap_err();
        let expected =
            if fault == "another format" { ErrorKind::Unsupported } else { ErrorKind::StoreViolation };
        assert_eq!(error.kind(), expected, "{result}");
        assert!(error.to_string().contains(fault), "{result}: {error}");
    }
}
