//! The table, its rows, and the SQL that touches them.
//!
//! Numbers are `numeric(20)`, which holds 2^64, one more than the last id: so `next` is an ordinary number
//! for a sequence that is used up, and PostgreSQL adds and compares without an edge. They travel as text.
//!
//! Every statement that writes says for itself how its commit is to be confirmed and how long it waits for
//! locks. Settings of the session would not do: behind a pooler the next statement may run in another, and
//! they would stay behind for strangers.

use tokio_postgres::Row;

use super::durable::{DURABLE, WRITTEN};
use super::place::Relation;
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::name::SequenceName;
use crate::store::{Bounds, Grant, Identity, Reserve, SequenceInfo};

pub(super) const DEFAULT_TABLE: &str = "idmill_sequences";
/// The layout of a row. Another version's rows are neither matched by our writes nor read.
const FORMAT: &str = "1";
const COLUMNS: [&str; 8] =
    ["name", "next", "reserved_from", "start", "max", "incarnation", "epoch", "format"];
/// A row as it is read, at the places that [`decode`] looks at.
const ROW: &str = "s.name::text, s.next::text, s.start::text, s.max::text, s.incarnation::text, s.epoch::text, \
                   s.format::text, s.reserved_from::text";

/// A table's name that was checked, since it becomes part of the SQL, in its schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Table {
    schema: Option<Box<str>>,
    name: Box<str>,
}

