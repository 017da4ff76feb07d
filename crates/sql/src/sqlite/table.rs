//! The table and all its statements.

use idmill::store::{Page, SequenceInfo};
use idmill::{Result, SequenceName};
use idmill_kit::options::{Kind, text};
use idmill_kit::paging;

use crate::column::{is_plain, no_name};
use crate::rows::FORMAT;
use crate::{Statement, Value};

/// The option for the name of a table.
pub const NAME: Kind = text("NAME", RULE, is_name);
const RULE: &str = "up to 63 ASCII letters, digits and _, not beginning with a digit or `sqlite_`";
/// PostgreSQL's limit, so that the table can move there.
pub(super) const LONGEST_NAME: usize = 63;
/// The columns, in the order of the rows.
pub(super) const COLUMNS: &str = "name, next, start, max, incarnation, epoch, format";

/// The name of a table. It was checked, since it becomes part of the SQL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table(pub(super) Box<str>);

impl Table {
    /// Names a table: up to 63 ASCII letters, digits and `_`.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for an invalid name.
    pub fn new(name: &str) -> Result<Self> {
        if is_name(name) { Ok(Self(name.into())) } else { Err(no_name("table", name, RULE)) }
    }

    /// Returns the name as it was given.
    pub fn name(&self) -> &str {
        &self.0
    }

    /// Names the table in the main database, so that a temporary table of the caller cannot shadow
    /// it.
    pub(super) fn sql(&self) -> String {
        format!("main.\"{}\"", self.0)
    }

    /// Returns the statement that creates the table unless it exists. A crash leaves no partial table, since
    /// the statement is a single one.
    pub fn ddl(&self) -> String {
        format!(
            "CREATE TABLE IF NOT EXISTS {} (
  name TEXT NOT NULL PRIMARY KEY CHECK (typeof(name) = 'text'),
  next INTEGER CHECK (typeof(next) IN ('integer', 'null')), -- NULL: max has been reserved
  start INTEGER NOT NULL CHECK (typeof(start) = 'integer'),
  max INTEGER NOT NULL CHECK (typeof(max) = 'integer'), -- -1 is 2^64 - 1
  incarnation INTEGER NOT NULL CHECK (typeof(incarnation) = 'integer' AND incarnation > 0),
  epoch INTEGER NOT NULL CHECK (typeof(epoch) = 'integer' AND epoch >= 0),
  format INTEGER NOT NULL CHECK (format = {FORMAT})
) WITHOUT ROWID",
            self.sql()
        )
    }

    pub(super) fn create(&self) -> Statement<'static> {
        Statement::write(self.ddl(), []).once()
    }

    /// Reads the names of the columns; no rows if there is no such table.
    pub(super) fn columns(&self) -> Statement<'static> {
        Statement::read("SELECT name FROM pragma_table_info(?1, 'main')", [self.name().into()]).once()
    }

    /// Takes the write lock without writing, so that rows read next cannot change before they are
    /// written.
    ///
    /// In a deferred transaction that has not read yet, SQLite waits for other writers here. After a read,
    /// the statement does not wait, and it fails if others have written since.
    pub(super) fn lock(&self) -> Statement<'static> {
        Statement::write(format!("UPDATE {} SET next = next WHERE 0", self.sql()), [])
    }

    /// Reads one sequence; decode the row with [`decode`](Self::decode).
    pub fn select(&self, name: &SequenceName) -> Statement<'static> {
        let sql = format!("SELECT {COLUMNS} FROM {} WHERE name = ?1", self.sql());
        Statement::read(sql, [name.as_str().into()])
    }

    /// Reads a page; decode the rows with [`listing`](Self::listing). The cursor is the bytes of
    /// the last name, as the database has them: a name may be invalid UTF-8.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for a cursor of another store.
    pub fn select_page(&self, page: &Page) -> Result<Statement<'static>> {
        select_page(&self.sql(), COLUMNS, page)
    }

    /// Adds a row.
    pub fn insert(&self, info: &SequenceInfo) -> Statement<'static> {
        let sql = format!("INSERT INTO {} ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)", self.sql());
        let (bounds, identity) = (info.bounds, info.identity);
        let values = [
            info.name.as_str().into(),
            info.next.map_or(Value::Null, encode),
            encode(bounds.start()),
            encode(bounds.max()),
            encode(identity.incarnation),
            encode(identity.epoch),
            FORMAT.into(),
        ];
        Statement::write(sql, values)
    }

    /// Updates the columns of a row that can change.
    pub fn update(&self, info: &SequenceInfo) -> Statement<'static> {
        let sql = format!("UPDATE {} SET next = ?2, max = ?3, epoch = ?4 WHERE name = ?1", self.sql());
        let values = [
            info.name.as_str().into(),
            info.next.map_or(Value::Null, encode),
            encode(info.bounds.max()),
            encode(info.identity.epoch),
        ];
        Statement::write(sql, values)
    }

    /// Returns the statement that draws ids inside a transaction of any driver. Its parameters are the name
    /// and the number of ids. It returns one row with the first id, or no row.
    pub fn published(&self) -> String {
        // Numbers are signed here: a negative `max` is above 2^63 - 1. No sum may overflow to a float.
        format!(
            "UPDATE {} SET next = CASE WHEN next + (?2 - 1) = max THEN NULL ELSE next + ?2 END \
             WHERE name = ?1 AND format = {FORMAT} AND ?2 > 0 AND next >= 0 \
             AND CASE WHEN max < 0 THEN next <= 9223372036854775807 - ?2 ELSE ?2 - 1 <= max - next END \
             RETURNING COALESCE(next - ?2, max - ?2 + 1)",
            self.sql()
        )
    }

    pub(super) fn delete(&self, name: &SequenceName) -> Statement<'static> {
        Statement::write(format!("DELETE FROM {} WHERE name = ?1", self.sql()), [name.as_str().into()])
    }
}

