//! The documents, and the filters and updates on them.
//!
//! A sequence is one document whose `_id` is its name. The document stores the *last* reserved id, because
//! the next id would not fit after `i64::MAX` is reserved. Every number is written as a 64-bit integer, as
//! `$inc` needs. 32-bit integers, as written by a shell, can be read too.

use idmill::store::{Bounds, Grant, Identity, Page, Reserve, SequenceInfo};
use idmill::{Error, ErrorKind, Result, SequenceName};
use idmill_kit::options::{Kind, text};
use idmill_kit::{InvalidRow, Numbers, paging, witness_beside};
use mongodb::bson::{Bson, Document, doc};

pub(super) const DEFAULT_COLLECTION: &str = "idmill_sequences";
/// The largest id, because MongoDB's integers have 63 bits and a sign.
pub(super) const LARGEST: u64 = i64::MAX.cast_unsigned();
/// The layout version of a document. Reads reject documents of other versions; writes do not match these
/// documents, except a removal.
const FORMAT: i64 = 1;

/// Returns the bounds with which a sequence is created. A max of `u64::MAX` is lowered to [`LARGEST`].
///
/// # Errors
/// Returns [`ErrorKind::InvalidInput`] if the start, or any other max, is above [`LARGEST`].
pub(super) fn storable(bounds: Bounds) -> Result<Bounds> {
    if bounds.max() == u64::MAX {
        return Bounds::new(bounds.start(), LARGEST).map_err(|_| too_large("start", bounds.start()));
    }
    within("max", bounds.max())?;
    Ok(bounds)
}

/// Returns the most likely max of a sequence that has not been read yet.
pub(super) fn likely_max(request: &Reserve) -> u64 {
    request.create.map_or(LARGEST, |create| create.max().min(LARGEST))
}

/// Returns an error if an id is above [`LARGEST`].
pub(super) fn within(what: &str, id: u64) -> Result<()> {
    if id > LARGEST { Err(too_large(what, id)) } else { Ok(()) }
}

fn too_large(what: &str, id: u64) -> Error {
    Error::invalid(format!(
        "{what} {id} is too large for MongoDB, whose largest integer is {LARGEST} (2^63 - 1)"
    ))
}

/// The name of a collection, as an option.
pub(super) const NAME: Kind = text(
    "NAME",
    "1 to 120 bytes, without `$`, `..` or control characters, no dot at either end, not beginning with `system.`",
    is_collection,
);
/// Maximum length of the name of the records collection. The limit is above 120, so that the suffix fits.
const LONGEST_WITNESS: usize = 140;

fn is_collection(name: &str) -> bool {
    (1..=120).contains(&name.len())
        && !name.starts_with("system.")
        && !name.starts_with('.')
        && !name.ends_with('.')
        && !name.contains("..")
        && !name.contains(|c: char| c == '$' || c.is_control())
}

pub(super) fn encode(info: &SequenceInfo) -> Document {
    doc! {
        "_id": info.name.as_str(),
        "last": last(info),
        "start": signed(info.bounds.start()),
        "max": signed(info.bounds.max()),
        "incarnation": signed(info.identity.incarnation),
        "epoch": signed(info.identity.epoch),
        "format": FORMAT,
    }
}

/// Returns the last reserved id, or one below the first id if none is reserved.
fn last(info: &SequenceInfo) -> i64 {
    info.next.map_or_else(|| signed(info.bounds.max()), |next| signed(next) - 1)
}

/// Converts an id. The conversion cannot fail, because the ids were range-checked or come from a document.
fn signed(id: u64) -> i64 {
    i64::try_from(id).expect("stored ids fit in 63 bits")
}

/// Returns a filter for the documents of a page.
pub(super) fn within_page(page: &Page) -> Document {
    let mut range = Document::new();
    match &page.after {
        Some(after) => range.insert("$gt", after.as_str()),
        None => range.insert("$gte", page.prefix.as_str()),
    };
    if let Some(end) = paging::end(&page.prefix) {
        range.insert("$lt", end);
    }
    doc! { "_id": range }
}

/// Returns a filter for documents without a name, whose `_id` is not a string.
pub(super) fn unnamed() -> Document {
    doc! { "_id": { "$not": { "$type": "string" } } }
}