impl Table {
    pub(super) fn new(schema: Option<&str>, name: &str) -> Result<Self> {
        check_name("table", name)?;
        schema.map_or(Ok(()), |schema| check_name("schema", schema))?;
        Ok(Self { schema: schema.map(Into::into), name: name.into() })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn schema(&self) -> Option<&str> {
        self.schema.as_deref()
    }

    /// The same table, in the schema that was found for it: no temporary table can stand in for it then.
    pub(super) fn within(&self, schema: &str) -> Self {
        Self { schema: Some(schema.into()), name: self.name.clone() }
    }

    pub(super) fn in_schema(mut self, schema: Option<&str>) -> Result<Self> {
        self.schema = schema.map(Into::into);
        Self::new(self.schema(), &self.name)
    }

    /// As SQL names it.
    pub(super) fn sql(&self) -> String {
        match &self.schema {
            Some(schema) => format!("{}.{}", quoted(schema), quoted(&self.name)),
            None => quoted(&self.name),
        }
    }

    /// Creates the table unless it exists. Half of each page is left free, so that an update finds room in
    /// the page that the row is in, and the primary key stays as it is.
    pub(super) fn ddl(&self) -> String {
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
  CHECK (0 <= start AND start <= max AND max < 18446744073709551616),
  CHECK (start <= next AND next <= max + 1)
) WITH (fillfactor = 50)"
        )
    }

    /// Takes the next ids of a row, up to `count` and the limit: parameters name, count,
    /// ceiling, lock timeout, whether all of `count` are needed, and the least id of use. A row
    /// that has none is not matched.
    ///
    /// Under READ COMMITTED a writer that waited for another evaluates condition and new values
    /// again, on the row as the other left it. `reserved_from` is part of those values, and tells
    /// which ids this very statement took.
    pub(super) fn reserve(&self, within: Within) -> String {
        format!(
            "{} UPDATE {} AS s SET reserved_from = s.next, \
             next = LEAST(s.next + $2::numeric, LEAST(s.max, $3::numeric) + 1) FROM session \
             WHERE s.name = $1 AND s.format = {FORMAT} AND s.next <= LEAST(s.max, $3::numeric) \
             AND ($5 <> 'exactly' OR s.next + $2::numeric <= LEAST(s.max, $3::numeric) + 1) \
             AND s.next >= $6::numeric RETURNING {ROW}, {WRITTEN}",
            session(within, 4),
            self.sql()
        )
    }

    /// The same for several rows in one transaction: parameters names, counts, ceilings, lock timeout. Their
    /// locks are taken in the order of their names; a row that another transaction holds is passed over, and
    /// comes back with its name alone.
    pub(super) fn reserve_many(&self) -> String {
        let table = self.sql();
        format!(
            "{}, asked AS (SELECT * FROM unnest($1::text[], $2::numeric[], $3::numeric[]) AS a(name, count, ceiling)), \
             locked AS (SELECT l.name, asked.count, asked.ceiling, session.durable \
             FROM session, asked JOIN {table} AS l ON l.name = asked.name COLLATE \"C\" ORDER BY l.name FOR UPDATE OF l SKIP LOCKED), \
             moved AS (UPDATE {table} AS s SET reserved_from = s.next, \
             next = LEAST(s.next + locked.count, LEAST(s.max, locked.ceiling) + 1) FROM locked \
             WHERE s.name = locked.name AND s.format = {FORMAT} AND s.next <= LEAST(s.max, locked.ceiling) \
             RETURNING {ROW}, locked.durable, txid_current()::text AS xid) \
             SELECT * FROM moved UNION ALL SELECT held.name::text, NULL, NULL, NULL, NULL, NULL, NULL, NULL, session.durable, NULL \
             FROM session, asked JOIN {table} AS held ON held.name = asked.name COLLATE \"C\" \
             WHERE NOT EXISTS (SELECT FROM locked WHERE locked.name = held.name)",
            session(Within::Its, 4)
        )
    }

    /// Adds a row unless there is one of its name: its values as in [`values`], and the lock timeout.
    pub(super) fn insert(&self, within: Within) -> String {
        format!(
            "{} INSERT INTO {} AS s ({}) SELECT $1, $2::numeric, NULLIF($3, '')::numeric, $4::numeric, $5::numeric, $6::bigint, \
             $7::bigint, {FORMAT} FROM session ON CONFLICT (name) DO NOTHING \
             RETURNING {ROW}, (SELECT durable FROM session), txid_current()::text AS xid",
            session(within, 8),
            self.sql(),
            COLUMNS.join(", ")
        )
    }

    /// Changes a row if it is as it was: name, incarnation, epoch, max and next as seen; max, next
    /// and epoch to be; lock timeout.
    pub(super) fn replace(&self) -> String {
        format!(
            "{} UPDATE {} AS s SET max = $6::numeric, next = $7::numeric, epoch = $8::bigint FROM session \
             WHERE s.name = $1 AND s.incarnation = $2::bigint AND s.epoch = $3::bigint AND s.max = $4::numeric \
             AND s.next = $5::numeric AND s.format = {FORMAT} RETURNING {ROW}, {WRITTEN}",
            session(Within::Its, 9),
            self.sql()
        )
    }

    /// Moves `next` back, if it is where the range ends: name, incarnation, epoch, start and
    /// end of the range; lock timeout.
    pub(super) fn give_back(&self) -> String {
        format!(
            "{} UPDATE {} AS s SET next = $4::numeric FROM session \
             WHERE s.name = $1 AND s.incarnation = $2::bigint AND s.epoch = $3::bigint AND s.next = $5::numeric \
             AND s.start <= $4::numeric AND s.format = {FORMAT} RETURNING {ROW}, {WRITTEN}",
            session(Within::Its, 6),
            self.sql()
        )
    }

    /// Name, lock timeout.
    pub(super) fn delete(&self) -> String {
        format!(
            "{} DELETE FROM {} AS s USING session WHERE s.name = $1 RETURNING {ROW}, {WRITTEN}",
            session(Within::Its, 2),
            self.sql()
        )
    }

    pub(super) fn select(&self) -> String {
        format!("SELECT {ROW} FROM {} AS s WHERE s.name = $1", self.sql())
    }

    /// A page: parameters the name that it follows, the prefix and the number of rows.
    pub(super) fn select_page(&self) -> String {
        format!(
            "SELECT {ROW} FROM {} AS s WHERE s.name COLLATE \"C\" > $1 AND s.name COLLATE \"C\" >= $2 \
             AND left(s.name, length($2)) = $2 ORDER BY s.name COLLATE \"C\" LIMIT $3::bigint",
            self.sql()
        )
    }

    /// What is published for other drivers. See [`super::next_in_sql`].
    pub(super) fn published(&self) -> String {
        format!(
            "UPDATE {} SET reserved_from = next, next = next + $2::bigint \
             WHERE name = $1 AND format = {FORMAT} AND next + $2::bigint <= max + 1 RETURNING reserved_from::bigint",
            self.sql()
        )
    }

    /// Whether what was found is such a table, and whole after a crash.
    pub(super) fn check(&self, found: &Relation) -> Result<()> {
        if !matches!(found.kind.as_str(), "r" | "p") || found.columns != COLUMNS.join(", ") {
            let message = format!(
                "{} is there, but it is not idmill's table (its columns are {}); name another with table=NAME",
                self.sql(),
                found.columns
            );
            return Err(Error::new(ErrorKind::Conflict, message));
        }
        let Some(part) = &found.forgetful else { return Ok(()) };
        let message = format!(
            "{}: {part} is unlogged, temporary or foreign: a crash empties it, and its ids would be handed out again; run ALTER \
             TABLE {part} SET LOGGED",
            self.sql()
        );
        Err(Error::new(ErrorKind::Conflict, message))
    }
}

