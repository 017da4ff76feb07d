//! The table, its rows, and the SQL that touches them.
//!
//! A `u64` is stored as the signed integer of the same 64 bits: what is below 2^63 reads in the
//! `sqlite3` shell as what it is, and what is above reads as itself minus 2^64 (`u64::MAX` is -1).
//! Nothing is compared or added in SQL.
//!
//! The table is not `STRICT`: it may live in the database of an application, and SQLite before
//! 3.37 cannot open a file that has even one such table. `CHECK`s hold the types instead, and
//! every row is checked when it is read.

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::classify::{Sql, failed};
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::name::SequenceName;
use crate::store::{Bounds, Cursor, Grant, Identity, Listing, Page, Reserve, SequenceInfo};

pub(super) const DEFAULT_TABLE: &str = "idmill_sequences";
/// The layout of a row. Another version's rows are refused, and so is this version's insert into its table.
const FORMAT: i64 = 1;
const COLUMNS: &str = "name, next, start, max, incarnation, epoch, format";

/// A table's name that was checked, since it becomes part of the SQL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Table(Box<str>);

impl Table {
    pub(super) fn new(name: &str) -> Result<Self> {
        let mut bytes = name.bytes();
        let begins = bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_');
        let goes_on = bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if begins && goes_on && name.len() <= 63 && !name.to_ascii_lowercase().starts_with("sqlite_") {
            return Ok(Self(name.into()));
        }
        let rule = "up to 63 ASCII letters, digits and _, not beginning with a digit or `sqlite_`";
        Err(Error::invalid(format!("{name:?} cannot be the table: {rule}")).during(Operation::Connect))
    }

    pub(super) fn name(&self) -> &str {
        &self.0
    }

    /// As SQL names it: in the main database, where no temporary table of the caller's can stand in for it.
    fn sql(&self) -> String {
        format!("main.\"{}\"", self.0)
    }

    /// Creates the table unless it exists. One statement, so a crash leaves all of it or nothing.
    pub(super) fn create(&self, db: &Connection) -> Sql<()> {
        db.execute_batch(&format!(
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
        ))
    }

    /// Whether there is such a table; an error if there is one that is not of this crate's making.
    pub(super) fn exists(&self, db: &Connection) -> Result<bool> {
        let mut columns = Vec::new();
        db.pragma(Some("main"), "table_info", self.name(), |row| {
            columns.push(row.get::<_, String>("name")?);
            Ok(())
        })
        .map_err(failed)?;
        if columns.is_empty() || columns.join(", ") == COLUMNS {
            return Ok(!columns.is_empty());
        }
        let message = format!(
            "the table `{}` is there, but it has the columns {}; name another with ?table=NAME",
            self.name(),
            columns.join(", ")
        );
        Err(Error::new(ErrorKind::Conflict, message))
    }

    /// Takes the write lock without writing, so that what is read next is still so when it is written.
    ///
    /// In a deferred transaction that has not read yet, SQLite waits for other writers here; after a read it
    /// would find its snapshot stale and fail.
    pub(super) fn lock(&self, db: &Connection) -> Sql<()> {
        db.prepare_cached(&format!("UPDATE {} SET next = next WHERE 0", self.sql()))?.execute([])?;
        Ok(())
    }

    /// Reads one sequence; the inner error says what is wrong with its row.
    pub(super) fn read(&self, db: &Connection, name: &SequenceName) -> Sql<Result<Option<SequenceInfo>>> {
        let sql = format!("SELECT {COLUMNS} FROM {} WHERE name = ?1", self.sql());
        let row =
            db.prepare_cached(&sql)?.query_row([name.as_str()], |row| Ok(self.decode(row))).optional()?;
        Ok(row.transpose())
    }

    /// Reads a page. Where it ended are the bytes of a name, as the database has
    /// them: a name may be no UTF-8.
    pub(super) fn read_page(&self, db: &Connection, page: &Page) -> Result<Listing> {
        let after = page.after.as_ref().map(Cursor::bytes).transpose()?.unwrap_or_default();
        let sql = format!(
            "SELECT {COLUMNS}, CAST(name AS BLOB) FROM {} WHERE name > CAST(?1 AS TEXT) AND typeof(name) = 'text' \
             AND substr(name, 1, length(?2)) = ?2 ORDER BY name LIMIT ?3",
            self.sql()
        );
        let (mut listing, mut last, mut read) = (Listing::default(), None, 0);
        let mut reading = || -> Sql<()> {
            let mut statement = db.prepare_cached(&sql)?;
            let mut rows = statement.query(params![after, page.prefix, page.rows()])?;
            while let Some(row) = rows.next()? {
                listing.add(text(row, 0), self.decode(row));
                (last, read) = (Some(row.get::<_, Vec<u8>>(7)?), read + 1);
            }
            Ok(())
        };
        reading().map_err(failed)?;
        listing.next = last.filter(|_| read == page.rows()).map(|last| Cursor::of_bytes(&last));
        // Sorted here: in a database of UTF-16, SQLite's own order is another.
        Ok(listing.sorted())
    }

