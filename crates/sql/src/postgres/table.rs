//! The table and its SQL.
//!
//! Ids are `numeric(20)`, which holds 2^64, one more than the largest id. So `next` is an ordinary number for
//! an exhausted sequence too, and sums and comparisons in SQL cannot overflow. Numbers are sent as text.
//!
//! Every statement of a store that writes rows sets its own commit durability and lock timeout. Settings of
//! the session would not work: behind a pooler the next statement may run in another session, and the
//! settings would remain for other clients.

use idmill::{Error, ErrorKind, Result};
use idmill_kit::history::Failover;
use idmill_kit::options::{Kind, text};

use super::durable::{DURABLE, SET, SETTINGS, WRITTEN};
use super::history::in_transaction;
use super::place::Relation;
use crate::column::{is_plain, no_name, quoted};
use crate::history::History;
use crate::rows::FORMAT;

/// The valid values of the options for the name of a table or a schema.
pub const NAME: Kind = text("NAME", RULE, is_name);
const RULE: &str = "up to 63 ASCII letters, digits and _, not beginning with a digit or `pg_`";
/// PostgreSQL truncates longer names.
pub(super) const LONGEST_NAME: usize = 63;
const COLUMNS: [&str; 9] =
    ["name", "next", "reserved_from", "start", "max", "incarnation", "epoch", "format", "history"];
/// The last column, which tables of earlier versions lack.
const ADDED: &str = "history text";
/// The column of the history in an updated row.
const HISTORY: &str = "s.history";
/// The columns of a row, at the positions that [`decode`](super::rows::decode) expects. In a
/// written row, [`WRITTEN`] follows.
const ROW: &str = "s.name::text, s.next::text, s.start::text, s.max::text, s.incarnation::text, s.epoch::text, \
                   s.format::text, s.reserved_from::text";

/// A table in its schema. The names were checked, since they become part of the SQL. A store finds the schema
/// once. In a transaction of the caller, a table without a schema must be the only one of its name on the
/// path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    schema: Option<Box<str>>,
    name: Box<str>,
}

impl Table {
    /// Names a table in this schema, or in the one that the `search_path` leads to.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for an invalid name.
    pub fn new(schema: Option<&str>, name: &str) -> Result<Self> {
        check_name("table", name)?;
        schema.map_or(Ok(()), |schema| check_name("schema", schema))?;
        Ok(Self { schema: schema.map(Into::into), name: name.into() })
    }

    /// Returns the name without the schema.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the schema if it was given or found.
    pub fn schema(&self) -> Option<&str> {
        self.schema.as_deref()
    }

    /// Sets the schema that was found. A temporary table can then no longer shadow it.
    pub(super) fn within(&self, schema: &str) -> Self {
        Self { schema: Some(schema.into()), name: self.name.clone() }
    }

    /// A table of another name, in the same schema.
    pub(super) fn beside(&self, name: &str) -> Self {
        Self { schema: self.schema.clone(), name: name.into() }
    }

    /// Returns the table of the same name in `schema`.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for an invalid name.
    pub fn in_schema(&self, schema: &str) -> Result<Self> {
        Self::new(Some(schema), &self.name)
    }

    /// Returns the table as SQL names it.
    pub fn sql(&self) -> String {
        match &self.schema {
            Some(schema) => format!("{}.{}", quoted(schema), quoted(&self.name)),
            None => quoted(&self.name),
        }
    }