/// In whose transaction a statement runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Within {
    /// One of its own.
    Its,
    /// The caller's, whose settings are left alone.
    Callers,
}

/// The settings of one statement, as its first part: what its commit waits for, read back, and its
/// patience, in this parameter.
pub(super) fn session(within: Within, parameter: usize) -> String {
    match within {
        Within::Its => format!(
            "WITH session AS (SELECT {DURABLE}, set_config('lock_timeout', ${parameter}, true) AS patience)"
        ),
        Within::Callers => {
            format!("WITH session AS (SELECT 'on' AS durable, ${parameter}::text AS patience)")
        }
    }
}

/// What PostgreSQL takes for one identifier, of those that need no thought.
pub(super) fn check_name(what: &str, name: &str) -> Result<()> {
    let valid = !name.is_empty()
        && name.len() <= 63
        && !name.starts_with("pg_")
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if valid {
        return Ok(());
    }
    let rule = "up to 63 ASCII letters, digits and _, not beginning with a digit or `pg_`";
    Err(Error::invalid(format!("{name:?} cannot be the {what}: {rule}")).during(Operation::Connect))
}

pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

pub(super) fn fresh(name: &SequenceName, bounds: Bounds) -> SequenceInfo {
    SequenceInfo { name: name.clone(), next: Some(bounds.start()), bounds, identity: Identity::fresh() }
}

/// `next` as it is stored.
pub(super) fn reached(info: &SequenceInfo) -> u128 {
    info.next.map_or_else(|| u128::from(info.bounds.max()) + 1, u128::from)
}

/// The values of a new row, of which the ids from there on were reserved last, if any were, in the order of
/// the columns but for the last.
pub(super) fn values(info: &SequenceInfo, from: Option<u64>) -> [String; 7] {
    let (bounds, identity) = (info.bounds, info.identity);
    [
        info.name.as_str().to_owned(),
        reached(info).to_string(),
        from.map(|from| from.to_string()).unwrap_or_default(),
        bounds.start().to_string(),
        bounds.max().to_string(),
        identity.incarnation.to_string(),
        identity.epoch.to_string(),
    ]
}

/// What [`Table::reserve`] took, from the row as it left it.
pub(super) fn granted(row: &Row, request: &Reserve) -> Result<Grant> {
    let after = decode(row)?;
    if after.name != request.name {
        return Err(unsound(&after.name, "was reserved from instead of another"));
    }
    let from = row.try_get::<_, Option<String>>(7).ok().flatten().and_then(|from| from.parse::<u64>().ok());
    let Some(from) = from.filter(|from| *from >= after.bounds.start()) else {
        return Err(unsound(&after.name, "does not say which ids were reserved"));
    };
    let mut before = SequenceInfo { next: Some(from), ..after.clone() };
    let grant = before.grant(request.count, request.ceiling)?;
    if reached(&before) != reached(&after) {
        return Err(unsound(&after.name, "did not move as far as it was to: a trigger may have changed it"));
    }
    Ok(grant)
}

/// The name of a row.
pub(super) fn name(row: &Row) -> String {
    row.try_get::<_, Option<String>>(0).ok().flatten().unwrap_or_default()
}

/// A row as a sequence.
///
/// # Errors
/// [`ErrorKind::StoreViolation`] for what cannot be; [`ErrorKind::Unsupported`] for another version's.
pub(super) fn decode(row: &Row) -> Result<SequenceInfo> {
    let texts = (0..7).map(|place| row.try_get::<_, Option<String>>(place).ok().flatten());
    let texts: Vec<_> = texts.map(Option::unwrap_or_default).collect();
    decode_texts(&texts)
}

