//! Converts between columns and values.
//!
//! Ids are `varint`: they cover all of u64 and the exclusive end 2^64, and cqlsh shows them as numbers. Rows
//! are read by column name, because the columns in the reply to a conditional write depend on the server.
//! Cassandra returns only `[applied]`. For a refused update, it adds the columns of the condition; for a
//! refused insert, those of the row. ScyllaDB returns these columns in each reply.

use std::collections::HashMap;

use idmill::store::{Bounds, Identity};
use idmill_shared_cache::datacenter::{Claim, Era, Span};
use scylla::frame::response::result::ColumnSpec;
use scylla::value::{CqlValue, CqlVarint, Row};

/// The values to bind to a statement, in order.
pub(super) type Values = Vec<CqlValue>;

/// The non-null values of a row, by column name. Its errors are the reason why the row cannot be decoded.
#[derive(Debug, Default)]
pub(super) struct Cells(HashMap<String, CqlValue>);

impl Cells {
    pub(super) fn new<'a>(columns: impl Iterator<Item = &'a ColumnSpec<'a>>, row: Row) -> Self {
        let named =
            columns.zip(row.columns).filter_map(|(column, value)| Some((column.name().to_owned(), value?)));
        Self(named.collect())
    }

    pub(super) fn value(&self, column: &str) -> Option<&CqlValue> {
        self.0.get(column)
    }

    /// Returns whether a conditional statement was applied, or `None` if the reply has no `[applied]`.
    pub(super) fn applied(&self) -> Option<bool> {
        self.0.get("[applied]").and_then(CqlValue::as_boolean)
    }

    pub(super) fn text(&self, column: &str) -> Result<&str, String> {
        self.0
            .get(column)
            .and_then(|value| value.as_text())
            .map(String::as_str)
            .ok_or_else(|| format!("has no text for {column}"))
    }

    /// Reads an id or an exclusive end, at most 2^64.
    pub(super) fn id(&self, column: &str) -> Result<u128, String> {
        self.maybe_id(column)?.ok_or_else(|| format!("has no number for {column}"))
    }

    pub(super) fn maybe_id(&self, column: &str) -> Result<Option<u128>, String> {
        let Some(value) = self.0.get(column) else { return Ok(None) };
        decode(value).map(Some).ok_or_else(|| format!("has an invalid {column}, which is not an id"))
    }

    /// Reads a nonnegative number from a bigint column.
    pub(super) fn count(&self, column: &str) -> Result<u64, String> {
        let value = self.0.get(column).and_then(CqlValue::as_bigint);
        value
            .and_then(|value| u64::try_from(value).ok())
            .ok_or_else(|| format!("has no nonnegative number for {column}"))
    }

    pub(super) fn format(&self) -> Option<i32> {
        self.0.get("format").and_then(CqlValue::as_int)
    }

    pub(super) fn bounds(&self) -> Result<Bounds, String> {
        let (start, max) = (self.id("start")?, self.id("max")?);
        let bounds = u64::try_from(start).ok().zip(u64::try_from(max).ok());
        let bounds = bounds.and_then(|(start, max)| Bounds::new(start, max).ok());
        bounds.ok_or_else(|| format!("has invalid bounds {start}..={max}"))
    }

    pub(super) fn era(&self) -> Result<Era, String> {
        let identity = Identity { incarnation: self.count("incarnation")?, epoch: self.count("epoch")? };
        if identity.incarnation == 0 {
            return Err("has the invalid incarnation 0".to_owned());
        }
        Ok(Era { identity, recalls: self.count("recalls")? })
    }

    /// Returns the last claim of each datacenter.
    pub(super) fn claims(&self) -> Result<HashMap<String, Claim>, String> {
        let Some(value) = self.0.get("claims") else { return Ok(HashMap::new()) };
        let entries = value.as_map().ok_or("has claims that are not a map")?;
        let claims = entries.iter().map(|(dc, claim)| Some((dc.as_text()?.clone(), decode_claim(claim)?)));
        claims.collect::<Option<_>>().ok_or_else(|| "has an invalid claim".to_owned())
    }
}

fn decode_claim(value: &CqlValue) -> Option<Claim> {
    let CqlValue::Tuple(fields) = value else { return None };
    let [Some(token), Some(start), Some(end)] = fields.as_slice() else { return None };
    let span = Span { start: decode(start)?, end: decode(end)? };
    let token = u64::try_from(token.as_bigint()?).ok()?;
    (token > 0 && !span.is_empty()).then_some(Claim { token, span })
}

pub(super) fn text(value: &str) -> CqlValue {
    CqlValue::Text(value.to_owned())
}

pub(super) fn count(value: u64) -> CqlValue {
    CqlValue::BigInt(value.cast_signed())
}