    /// Returns the statement that creates the table unless it exists. Half of each page is left free, so that
    /// an updated row fits in the same page and the index of the primary key need not change.
    pub fn ddl(&self) -> String {
        let table = self.sql();
        format!(
            "CREATE TABLE IF NOT EXISTS {table} (
  name text COLLATE \"C\" PRIMARY KEY,
  next numeric(20) NOT NULL, -- max + 1 once all are reserved
  reserved_from numeric(20), -- where the range that was reserved last begins
  start numeric(20) NOT NULL,
  max numeric(20) NOT NULL,
  incarnation bigint NOT NULL CHECK (incarnation > 0),
  epoch bigint NOT NULL CHECK (epoch >= 0),
  format smallint NOT NULL CHECK (format = {FORMAT}),
  {ADDED}, -- which cluster wrote this last, and on which timeline
  CHECK (0 <= start AND start <= max AND max < 18446744073709551616),
  CHECK (start <= next AND next <= max + 1)
) WITH (fillfactor = 50)"
        )
    }

    /// Takes the next ids of a row, up to `count` and the ceiling. Parameters: name, count,
    /// ceiling, lock timeout; and the floor if exactly `count` ids are needed. A row without such
    /// ids, or of another history, is not matched.
    ///
    /// Under READ COMMITTED a writer that waited for another evaluates the condition and the new
    /// values again, on the row as the other left it. `reserved_from` is one of those values, so it
    /// identifies the ids that this statement took.
    ///
    /// The settings are conditions, which are all evaluated before the row is locked. A join with a separate
    /// `session` part, as in the other statements, would take a tenth of the total time.
    pub(super) fn reserve(&self, in_transaction: bool, exactly: bool, history: History) -> String {
        let exactly = if exactly {
            " AND s.next + $2::numeric <= LEAST(s.max, $3::numeric) + 1 AND s.next >= $5::numeric"
        } else {
            ""
        };
        let (durable, set) = if in_transaction { ("'on'", "$4::text IS NOT NULL") } else { (SETTINGS, SET) };
        format!(
            "UPDATE {} AS s SET reserved_from = s.next, \
             next = LEAST(s.next + $2::numeric, LEAST(s.max, $3::numeric) + 1){} \
             WHERE s.name = $1 AND s.format = {FORMAT} AND s.next <= LEAST(s.max, $3::numeric){exactly}{}{} AND {set} \
             RETURNING {ROW}, {durable} AS durable, txid_current()::text AS xid",
            self.sql(),
            history.sets(),
            history.holds(HISTORY),
            self.is_only()
        )
    }

    /// The condition that the path leads to no other relation of this name, to append to other conditions. A
    /// clone in another schema would begin at the first ids again.
    fn is_only(&self) -> String {
        if self.schema.is_some() {
            return String::new();
        }
        format!(" AND (SELECT count(*) = 1 FROM ({}) AS path)", self.namesakes())
    }

    /// Selects the schemas of the path, including the temporary one, that have a relation of this name. To
    /// plan a join of catalogs would take longer than to run it.
    pub(super) fn namesakes(&self) -> String {
        format!(
            "SELECT path.schema::text FROM unnest(current_schemas(true)) AS path(schema) \
             WHERE to_regclass(quote_ident(path.schema) || '.{}') IS NOT NULL",
            quoted(&self.name)
        )
    }

    /// Like [`reserve`](Self::reserve), for several rows in one transaction. Parameters: names, counts,
    /// ceilings, lock timeout. Locks are taken in the order of the names. For a row that another transaction
    /// holds, only the name is returned.
    pub(super) fn reserve_many(&self, history: History) -> String {
        let (table, sets, holds) = (self.sql(), history.sets(), history.holds(HISTORY));
        format!(
            "{}, asked AS (SELECT * FROM unnest($1::text[], $2::numeric[], $3::numeric[]) AS a(name, count, ceiling)), \
             locked AS (SELECT l.name, asked.count, asked.ceiling, session.durable \
             FROM session, asked JOIN {table} AS l ON l.name = asked.name COLLATE \"C\" ORDER BY l.name FOR UPDATE OF l SKIP LOCKED), \
             moved AS (UPDATE {table} AS s SET reserved_from = s.next, \
             next = LEAST(s.next + locked.count, LEAST(s.max, locked.ceiling) + 1){sets} FROM session, locked \
             WHERE s.name = locked.name AND s.format = {FORMAT} AND s.next <= LEAST(s.max, locked.ceiling){holds} \
             RETURNING {ROW}, locked.durable, txid_current()::text AS xid) \
             SELECT * FROM moved UNION ALL SELECT held.name::text, NULL, NULL, NULL, NULL, NULL, NULL, NULL, session.durable, NULL \
             FROM session, asked JOIN {table} AS held ON held.name = asked.name COLLATE \"C\" \
             WHERE NOT EXISTS (SELECT FROM locked WHERE locked.name = held.name)",
            session(false, 4)
        )
    }

    /// Adds a row unless one of its name exists. Parameters: the values as in
    /// [`values`](super::rows::values), and the lock timeout.
    pub(super) fn insert(&self, in_transaction: bool, history: History) -> String {
        format!(
            "{} INSERT INTO {} AS s ({}) SELECT $1, $2::numeric, NULLIF($3, '')::numeric, $4::numeric, $5::numeric, $6::bigint, \
             $7::bigint, {FORMAT}, {} FROM session ON CONFLICT (name) DO NOTHING \
             RETURNING {ROW}, (SELECT durable FROM session), txid_current()::text AS xid",
            session(in_transaction, 8),
            self.sql(),
            COLUMNS.join(", "),
            history.value()
        )
    }

    /// Changes a row if it has not changed since it was read. Parameters: name, incarnation, epoch, max and
    /// next as read; new max, next and epoch; lock timeout. With `anew`, the caller decided where to
    /// continue, so the row moves to the current history.
    pub(super) fn replace(&self, history: History, anew: bool) -> String {
        let sets = if anew { history.sets_anew() } else { String::new() };
        format!(
            "{} UPDATE {} AS s SET max = $6::numeric, next = $7::numeric, epoch = $8::bigint{sets} FROM session \
             WHERE s.name = $1 AND s.incarnation = $2::bigint AND s.epoch = $3::bigint AND s.max = $4::numeric \
             AND s.next = $5::numeric AND s.format = {FORMAT} RETURNING {ROW}, {WRITTEN}",
            session(false, 9),
            self.sql()
        )
    }

    /// Moves a row of another history to the current one, if it is unchanged. Parameters: name,
    /// incarnation, epoch, next and history as read; new next; lock timeout.
    pub(super) fn adopt(&self, in_transaction: bool, history: History) -> String {
        format!(
            "{} UPDATE {} AS s SET next = $6::numeric{} FROM session \
             WHERE s.name = $1 AND s.incarnation = $2::bigint AND s.epoch = $3::bigint AND s.next = $4::numeric \
             AND s.history = $5 AND s.format = {FORMAT} RETURNING {ROW}, {WRITTEN}",
            session(in_transaction, 7),
            self.sql(),
            history.sets()
        )
    }

    /// Moves `next` back if it is at the end of the range. Parameters: name, incarnation, epoch, start and
    /// end of the range; lock timeout. A row of another history is not changed: another process may have
    /// taken these ids.
    pub(super) fn give_back(&self, history: History) -> String {
        format!(
            "{} UPDATE {} AS s SET next = $4::numeric FROM session \
             WHERE s.name = $1 AND s.incarnation = $2::bigint AND s.epoch = $3::bigint AND s.next = $5::numeric \
             AND s.start <= $4::numeric AND s.format = {FORMAT}{} RETURNING {ROW}, {WRITTEN}",
            session(false, 6),
            self.sql(),
            history.holds(HISTORY)
        )
    }

    /// Like [`give_back`](Self::give_back), for several rows. Parameters: names, incarnations, epochs, starts
    /// and ends of the ranges, lock timeout. Locks are taken in the order of the names. A row that another
    /// transaction holds is not changed: later ids are probably being reserved.
    pub(super) fn give_back_many(&self, history: History) -> String {
        let table = self.sql();
        format!(
            "{}, asked AS (SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::numeric[], $5::numeric[]) \
             AS a(name, incarnation, epoch, first, past) WHERE first < past), \
             locked AS (SELECT asked.*, session.durable \
             FROM session, asked JOIN {table} AS l ON l.name = asked.name COLLATE \"C\" ORDER BY l.name FOR UPDATE OF l SKIP LOCKED) \
             UPDATE {table} AS s SET next = locked.first FROM session, locked \
             WHERE s.name = locked.name AND s.incarnation = locked.incarnation AND s.epoch = locked.epoch \
             AND s.next = locked.past AND s.start <= locked.first AND s.format = {FORMAT}{} \
             RETURNING {ROW}, locked.durable, txid_current()::text AS xid",
            session(false, 6),
            history.holds(HISTORY)
        )
    }

    /// Removes a row. Parameters: name; the expected incarnation and epoch, if `has_identity`; lock timeout.
    pub(super) fn delete(&self, has_identity: bool) -> String {
        let (timeout_at, identity) = if has_identity {
            (4, " AND s.incarnation = $2::numeric AND s.epoch = $3::numeric")
        } else {
            (2, "")
        };
        format!(
            "{} DELETE FROM {} AS s USING session WHERE s.name = $1{identity} RETURNING {ROW}, {WRITTEN}",
            session(false, timeout_at),
            self.sql()
        )
    }

    /// Selects a row. Parameter: the name.
    pub(super) fn select(&self) -> String {
        format!("SELECT {ROW} FROM {} AS s WHERE s.name = $1", self.sql())
    }

    /// Selects a row with its history and the current one. Parameter: the name.
    pub(super) fn select_history(&self, here: &str) -> String {
        format!(
            "SELECT {ROW}, s.history::text, CASE WHEN pg_is_in_recovery() THEN NULL ELSE {here} END FROM {} AS s \
             WHERE s.name = $1",
            self.sql()
        )
    }

    /// Selects the rows of another history, with both histories. Parameter: the number of rows.
    pub(super) fn select_moved(&self, here: &str) -> String {
        format!(
            "SELECT s.name, s.history::text, server.history FROM {} AS s, (SELECT CASE WHEN pg_is_in_recovery() THEN NULL \
             ELSE {here} END AS history) AS server WHERE s.history <> server.history ORDER BY s.name COLLATE \"C\" \
             LIMIT $1::bigint",
            self.sql()
        )
    }

    /// Selects a page. Parameters: the last name of the previous page, the prefix and the number of rows.
    pub(super) fn select_page(&self) -> String {
        format!(
            "SELECT {ROW} FROM {} AS s WHERE s.name COLLATE \"C\" > $1 AND s.name COLLATE \"C\" >= $2 \
             AND left(s.name, length($2)) = $2 ORDER BY s.name COLLATE \"C\" LIMIT $3::bigint",
            self.sql()
        )
    }

    /// Returns the statement for any driver to draw from an existing sequence inside its own transaction.
    /// Parameters: the name, as `text`, and the number of ids, at least 1, as `bigint`. The statement returns
    /// one row with the first id, as `bigint`, or no row if the sequence does not exist, has fewer ids left,
    /// or was last written on another cluster or timeline.
    pub fn published(&self) -> String {
        format!(
            "UPDATE {} AS s SET reserved_from = next, next = next + $2::bigint, history = server.history \
             FROM (SELECT {} AS history) AS server \
             WHERE name = $1 AND format = {FORMAT} AND next + $2::bigint <= max + 1 \
             AND (s.history IS NULL OR s.history = server.history) RETURNING reserved_from::bigint",
            self.sql(),
            in_transaction(Failover::default()).value()
        )
    }

    /// Checks that the relation is such a table, and that a crash does not empty it.
    pub(super) fn check(&self, found: &Relation) -> Result<()> {
        if !found.is_table_of(&COLUMNS) {
            let (_, earlier) = COLUMNS.split_last().expect("there are columns");
            if found.is_table_of(earlier) {
                let message = format!(
                    "{0} is of an earlier version, without the column for the last writer; run ALTER TABLE \
                     {0} ADD COLUMN {ADDED}",
                    self.sql()
                );
                return Err(Error::new(ErrorKind::Conflict, message));
            }
            let message = format!(
                "{} is not idmill's table (its columns are {}); name another with `table=NAME` \
                 (`table(NAME)` in code)",
                self.sql(),
                found.columns
            );
            return Err(Error::new(ErrorKind::Conflict, message));
        }
        self.must_last(found, "its ids repeat")
    }

    /// Checks that a crash does not empty the table. `or_else` describes the consequence.
    pub(super) fn must_last(&self, found: &Relation, or_else: &str) -> Result<()> {
        let Some(part) = &found.forgetful else { return Ok(()) };
        let message = format!(
            "{}: {part} is unlogged, temporary or foreign, so {or_else} after a crash; if unlogged, run \
             ALTER TABLE {part} SET LOGGED",
            self.sql()
        );
        Err(Error::new(ErrorKind::Conflict, message))
    }
}