/// Returns the name of a document. If its `_id` is not a string, returns it as text.
pub(super) fn shown(document: &Document) -> String {
    match document.get("_id") {
        Some(Bson::String(name)) => name.clone(),
        Some(other) => other.to_string(),
        None => String::new(),
    }
}

pub(super) fn by_name(name: &SequenceName) -> Document {
    doc! { "_id": name.as_str() }
}

/// Returns a filter for the document to remove: any of this name, or only one with the expected identity. A
/// number that does not fit becomes negative, and matches no document.
pub(super) fn to_remove(name: &SequenceName, expected: Option<Identity>) -> Document {
    let mut matching = by_name(name);
    if let Some(Identity { incarnation, epoch }) = expected {
        matching.insert("incarnation", incarnation.cast_signed());
        matching.insert("epoch", epoch.cast_signed());
    }
    matching
}

/// Returns a filter that matches while the requested ids fit between `floor` and `limit`, and `limit` is
/// within the stored max. With this filter, the `$inc` of [`advance`] exceeds neither `limit` nor the stored
/// max. The command must be sent only once, because a second copy would reserve again.
pub(super) fn with_room(request: &Reserve, limit: u64, floor: u64) -> Option<Document> {
    let limit = limit.min(LARGEST);
    // `last` can be -1, because a sequence may start at 0.
    let highest = i128::from(limit) - i128::from(request.count.max(1));
    let highest = i64::try_from(highest).ok().filter(|highest| *highest >= -1)?;
    Some(doc! {
        "_id": request.name.as_str(),
        "format": FORMAT,
        "max": { "$gte": signed(limit) },
        "last": { "$gte": i64::try_from(floor).ok()? - 1, "$lte": highest },
    })
}

pub(super) fn advance(count: u64) -> Document {
    doc! { "$inc": { "last": i64::try_from(count.max(1)).unwrap_or(i64::MAX) } }
}

/// Returns a filter that matches while the sequence is unchanged. The filter can match again after a
/// give-back: send a write only once.
pub(super) fn unchanged(seen: &SequenceInfo) -> Document {
    doc! {
        "_id": seen.name.as_str(),
        "format": FORMAT,
        "incarnation": signed(seen.identity.incarnation),
        "epoch": signed(seen.identity.epoch),
        "max": signed(seen.bounds.max()),
        "last": last(seen),
    }
}

/// Returns an update of all fields that can change.
pub(super) fn replace(info: &SequenceInfo) -> Document {
    doc! { "$set": {
        "last": last(info), "max": signed(info.bounds.max()), "epoch": signed(info.identity.epoch),
    } }
}

/// Returns the ids that [`advance`] reserved, computed from the document after the update.
pub(super) fn advanced(document: &Document, request: &Reserve) -> Result<Grant> {
    let after = decode(document, &request.name)?;
    let start = after.reached().checked_sub(u128::from(request.count.max(1)));
    let mut before = after.clone();
    before.next = start.and_then(|start| u64::try_from(start).ok());
    match before.next.filter(|start| *start >= after.bounds.start()) {
        Some(_) => before.grant(request.count, LARGEST),
        None => Err(unsound(&request.name, "was incremented by fewer ids than requested")),
    }
}

/// Decodes the document of this name.
///
/// # Errors
/// Returns [`ErrorKind::StoreViolation`] if the document is invalid, and [`ErrorKind::Unsupported`] if it
/// has another format version.
pub(super) fn decode(document: &Document, asked: &str) -> Result<SequenceInfo> {
    let info = decode_any(document)?;
    must_be(&info.name, asked, "name another collection").map(|()| info)
}

fn must_be(found: &str, asked: &str, advice: &str) -> Result<()> {
    if found == asked {
        return Ok(());
    }
    let message = format!(
        "the document {found:?} was returned for {asked:?}, which the collation treats as equal; {advice}"
    );
    Err(Error::new(ErrorKind::StoreViolation, message))
}

/// Decodes a document with any name.
pub(super) fn decode_any(document: &Document) -> Result<SequenceInfo> {
    let shown = document.get("_id").map_or_else(|| "without an `_id`".to_owned(), ToString::to_string);
    read(document).map_err(|fault| fault.of(format_args!("the document {shown}")))
}