/// Encodes a number as it is stored.
pub(super) fn encode(value: u64) -> Value {
    Value::Integer(value.cast_signed())
}

/// Reads a page of a table: these columns, then the name as bytes.
pub(super) fn select_page(table: &str, columns: &str, page: &Page) -> Result<Statement<'static>> {
    let after = page.after.as_ref().map(paging::bytes).transpose()?.unwrap_or_default();
    let sql = format!(
        "SELECT {columns}, CAST(name AS BLOB) FROM {table} WHERE name > CAST(?1 AS TEXT) AND typeof(name) = 'text' \
         AND substr(name, 1, length(?2)) = ?2 ORDER BY name LIMIT ?3"
    );
    let values = [Value::Bytes(after), page.prefix.as_str().into(), i64::from(paging::limit(page)).into()];
    Ok(Statement::read(sql, values))
}

fn is_name(name: &str) -> bool {
    is_plain(name, LONGEST_NAME) && !name.to_ascii_lowercase().starts_with("sqlite_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unquotable_table_name_is_rejected() {
        for name in ["", "a\"b", "1a", "sqlite_master", "SQLite_x", "a.b", "ä", &"a".repeat(64)] {
            let error = Table::new(name).unwrap_err();
            assert_eq!(error.kind(), idmill::ErrorKind::InvalidInput, "{name}");
        }
        for name in ["_", "a1", "sqlite", &"a".repeat(63)] {
            assert_eq!(Table::new(name).unwrap().name(), name);
        }
    }

    #[test]
    fn every_statement_names_the_table_in_the_main_database() {
        let table = Table::new("t").unwrap();
        let info = SequenceInfo::new(SequenceName::new("s").unwrap(), idmill::store::Bounds::of::<u64>());
        let page = table.select_page(&Page::default()).unwrap();
        for statement in [
            table.create(),
            table.lock(),
            table.select(&info.name),
            page,
            table.insert(&info),
            table.update(&info),
            table.delete(&info.name),
        ] {
            assert!(statement.sql.contains("main.\"t\""), "{}", statement.sql);
            let placeholders = (1..9).filter(|n| statement.sql.contains(&format!("?{n}"))).count();
            assert_eq!(statement.values.len(), placeholders, "{}", statement.sql);
            assert_eq!(statement.writes, !statement.sql.starts_with("SELECT"), "{}", statement.sql);
        }
    }
}