/// Returns the statement that creates a table, for migrations. A store with `mode=rwc` runs it if the table
/// is missing.
///
/// ```
/// let ddl = idmill_sql::postgres::ddl(None, "idmill_sequences")?;
/// assert!(ddl.starts_with("CREATE TABLE IF NOT EXISTS \"idmill_sequences\""));
/// # Ok::<(), idmill::Error>(())
/// ```
///
/// # Errors
/// [`InvalidInput`](ErrorKind::InvalidInput) for an invalid name.
pub fn ddl(schema: Option<&str>, table: &str) -> Result<String> {
    Ok(Table::new(schema, table)?.ddl())
}

/// Returns the statement that creates the table of the records, for migrations. A store with `mode=rwc` runs
/// it before it writes the first record.
///
/// # Errors
/// [`InvalidInput`](ErrorKind::InvalidInput) for an invalid name, or one that is too long for the
/// table of the records.
pub fn witness_ddl(schema: Option<&str>, table: &str) -> Result<String> {
    Table::new(schema, table)?.witness_ddl()
}

/// The `session` part of a statement: sets and returns the durability of its commit and the lock
/// timeout from this parameter. The settings of a caller's transaction are not
/// changed.
pub(super) fn session(in_transaction: bool, parameter: usize) -> String {
    if in_transaction {
        return format!("WITH session AS (SELECT 'on' AS durable, ${parameter}::text AS timeout)");
    }
    format!("WITH session AS (SELECT {DURABLE}, set_config('lock_timeout', ${parameter}, true) AS timeout)")
}

/// Checks that a name has up to 63 ASCII letters, digits and `_`, and a valid start. `what` describes the
/// object in the error.
///
/// # Errors
/// [`InvalidInput`](ErrorKind::InvalidInput) for an invalid name.
pub fn check_name(what: &str, name: &str) -> Result<()> {
    if is_name(name) { Ok(()) } else { Err(no_name(what, name, RULE)) }
}

fn is_name(name: &str) -> bool {
    is_plain(name, LONGEST_NAME) && !name.starts_with("pg_")
}

#[cfg(test)]
mod tests {
    use idmill::ErrorKind;

    use super::*;

    #[test]
    fn tables_are_named_in_their_schema() {
        assert_eq!(Table::new(Some("app"), "t").unwrap().sql(), "\"app\".\"t\"");
        for name in ["", "1a", "a\"b", "a b", "pg_x", "ü", &"x".repeat(64)] {
            assert_eq!(Table::new(None, name).unwrap_err().kind(), ErrorKind::InvalidInput, "{name}");
            assert!(Table::new(Some(name), "t").is_err(), "{name}");
        }
    }
}