fn read(document: &Document) -> Result<SequenceInfo, InvalidRow> {
    let integer = |field: &str| match document.get(field) {
        Some(Bson::Int64(value)) => Ok(i128::from(*value)),
        Some(Bson::Int32(value)) => Ok(i128::from(*value)),
        _ => Err(InvalidRow::from(format!("has no integer for `{field}`"))),
    };
    if integer("format")? != FORMAT.into() {
        return Err(InvalidRow::Format);
    }
    let name = SequenceName::new(document.get_str("_id").unwrap_or_default());
    let name = name.map_err(|error| format!("has no valid name: {error}"))?;
    let (start, max, last) = (integer("start")?, integer("max")?, integer("last")?);
    let numbers = Numbers {
        next: Some(last + 1),
        start,
        max,
        incarnation: integer("incarnation")?,
        epoch: integer("epoch")?,
    };
    if start <= max && !(start - 1..=max).contains(&last) {
        return Err(format!("has last {last} outside its bounds {start}..={max}").into());
    }
    numbers.or_used_up(name)
}

/// Returns the name of the records collection for a sequences collection.
pub(super) fn witness(collection: &str) -> Result<String> {
    witness_beside(collection, LONGEST_WITNESS)
}

/// Returns the document of a record, which is also the filter that matches the record while it is
/// unchanged.
pub(super) fn encode_record(name: &SequenceName, record: &str) -> Document {
    doc! { "_id": name.as_str(), "record": record, "format": FORMAT }
}

pub(super) fn replace_record(record: &str) -> Document {
    doc! { "$set": { "record": record } }
}

/// Decodes the record of this name.
pub(super) fn decode_record(document: &Document, asked: &str) -> Result<String> {
    let found = shown(document);
    must_be(&found, asked, "use the simple collation")?;
    match (document.get("format"), document.get_str("record")) {
        (Some(Bson::Int64(FORMAT) | Bson::Int32(1)), Ok(record)) => Ok(record.to_owned()),
        _ => Err(unsound(&found, "is not a record of this version")),
    }
}

fn unsound(document: &str, fault: &str) -> Error {
    InvalidRow::from(fault).of(format_args!("the document {document}"))
}

#[cfg(test)]
mod tests {
    use idmill::store::Identity;
    use proptest::prelude::*;

    use super::*;

    fn name(text: &str) -> SequenceName {
        SequenceName::new(text).unwrap()
    }

    fn sequence(start: u64, max: u64, next: Option<u64>) -> SequenceInfo {
        let mut info = SequenceInfo::new(name("s"), Bounds::new(start, max).unwrap());
        info.next = next;
        info
    }

    fn request(count: u64) -> Reserve {
        Reserve::new(name("s"), count).create(Bounds::new(1, 9).unwrap())
    }

    proptest! {
        #[test]
        fn documents_round_trip(
            text in "\\PC{1,50}", a in 0..=LARGEST, b in 0..=LARGEST, offset: u64, all: bool, epoch in 0..=LARGEST,
        ) {
            let Ok(name) = SequenceName::new(&text) else { return Ok(()) };
            let bounds = Bounds::new(a.min(b), a.max(b)).unwrap();
            let next = bounds.start() + offset % (bounds.max() - bounds.start() + 1);
            let identity = Identity { epoch, ..Identity::fresh() };
            let info = SequenceInfo::stored(name, (!all).then_some(next), bounds, identity);
            prop_assert_eq!(decode(&encode(&info), &text).unwrap(), info);
        }

        /// Simulates the filter and the increment as the server would apply them. The result must equal the
        /// arithmetic that all stores share. If the filter does not match, fewer ids than requested must be
        /// left.
        #[test]
        fn conditional_increment_equals_shared_arithmetic(
            start in prop_oneof![0..20_u64, LARGEST - 20..=LARGEST], size in 0..40_u64, drawn in 0..45_u64,
            count in prop_oneof![1..50_u64, LARGEST - 5..=u64::MAX], ceiling in prop_oneof![0..60_u64, LARGEST - 30..=u64::MAX],
        ) {
            let max = start.saturating_add(size).min(LARGEST);
            let next = start.checked_add(drawn).filter(|next| *next <= max);
            let mut info = sequence(start, max, next);
            let request = request(count).ceiling(ceiling);
            let mut document = encode(&info);
            let matched = with_room(&request, max.min(ceiling), 0).is_some_and(|guard| {
                let held = document.get_i64("last").unwrap();
                let bounds = guard.get_document("last").unwrap();
                guard.get_document("max").unwrap().get_i64("$gte").unwrap() <= document.get_i64("max").unwrap()
                    && (bounds.get_i64("$gte").unwrap()..=bounds.get_i64("$lte").unwrap()).contains(&held)
            });
            let expected = info.grant(count, ceiling);
            let full = expected.as_ref().is_ok_and(|grant| grant.range.len() == count);
            prop_assert_eq!(matched, full);
            if matched {
                let by = advance(count).get_document("$inc").unwrap().get_i64("last").unwrap();
                let last = document.get_i64("last").unwrap() + by;
                document.insert("last", last);
                prop_assert_eq!(advanced(&document, &request).unwrap(), expected.unwrap());
                prop_assert_eq!(decode(&document, "s").unwrap(), info);
            }
        }
    }