    /// Reserves within the transaction that `db` is in; writes only if the outcome is a grant.
    pub(super) fn reserve(&self, db: &Connection, request: &Reserve) -> Sql<Result<Grant>> {
        self.reserve_if(db, request, |_| Ok(()))
    }

    /// As [`reserve`](Self::reserve), for a grant that passes the caller's check.
    pub(super) fn reserve_if(
        &self,
        db: &Connection,
        request: &Reserve,
        check: impl FnOnce(&Grant) -> Result<()>,
    ) -> Sql<Result<Grant>> {
        let stored = match self.read(db, &request.name)? {
            Ok(stored) => stored,
            Err(error) => return Ok(Err(error)),
        };
        let exists = stored.is_some();
        let info = stored.map_or_else(|| Ok(fresh(&request.name, request.creation()?)), Ok);
        let mut info = match info {
            Ok(info) => info,
            Err(error) => return Ok(Err(error)),
        };
        let grant = match info
            .grant(request.count, request.ceiling)
            .and_then(|grant| check(&grant).map(|()| grant))
        {
            Ok(grant) => grant,
            Err(error) => return Ok(Err(error)),
        };
        let written = if exists { self.update(db, &info) } else { self.insert(db, &info) };
        written.map(|()| Ok(grant))
    }

    /// Adds a row.
    pub(super) fn insert(&self, db: &Connection, info: &SequenceInfo) -> Sql<()> {
        let sql = format!("INSERT INTO {} ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)", self.sql());
        let (bounds, identity) = (info.bounds, info.identity);
        let changed = db.prepare_cached(&sql)?.execute(params![
            info.name.as_str(),
            info.next.map(encode),
            encode(bounds.start()),
            encode(bounds.max()),
            encode(identity.incarnation),
            encode(identity.epoch),
            FORMAT
        ])?;
        one_row(changed)
    }

    /// Writes what can change about a row.
    pub(super) fn update(&self, db: &Connection, info: &SequenceInfo) -> Sql<()> {
        let sql = format!("UPDATE {} SET next = ?2, max = ?3, epoch = ?4 WHERE name = ?1", self.sql());
        let values = params![
            info.name.as_str(),
            info.next.map(encode),
            encode(info.bounds.max()),
            encode(info.identity.epoch)
        ];
        one_row(db.prepare_cached(&sql)?.execute(values)?)
    }

    /// Removes a row; `false` if there was none.
    pub(super) fn delete(&self, db: &Connection, name: &SequenceName) -> Sql<bool> {
        let sql = format!("DELETE FROM {} WHERE name = ?1", self.sql());
        Ok(db.prepare_cached(&sql)?.execute([name.as_str()])? > 0)
    }

    /// A row as a sequence, or what is wrong with it.
    fn decode(&self, row: &Row<'_>) -> Result<SequenceInfo> {
        let name = text(row, 0);
        decode(row).map_err(|fault| {
            let kind = if fault == LATER { ErrorKind::Unsupported } else { ErrorKind::StoreViolation };
            Error::new(
                kind,
                format!("the row {name:?} of `{}` {fault}; nothing is reserved from it", self.name()),
            )
        })
    }
}

pub(super) fn fresh(name: &SequenceName, bounds: Bounds) -> SequenceInfo {
    SequenceInfo { name: name.clone(), next: Some(bounds.start()), bounds, identity: Identity::fresh() }
}

const LATER: &str = "is in another format, perhaps a later version's";

fn decode(row: &Row<'_>) -> Result<SequenceInfo, String> {
    let integer = |column: usize, what: &str| match row.get_ref(column) {
        Ok(ValueRef::Integer(value)) => Ok(value),
        _ => Err(format!("has no integer for {what}")),
    };
    if integer(6, "format")? != FORMAT {
        return Err(LATER.to_owned());
    }
    // Made legible, it would be another name.
    if matches!(row.get_ref(0), Ok(ValueRef::Text(bytes)) if str::from_utf8(bytes).is_err()) {
        return Err("has a name that is no UTF-8".to_owned());
    }
    let name = SequenceName::new(&text(row, 0)).map_err(|error| format!("has no valid name: {error}"))?;
    let (start, max) = (decode_u64(integer(2, "start")?), decode_u64(integer(3, "max")?));
    let bounds = Bounds::new(start, max).map_err(|_| format!("has bounds {start}..={max} without ids"))?;
    let next = match row.get_ref(1) {
        Ok(ValueRef::Null) => None,
        _ => Some(decode_u64(integer(1, "next")?)),
    };
    if let Some(next) = next.filter(|next| !(start..=max).contains(next)) {
        return Err(format!("has next {next} outside its bounds {start}..={max}"));
    }
    let (incarnation, epoch) = (integer(4, "incarnation")?, integer(5, "epoch")?);
    if incarnation <= 0 || epoch < 0 {
        return Err(format!("has incarnation {incarnation} and epoch {epoch}, which never are"));
    }
    let identity = Identity { incarnation: decode_u64(incarnation), epoch: decode_u64(epoch) };
    Ok(SequenceInfo { name, next, bounds, identity })
}