pub(super) fn era(era: Era) -> [CqlValue; 3] {
    [count(era.identity.incarnation), count(era.identity.epoch), count(era.recalls)]
}

pub(super) fn claim(claim: Claim) -> CqlValue {
    let fields = [count(claim.token), id(claim.span.start), id(claim.span.end)];
    CqlValue::Tuple(fields.map(Some).to_vec())
}

/// Encodes a number in the fewest bytes that hold the number and its sign, most significant byte first.
pub(super) fn id(value: u128) -> CqlValue {
    let bytes = value.to_be_bytes();
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count().min(15);
    let sign = bytes[zeros] >= 0x80;
    let mut digits = vec![0; usize::from(sign)];
    digits.extend_from_slice(&bytes[zeros..]);
    CqlValue::Varint(CqlVarint::from_signed_bytes_be(digits))
}

/// Decodes a number from 0 to 2^64.
fn decode(value: &CqlValue) -> Option<u128> {
    let CqlValue::Varint(number) = value else { return None };
    let bytes = number.as_signed_bytes_be_slice();
    if bytes.first().is_none_or(|first| *first >= 0x80) {
        return None;
    }
    let digits = &bytes[bytes.iter().take_while(|byte| **byte == 0).count()..];
    let mut wide = [0; 16];
    wide[16_usize.checked_sub(digits.len())?..].copy_from_slice(digits);
    Some(u128::from_be_bytes(wide)).filter(|value| *value <= 1 << 64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use scylla::frame::response::result::{ColumnType, NativeType, TableSpec};

    use super::*;

    fn cells(columns: &[(&'static str, CqlValue)]) -> Cells {
        let table = TableSpec::borrowed("k", "t");
        let specs: Vec<_> = columns
            .iter()
            .map(|(name, _)| {
                ColumnSpec::borrowed(name, ColumnType::Native(NativeType::Varint), table.clone())
            })
            .collect();
        let values = columns.iter().map(|(_, value)| Some(value.clone())).collect();
        Cells::new(specs.iter(), Row { columns: values })
    }

    proptest! {
        #[test]
        fn ids_round_trip(value: u64, small in 0..1000_u64) {
            for value in [u128::from(value), u128::from(small), u128::from(u64::MAX), 1 << 64] {
                prop_assert_eq!(decode(&id(value)), Some(value));
            }
        }
    }

    #[test]
    fn numbers_outside_the_id_range_are_rejected() {
        let varint = |bytes: &[u8]| CqlValue::Varint(CqlVarint::from_signed_bytes_be(bytes.to_vec()));
        for bytes in [&[][..], &[0xff], &[1, 0, 0, 0, 0, 0, 0, 0, 1], &[1; 17], &[1; 40]] {
            assert_eq!(decode(&varint(bytes)), None, "{bytes:?}");
        }
        assert_eq!(decode(&varint(&[0, 0, 0, 5])), Some(5), "zeros in front are no matter");
        assert_eq!(id(0x80), varint(&[0, 0x80]));
        assert_eq!(id(0), varint(&[0]));
    }

    #[test]
    fn conditional_replies_of_both_servers_are_decoded() {
        let boolean = CqlValue::Boolean;
        assert_eq!(cells(&[("[applied]", boolean(true))]).applied(), Some(true), "Cassandra, applied");
        assert_eq!(cells(&[("[applied]", boolean(false))]).applied(), Some(false), "Cassandra, no such row");
        let refused = cells(&[("[applied]", boolean(false)), ("next", id(7))]);
        assert_eq!((refused.applied(), refused.id("next")), (Some(false), Ok(7)), "Cassandra, refused");
        let scylla =
            cells(&[("[applied]", boolean(true)), ("name", CqlValue::Text("s".into())), ("next", id(7))]);
        assert_eq!((scylla.applied(), scylla.text("name")), (Some(true), Ok("s")), "ScyllaDB, applied");
        assert_eq!(cells(&[("next", id(7))]).applied(), None, "no answer at all");
    }

    #[test]
    fn claims_round_trip_and_invalid_ones_are_rejected() {
        let made = Claim { token: 3, span: Span { start: 5, end: 1 << 64 } };
        let map = |claim| CqlValue::Map(vec![(CqlValue::Text("dc1".into()), claim)]);
        let read = cells(&[("claims", map(claim(made)))]).claims().unwrap();
        assert_eq!(read.get("dc1"), Some(&made));
        assert_eq!(cells(&[]).claims().unwrap().len(), 0);
        let empty = Claim { token: 3, span: Span { start: 5, end: 5 } };
        assert!(cells(&[("claims", map(claim(empty)))]).claims().is_err());
        assert!(cells(&[("incarnation", CqlValue::BigInt(-1))]).count("incarnation").is_err());
    }
}
