//! The path of a user's column, and the largest id in it.

use std::fmt;
use std::str::FromStr;

use idmill::{Error, ErrorKind, Result};

/// The largest id in a column.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Largest {
    /// The largest value; `None` if there are no values. A column may hold values below 0 and above 2^64.
    pub id: Option<i128>,
    /// The type of the column as its database names it; empty if it has none.
    pub of_type: String,
    /// The largest id that this type can hold. `None` if unknown, or if the type can hold any id.
    pub holds: Option<u64>,
    /// The largest negative value. A signed 64-bit column stores ids from 2^63 as negative values.
    pub negative: Option<i128>,
    /// The reason why a larger id may be hidden, such as "row-level security". `None` if every row was
    /// visible.
    pub hidden_by: Option<String>,
    /// A default that assigns ids without idmill, such as `nextval('orders_id_seq'::regclass)`.
    pub default: Option<String>,
}

impl Largest {
    /// Creates a result for a column of this type, which can hold ids up to `holds`.
    pub fn new(
        id: impl Into<Option<i128>>,
        of_type: impl Into<String>,
        holds: impl Into<Option<u64>>,
    ) -> Self {
        let (id, of_type, holds) = (id.into(), of_type.into(), holds.into());
        Self { id, of_type, holds, negative: None, hidden_by: None, default: None }
    }

    /// Sets the [largest negative value](Self::negative).
    #[must_use]
    pub fn negative(self, negative: impl Into<Option<i128>>) -> Self {
        Self { negative: negative.into(), ..self }
    }

    /// Sets the reason why a larger id may be [hidden](Self::hidden_by).
    #[must_use]
    pub fn hidden_by(self, hidden_by: impl Into<Option<String>>) -> Self {
        Self { hidden_by: hidden_by.into(), ..self }
    }

    /// Sets the [default](Self::default) that gives new rows an id.
    #[must_use]
    pub fn default_value(self, default: impl Into<Option<String>>) -> Self {
        Self { default: default.into(), ..self }
    }

    /// Returns the largest id. If `reached`, the sequence's next id, is above 2^63, a negative value counts
    /// as an id from 2^63 on.
    pub fn as_id(&self, reached: u128) -> Option<u128> {
        let positive = self.id.and_then(|id| u128::try_from(id).ok());
        let wrapped = self.negative.and_then(|id| i64::try_from(id).ok()).map(|id| id.cast_unsigned().into());
        wrapped.filter(|_| reached > u128::from(i64::MAX.unsigned_abs()) + 1).or(positive)
    }
}

/// The path of a column: table and column, with an optional schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnPath(Vec<String>);

impl ColumnPath {
    /// Returns the parts, outermost first: two or more, none empty.
    pub fn parts(&self) -> &[String] {
        &self.0
    }

    /// Returns the table (with its schema, if given) and the column. `quote` quotes each part for SQL.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for more than three parts.
    pub fn table_and_column(&self, quote: impl Fn(&str) -> String) -> Result<(String, String)> {
        let (column, table) = self.0.split_last().expect("a column has at least two parts");
        if table.len() > 2 {
            let message = format!(
                "`{self}` has too many parts; write `column=TABLE.COLUMN` or `column=SCHEMA.TABLE.COLUMN`"
            );
            return Err(Error::invalid(message));
        }
        Ok((table.iter().map(|part| quote(part)).collect::<Vec<_>>().join("."), quote(column)))
    }

    /// Returns the error for a missing column. `what` is the missing part, such as "table".
    pub fn missing(&self, what: &str) -> Error {
        let message = format!("there is no {what} for column={self}; correct the name and its case");
        Error::new(ErrorKind::NotFound, message)
    }

    /// Returns the error for a column that does not hold integers.
    pub fn not_of_integers(&self, of_type: &str) -> Error {
        let message = format!("column={self} is {of_type}, not integer; name the column that holds the ids");
        Error::new(ErrorKind::Unsupported, message)
    }
}

/// Parses `TABLE.COLUMN` with any number of parts. Names that contain a dot are in double quotes; a quote
/// inside them is doubled.
impl FromStr for ColumnPath {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (mut parts, mut rest) = (Vec::new(), text);
        loop {
            let (part, after) = part(rest).ok_or_else(|| no_path(text))?;
            parts.push(part);
            match after.strip_prefix('.') {
                Some(more) => rest = more,
                None if after.is_empty() => break,
                None => return Err(no_path(text)),
            }
        }
        if parts.len() < 2 || parts.iter().any(|part| part.is_empty() || part.contains('\0')) {
            return Err(no_path(text));
        }
        Ok(Self(parts))
    }
}

/// Returns the first part and the rest.
fn part(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find('.').unwrap_or(text.len());
        return Some((text[..end].to_owned(), &text[end..]));
    };
    let (mut name, mut rest) = (String::new(), quoted);
    loop {
        let (before, after) = rest.split_once('"')?;
        name.push_str(before);
        match after.strip_prefix('"') {
            Some(more) => {
                name.push('"');
                rest = more;
            }
            None => return Some((name, after)),
        }
    }
}

