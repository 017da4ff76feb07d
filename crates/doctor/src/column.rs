//! Reads the largest id in a column of the user's data.

use std::fmt;
use std::time::Duration;

use percent_encoding::utf8_percent_encode;

use idmill::{Error, ErrorKind, Operation, Result};
use idmill_kit::query;
use idmill_kit::query::ESCAPED_VALUE;
use idmill_kit::secrets;
use idmill_kit::{CONNECT_TIMEOUT, ColumnPath, Largest};
use idmill_url::{Schemes, StoreUrl};

/// A column with the ids of a sequence, in a SQLite, PostgreSQL, MySQL, MariaDB or MongoDB database.
///
/// The URL is that of the database with the option `column=[SCHEMA.]TABLE.COLUMN`, as in
/// `sqlite:shop.db?column=orders.id`. Put a name that contains a dot in double quotes: `"a.b".id`.
#[derive(Clone, Debug)]
pub struct ColumnUrl {
    database: StoreUrl,
    path: ColumnPath,
}

impl ColumnUrl {
    /// Parses a URL. Does no I/O.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) if the column is missing or invalid; the errors of
    /// [`Schemes::parse`].
    pub fn parse(schemes: &Schemes, url: &str) -> Result<Self> {
        Self::read(schemes, url).map_err(|error| error.during(Operation::Configure))
    }

    fn read(schemes: &Schemes, url: &str) -> Result<Self> {
        let (database, column) = query::take("column", secrets::trimmed(url)?)?;
        let Some(column) = column else {
            let message = format!(
                "{:?} has no column; add `?column=TABLE.COLUMN`, as in `sqlite:shop.db?column=orders.id`",
                secrets::redacted(url)
            );
            return Err(Error::invalid(message));
        };
        Ok(Self { database: schemes.parse(&database)?, path: column.parse()? })
    }

    /// Returns the largest id.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) if there is no such database, table or column;
    /// [`Unsupported`](ErrorKind::Unsupported) if the column does not hold integers, or if this kind of
    /// database is not supported; [`Unavailable`](ErrorKind::Unavailable) after 30 s; the errors of
    /// connecting and reading.
    pub async fn largest(&self) -> Result<Largest> {
        self.largest_within(CONNECT_TIMEOUT).await
    }

    /// Returns the largest id within `limit`.
    ///
    /// # Errors
    /// As [`largest`](Self::largest), with this limit.
    pub async fn largest_within(&self, limit: Duration) -> Result<Largest> {
        let looked = tokio::time::timeout(limit, self.database.target().largest(&self.path)).await;
        looked.unwrap_or_else(|_| Err(self.timed_out(limit)))
    }

    fn timed_out(&self, limit: Duration) -> Error {
        let message = format!("{self} did not answer within {limit:?}; add an index on the column");
        Error::new(ErrorKind::Unavailable, message)
    }
}

/// Prints the database URL, without a password, and the column.
impl fmt::Display for ColumnUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let database = self.database.to_string();
        let separator = if database.contains('?') { '&' } else { '?' };
        let path = self.path.to_string();
        write!(f, "{database}{separator}column={}", utf8_percent_encode(&path, ESCAPED_VALUE))
    }
}

/// Returns the sequence that a default of PostgreSQL draws from, without its schema.
pub(crate) fn drawn_by(default: &str) -> Option<String> {
    let literal = default.strip_prefix("nextval('")?;
    let (name, _) = literal.split_once("'::").or_else(|| literal.rsplit_once('\''))?;
    // The names have the form of a column's path.
    let path: ColumnPath = format!("default.{}", name.replace("''", "'")).parse().ok()?;
    path.parts().last().cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_column_error_shows_syntax_and_no_password() {
        let error =
            ColumnUrl::parse(&Schemes::default(), "postgres://app:hunter2@db1/shop").unwrap_err().to_string();
        assert!(error.contains("?column=TABLE.COLUMN") && !error.contains("hunter2"), "{error}");
    }

    #[test]
    fn default_names_its_whole_sequence() {
        for (default, drawn) in [
            ("nextval('old_orders_seq'::regclass)", Some("old_orders_seq")),
            ("nextval('orders'::regclass)", Some("orders")),
            ("nextval('public.orders')", Some("orders")),
            (r#"nextval('shop."it''s, or.ders"'::regclass)"#, Some("it's, or.ders")),
            ("gen_random_uuid()", None),
            ("lastval('orders')", None),
        ] {
            assert_eq!(drawn_by(default).as_deref(), drawn, "{default}");
        }
    }

    #[tokio::test]
    async fn unsupported_store_error_names_supported_stores() {
        let column = ColumnUrl::parse(&Schemes::default(), "memory:?column=orders.id").unwrap();
        assert_eq!(column.to_string(), "memory:?column=orders.id");
        let error = column.largest().await.unwrap_err();
        assert!(
            error.kind() == ErrorKind::Unsupported && error.to_string().contains("PostgreSQL"),
            "{error}"
        );
    }
}