    #[test]
    fn integers_of_32_bits_are_read() {
        let info = sequence(5, 100, Some(7));
        let mut document = encode(&info);
        for (field, value) in [("last", 6), ("start", 5), ("max", 100), ("format", 1)] {
            document.insert(field, value);
        }
        assert_eq!(decode(&document, "s").unwrap(), info);
    }

    #[test]
    fn invalid_documents_are_rejected_by_name() {
        for (field, value, fault) in [
            ("last", Bson::Int64(3), "last 3 outside its bounds 5..=100"),
            ("last", Bson::Int64(101), "last 101 outside"),
            ("last", Bson::Double(6.0), "no integer for `last`"),
            ("last", Bson::Null, "no integer for `last`"),
            ("start", Bson::Int64(-1), "bounds -1..=100"),
            ("max", Bson::Int64(4), "bounds 5..=4"),
            ("max", Bson::String("x".into()), "no integer for `max`"),
            ("incarnation", Bson::Int64(0), "incarnation 0"),
            ("epoch", Bson::Int64(-1), "epoch -1"),
            ("_id", Bson::Int64(7), "no valid name"),
            ("_id", Bson::String("S".into()), "collation"),
            ("format", Bson::Int64(2), "another format"),
        ] {
            let mut document = encode(&sequence(5, 100, Some(7)));
            document.insert(field, value);
            let error = decode(&document, "s").unwrap_err();
            let expected =
                if fault == "another format" { ErrorKind::Unsupported } else { ErrorKind::StoreViolation };
            assert_eq!(error.kind(), expected, "{field}: {error}");
            assert!(error.to_string().contains(fault), "{field}: {error}");
        }
        assert!(decode(&doc! {}, "s").unwrap_err().to_string().contains("without an `_id`"));
    }

    #[test]
    fn increment_beyond_the_bounds_is_rejected() {
        let document = encode(&sequence(10, 20, Some(13)));
        assert_eq!(advanced(&document, &request(3)).unwrap().range.start(), 10);
        for count in [4, 14, u64::MAX] {
            let error = advanced(&document, &request(count)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::StoreViolation);
        }
    }

    #[test]
    fn bounds_above_2_to_the_63_are_rejected() {
        let of = |start, max| storable(Bounds::new(start, max).unwrap());
        assert_eq!(of(1, u64::MAX).unwrap(), Bounds::new(1, LARGEST).unwrap());
        assert_eq!(of(0, LARGEST).unwrap().max(), LARGEST);
        for (start, max) in [(1, LARGEST + 1), (1, u64::MAX - 1), (LARGEST + 1, u64::MAX)] {
            let error = of(start, max).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains("2^63 - 1"), "{error}");
        }
    }

    #[test]
    fn invalid_collection_names_are_rejected() {
        let long = "x".repeat(121);
        for name in ["", "a$b", "system.x", ".a", "a.", "a..b", "a\0", &long] {
            assert_eq!(
                NAME.check("collection", name).unwrap_err().kind(),
                ErrorKind::InvalidInput,
                "{name:?}"
            );
        }
        assert!(NAME.check("collection", "billing.sequences-2").is_ok());
    }
}
