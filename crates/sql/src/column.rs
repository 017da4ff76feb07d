//! Conversions between ids and columns of signed integers.

use std::fmt::Display;
use std::num::ParseIntError;

use idmill::{Error, Id, Operation, Result};
use idmill_kit::{ColumnPath, Largest};

/// Converts an id to the number type of a column.
///
/// # Errors
/// [`InvalidInput`](idmill::ErrorKind::InvalidInput) if the id is larger than the column's maximum.
pub fn to_column<C: TryFrom<u64>>(id: impl Id) -> Result<C> {
    let raw = id.into_raw();
    C::try_from(raw).map_err(|_| {
        Error::invalid(format!("the id {raw} does not fit the column, which has {} bits", 8 * size_of::<C>()))
    })
}

/// Converts the number in a column to an id.
///
/// # Errors
/// [`InvalidInput`](idmill::ErrorKind::InvalidInput) if the id type cannot hold the number.
/// Negative numbers are not ids.
pub fn from_column<T: Id>(value: impl TryInto<u64> + Display + Copy) -> Result<T> {
    let fits = value.try_into().ok().and_then(|raw| T::try_from_raw(raw).ok());
    fits.ok_or_else(|| {
        let (floor, ceiling) = (T::MIN, T::MAX);
        Error::invalid(format!("{value} does not fit the id type, which holds {floor}..={ceiling}"))
    })
}

/// Quotes an identifier as in standard SQL. Any characters are allowed.
pub fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Returns whether a name has 1 to `longest` ASCII letters, digits and `_`, and does not begin with a digit.
/// In quotes, such a name needs no escapes in any SQL dialect.
pub(crate) fn is_plain(name: &str, longest: usize) -> bool {
    (1..=longest).contains(&name.len())
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Returns the error for a name that breaks `rule`; `what` states the kind of name.
pub(crate) fn no_name(what: &str, name: &str, rule: &str) -> Error {
    Error::invalid(format!("{name:?} is not a valid {what}; use {rule}")).during(Operation::Connect)
}

/// The query for the largest number in a column, and for the largest below 0. Each number has its own
/// subquery, since only then can the search use an index. `cast` converts a number to text.
pub(crate) fn largest_sql(table: &str, column: &str, cast: impl Fn(&str) -> String) -> String {
    let largest = cast(&format!("max(t.{column})"));
    format!(
        "SELECT (SELECT {largest} FROM {table} t), (SELECT {largest} FROM {table} t WHERE t.{column} < 0)"
    )
}

/// Returns the largest id of a column. `digits` are the largest number and the largest number below
/// 0, as the database printed them; `holds` is the maximum of the column's type.
///
/// # Errors
/// [`Unsupported`](idmill::ErrorKind::Unsupported) if a number is not an integer.
pub(crate) fn of_digits(
    path: &ColumnPath,
    digits: [Option<&str>; 2],
    of_type: &str,
    holds: Option<u64>,
) -> Result<Largest> {
    let [id, negative] = digits.map(|digits| digits.map(str::parse::<i128>).transpose());
    let whole = |id: Result<_, _>| id.map_err(|_: ParseIntError| path.not_of_integers(of_type));
    Ok(Largest::new(whole(id)?, of_type, holds).negative(whole(negative)?))
}

/// The largest id that fits a decimal type with this many digits before the point; `None` if any id
/// fits.
pub(crate) fn of_precision(digits: u32) -> Option<u64> {
    10_u64.checked_pow(digits).map(|beyond| beyond - 1)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    #[test]
    fn ends_fit_the_column_and_larger_ids_are_rejected() {
        for raw in [0, i64::MAX.unsigned_abs()] {
            assert_eq!(from_column::<u64>(to_column::<i64>(raw).unwrap()).unwrap(), raw);
        }
        let fault = to_column::<i64>(u64::MAX).unwrap_err();
        assert_eq!(
            fault.to_string(),
            "the id 18446744073709551615 does not fit the column, which has 64 bits"
        );
        assert!(to_column::<i32>(1_u64 << 31).is_err());
        assert!(
            from_column::<u64>(-1_i64).unwrap_err().to_string().starts_with("-1 does not fit the id type")
        );
        assert!(from_column::<i32>(1_i64 << 31).is_err() && from_column::<NonZeroU32>(0_i32).is_err());
    }

    #[test]
    fn decimal_precision_bounds_the_ids() {
        assert_eq!([0, 5, 19].map(of_precision), [Some(0), Some(99_999), Some(9_999_999_999_999_999_999)]);
        assert_eq!(of_precision(20), None);
    }
}