fn no_path(text: &str) -> Error {
    Error::invalid(format!(
        "column={text:?} does not name a column; write `TABLE.COLUMN` or `SCHEMA.TABLE.COLUMN`, and quote a \
         name with a dot"
    ))
}

impl fmt::Display for ColumnPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = |part: &str| !part.contains(['.', '"']);
        let shown = self.0.iter().map(|part| {
            if plain(part) { part.clone() } else { format!("\"{}\"", part.replace('"', "\"\"")) }
        });
        f.write_str(&shown.collect::<Vec<_>>().join("."))
    }
}

/// The error for a database whose columns idmill cannot read.
pub(super) fn unreadable(scheme: &str) -> Error {
    let message =
        format!("cannot read columns of `{scheme}:`; use SQLite, PostgreSQL, MySQL, MariaDB or MongoDB");
    Error::new(ErrorKind::Unsupported, message)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_path_is_read_with_quotes_and_without() {
        let parts = |text: &str| text.parse::<ColumnPath>().unwrap().0;
        assert_eq!(parts("orders.id"), ["orders", "id"]);
        assert_eq!(parts("public.orders.id"), ["public", "orders", "id"]);
        assert_eq!(parts(r#""a.b"."say ""id""""#), ["a.b", r#"say "id""#]);
        for bad in
            ["", "orders", "orders.", ".id", r#""orders.id"#, r#""a"b.id"#, r#"a."b"c"#, "a.b\0", r#""".id"#]
        {
            let error = bad.parse::<ColumnPath>().unwrap_err();
            assert!(error.to_string().contains("TABLE.COLUMN"), "{bad}: {error}");
        }
        let quote = |part: &str| format!("<{part}>");
        let path: ColumnPath = "s.t.c".parse().unwrap();
        assert_eq!(path.table_and_column(quote).unwrap(), ("<s>.<t>".to_owned(), "<c>".to_owned()));
        assert_eq!(path.parts(), ["s", "t", "c"]);
        let short: ColumnPath = "t.c".parse().unwrap();
        assert_eq!(short.table_and_column(quote).unwrap(), ("<t>".to_owned(), "<c>".to_owned()));
        let long = "a.b.c.d".parse::<ColumnPath>().unwrap().table_and_column(quote).unwrap_err().to_string();
        let form = "write `column=TABLE.COLUMN` or `column=SCHEMA.TABLE.COLUMN`";
        assert_eq!(long, format!("`a.b.c.d` has too many parts; {form}"));
    }

    proptest! {
        #[test]
        fn a_path_that_is_printed_reads_back(parts in proptest::collection::vec("[^\0]{1,6}", 2..4)) {
            let path = ColumnPath(parts);
            prop_assert_eq!(path.to_string().parse::<ColumnPath>().unwrap(), path);
        }
    }

    #[test]
    fn error_names_the_column_and_the_fix() {
        let path: ColumnPath = "t.c".parse().unwrap();
        let missing = path.missing("table");
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        let message = "there is no table for column=t.c; correct the name and its case";
        assert_eq!(missing.to_string(), message);
        let text = path.not_of_integers("text");
        assert_eq!(text.kind(), ErrorKind::Unsupported);
        let message = "column=t.c is text, not integer; name the column that holds the ids";
        assert_eq!(text.to_string(), message);
        let other = unreadable("redis");
        let message = "cannot read columns of `redis:`; use SQLite, PostgreSQL, MySQL, MariaDB or MongoDB";
        assert_eq!((other.kind(), other.to_string().as_str()), (ErrorKind::Unsupported, message));
    }

    #[test]
    fn negative_value_counts_only_for_a_sequence_above_2_63() {
        let half = 1_u128 << 63;
        for (id, negative, reached, largest) in [
            (Some(7), None, 0, Some(7)),
            (Some(0), None, 0, Some(0)),
            (None, None, 0, None),
            (Some(-7), None, 0, None),
            (Some(7), Some(-1), half, Some(7)),
            (Some(7), Some(-1), half + 1, Some((1 << 64) - 1)),
            (None, Some(i128::from(i64::MIN)), half + 1, Some(half)),
            (Some(7), Some(i128::from(i64::MIN) - 1), half + 1, Some(7)),
            (Some(7), None, half + 1, Some(7)),
        ] {
            let column = Largest::new(id, "bigint", None).negative(negative);
            assert_eq!(column.as_id(reached), largest, "{id:?}, {negative:?}, {reached}");
        }
    }

    #[test]
    fn largest_keeps_what_was_set() {
        let column =
            Largest::new(7, "int", 9).negative(-1).hidden_by("RLS".to_owned()).default_value("d".to_owned());
        assert_eq!((column.id, column.of_type.as_str(), column.holds), (Some(7), "int", Some(9)));
        assert_eq!((column.negative, column.hidden_by.as_deref()), (Some(-1), Some("RLS")));
        assert_eq!(column.default.as_deref(), Some("d"));
    }
}