/// Text as it is, or whatever else there is, legibly.
fn text(row: &Row<'_>, column: usize) -> String {
    match row.get_ref(column) {
        Ok(ValueRef::Text(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
        Ok(other) => format!("{other:?}"),
        Err(error) => error.to_string(),
    }
}

/// A trigger or a view can make a statement succeed without doing anything.
fn one_row(changed: usize) -> Sql<()> {
    if changed == 1 { Ok(()) } else { Err(rusqlite::Error::StatementChangedRows(changed)) }
}

fn encode(value: u64) -> i64 {
    value.cast_signed()
}

fn decode_u64(stored: i64) -> u64 {
    stored.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn table() -> (Connection, Table) {
        let (db, table) = (Connection::open_in_memory().unwrap(), Table::new("t").unwrap());
        table.create(&db).unwrap();
        (db, table)
    }

    proptest! {
        #[test]
        fn integers_survive_and_read_naturally_below_2_to_the_63(value: u64) {
            prop_assert_eq!(decode_u64(encode(value)), value);
            prop_assert_eq!(i128::from(encode(value)) == i128::from(value), value < 1 << 63);
        }

        #[test]
        fn rows_read_back_as_written(name in "\\PC{1,50}", a: u64, b: u64, offset: u64, all: bool, epoch in 0..=i64::MAX as u64) {
            let Ok(name) = SequenceName::new(&name) else { return Ok(()) };
            let bounds = Bounds::new(a.min(b), a.max(b)).unwrap();
            let next = bounds.start() + offset % (bounds.max() - bounds.start()).saturating_add(1);
            let identity = Identity { epoch, ..Identity::fresh() };
            let info = SequenceInfo { name, next: (!all).then_some(next), bounds, identity };
            let (db, table) = table();
            table.insert(&db, &info).unwrap();
            prop_assert_eq!(table.read(&db, &info.name).unwrap().unwrap(), Some(info.clone()));
            let later = SequenceInfo { next: None, ..info };
            table.update(&db, &later).unwrap();
            prop_assert_eq!(table.read_page(&db, &Page::default()).unwrap().sequences, vec![later]);
        }
    }

    #[test]
    fn rows_that_cannot_be_are_named_and_refused() {
        let (db, table) = table();
        db.pragma_update(None, "ignore_check_constraints", true).unwrap();
        let s = SequenceName::new("s").unwrap();
        for (row, fault) in [
            ("5, 10, 20, 1, 0, 1", "next 5 outside"),
            ("21, 10, 20, 1, 0, 1", "next 21 outside"),
            ("-1, 10, 20, 1, 0, 1", "next 18446744073709551615 outside"),
            ("15, 20, 10, 1, 0, 1", "without ids"),
            ("15, 10, 20, 0, 0, 1", "incarnation 0"),
            ("15, 10, 20, -3, 0, 1", "incarnation -3"),
            ("15, 10, 20, 1, -1, 1", "epoch -1"),
            ("'x', 10, 20, 1, 0, 1", "no integer for next"),
            ("1.5, 1, 20, 1, 0, 1", "no integer for next"),
            ("15, 10, x'00', 1, 0, 1", "no integer for max"),
            ("15, 10, 20, 1, 0, 2", "another format"),
        ] {
            db.execute_batch(&format!("DELETE FROM t; INSERT INTO t VALUES ('s', {row})")).unwrap();
            let error = table.read(&db, &s).unwrap().unwrap_err();
            let expected =
                if fault == "another format" { ErrorKind::Unsupported } else { ErrorKind::StoreViolation };
            assert_eq!(error.kind(), expected, "{row}");
            assert!(
                error.to_string().contains(fault) && error.to_string().contains("\"s\""),
                "{row}: {error}"
            );
        }
    }

    #[test]
    fn the_table_itself_refuses_what_cannot_be() {
        let (db, _) = table();
        for row in [
            "'a', 1, 10, 20, 0, 0, 1",
            "'a', 1, 10, 20, 1, 0, 2",
            "'a', 'x', 10, 20, 1, 0, 1",
            "x'61', 1, 1, 1, 1, 1, 1",
        ] {
            assert!(db.execute_batch(&format!("INSERT INTO t VALUES ({row})")).is_err(), "{row}");
        }
        assert!(db.execute_batch("INSERT INTO t VALUES ('a', NULL, 10, 20, 1, 0, 1)").is_ok());
    }

    #[test]
    fn a_silent_trigger_is_noticed() {
        let (db, table) = table();
        let s = SequenceName::new("s").unwrap();
        let request =
            Reserve { name: s.clone(), count: 5, ceiling: 100, create: Some(Bounds::new(1, 100).unwrap()) };
        table.reserve(&db, &request).unwrap().unwrap();
        db.execute_batch("CREATE TRIGGER no BEFORE UPDATE ON t BEGIN SELECT RAISE(IGNORE); END").unwrap();
        assert!(matches!(table.reserve(&db, &request), Err(rusqlite::Error::StatementChangedRows(0))));
    }
}