fn decode_texts(texts: &[String]) -> Result<SequenceInfo> {
    let [name, next, start, max, incarnation, epoch, format] = texts else {
        return Err(unsound("?", "has other columns than were asked for"));
    };
    if format != FORMAT {
        let message = format!("the row {name:?} is in another format, perhaps a later version's");
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    let valid =
        SequenceName::new(name).map_err(|error| unsound(name, &format!("has no valid name: {error}")))?;
    let number = |text: &str, what: &str| {
        text.parse::<u128>().map_err(|_| unsound(name, &format!("has no id for {what}, but {text:?}")))
    };
    let (next, start, max) = (number(next, "next")?, number(start, "start")?, number(max, "max")?);
    let bounds = u64::try_from(start).ok().zip(u64::try_from(max).ok());
    let bounds = bounds.and_then(|(start, max)| Bounds::new(start, max).ok());
    let bounds = bounds.ok_or_else(|| unsound(name, &format!("has bounds {start}..={max}")))?;
    if next < start || next > max + 1 {
        return Err(unsound(name, &format!("has next {next} outside its bounds {start}..={max}")));
    }
    let parsed = |text: &str| text.parse::<i64>().ok().and_then(|value| u64::try_from(value).ok());
    let identity = parsed(incarnation).filter(|incarnation| *incarnation > 0).zip(parsed(epoch));
    let Some((incarnation, epoch)) = identity else {
        let fault = format!("has incarnation {incarnation} and epoch {epoch}, which never are");
        return Err(unsound(name, &fault));
    };
    let next = u64::try_from(next).ok().filter(|next| *next <= bounds.max());
    Ok(SequenceInfo { name: valid, next, bounds, identity: Identity { incarnation, epoch } })
}

fn unsound(name: &str, fault: &str) -> Error {
    Error::new(ErrorKind::StoreViolation, format!("the row {name:?} {fault}; nothing is reserved from it"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn rows_read_back_as_written(text in "\\PC{1,50}", a: u64, b: u64, offset: u64, all: bool, epoch in 0..=i64::MAX as u64) {
            let Ok(name) = SequenceName::new(&text) else { return Ok(()) };
            let bounds = Bounds::new(a.min(b), a.max(b)).unwrap();
            let next = bounds.start() + offset % (bounds.max() - bounds.start()).saturating_add(1);
            let identity = Identity { epoch, ..Identity::fresh() };
            let info = SequenceInfo { name, next: (!all).then_some(next), bounds, identity };
            let [name, next, _, start, max, incarnation, epoch] = values(&info, None);
            let row = [name, next, start, max, incarnation, epoch, FORMAT.to_owned()];
            prop_assert_eq!(decode_texts(&row).unwrap(), info);
        }
    }

    #[test]
    fn rows_that_cannot_be_are_named_and_refused() {
        for (row, fault) in [
            ("4 5 20 1 0 1", "next 4 outside"),
            ("22 5 20 1 0 1", "next 22 outside"),
            ("7 20 5 1 0 1", "bounds 20..=5"),
            ("7 5 18446744073709551616 1 0 1", "bounds 5..=18446744073709551616"),
            ("x 5 20 1 0 1", "no id for next"),
            ("7.5 5 20 1 0 1", "no id for next"),
            ("7 -5 20 1 0 1", "no id for start"),
            ("7 5 20 0 0 1", "incarnation 0"),
            ("7 5 20 1 -1 1", "epoch -1"),
            ("7 5 20 1 0 2", "another format"),
        ] {
            let texts: Vec<_> = std::iter::once("s").chain(row.split(' ')).map(str::to_owned).collect();
            let error = decode_texts(&texts).unwrap_err();
            let expected =
                if fault == "another format" { ErrorKind::Unsupported } else { ErrorKind::StoreViolation };
            assert_eq!(error.kind(), expected, "{row}");
            assert!(error.to_string().contains(fault) && error.to_string().contains("\"s\""), "{error}");
        }
    }

    #[test]
    fn tables_are_named_in_their_schema() {
        assert_eq!(Table::new(Some("app"), "t").unwrap().sql(), "\"app\".\"t\"");
        for name in ["", "1a", "a\"b", "a b", "pg_x", "ü", &"x".repeat(64)] {
            assert_eq!(Table::new(None, name).unwrap_err().kind(), ErrorKind::InvalidInput, "{name}");
            assert!(Table::new(Some(name), "t").is_err(), "{name}");
        }
    }
}
