//! PostgreSQL's own sequences: the SQL that reads them and draws from them, and the checks that
//! reject unsafe ones.

use idmill::store::{Bounds, Identity, SequenceInfo};
use idmill::{Error, ErrorKind, Result, SequenceName};
use idmill_kit::options::Word;

use super::durable::DURABLE;
use super::prepared::literal;
use crate::Row;

/// The upper half of the advisory lock's number; the lower half is the sequence's oid.
const ADVISORY: u32 = u32::from_be_bytes(*b"idml");
/// The start of idmill's note in a sequence's comment, after any existing comment.
const NOTE: &str = "[idmill ";

/// The column of a row of [`draw_sql`] to pass to [`must_be_durable`](super::must_be_durable).
pub const DRAWN_DURABLE_AT: usize = 13;

/// The column of a row of [`flush_sql`] to pass to [`must_be_durable`](super::must_be_durable).
pub const FLUSHED_DURABLE_AT: usize = 1;

/// The SQLSTATE that is raised if a sequence has changed since it was read.
pub const CHANGED: &str = "ID001";

/// The ids that a value of a sequence stands for, if its increment n is above 1.
///
/// All programs that draw from one sequence must interpret its values the same way. Otherwise ids
/// are duplicated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Values {
    /// `last`: value v stands for v - n + 1 to v, as in Hibernate's `pooled` optimizer.
    Last,
    /// `first`: value v stands for v to v + n - 1, as in EF Core, Npgsql, Quarkus and Hibernate's
    /// `pooled-lo`.
    First,
}

impl Word for Values {
    const WORDS: &'static [(Self, &'static str, &'static str)] = &[
        (Self::Last, "last", "the last id of its block, as in Hibernate's `pooled`"),
        (
            Self::First,
            "first",
            "the first id of its block, as in EF Core, Npgsql, Quarkus and Hibernate's `pooled-lo`",
        ),
    ];
}

/// A sequence as stored in the catalog and in its own row.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NativeState {
    /// Its name, without the schema.
    pub name: String,
    /// `last_value`: the last value drawn, or the first value if none was drawn.
    pub last: i64,
    /// `is_called`: whether `last` was drawn.
    pub called: bool,
    /// `INCREMENT BY`.
    pub increment: i64,
    /// `MINVALUE`.
    pub min: i64,
    /// `START WITH`.
    pub start: i64,
    /// `MAXVALUE`.
    pub max: i64,
    /// Whether it wraps around at its end.
    pub cycles: bool,
    /// `CACHE`.
    pub cache: i64,
    /// As in `pg_class.relpersistence`.
    pub persistence: String,
    /// The number of its file, which a restart changes.
    pub file: u64,
    /// Its oid.
    pub oid: u64,
    /// Its comment, including idmill's note.
    pub comment: String,
    /// The interpretation of its values in the store's options.
    pub told: Option<Values>,
}

impl NativeState {
    /// Reads a row of [`see_sql`] or of [`draw_sql`].
    ///
    /// # Errors
    /// [`StoreViolation`](ErrorKind::StoreViolation) if a column is not a number.
    pub fn read(row: &Row, told: Option<Values>) -> Result<Self> {
        let text = |column| row.text(column).unwrap_or_default().to_owned();
        let number = |column| {
            text(column).parse::<i64>().map_err(|_| {
                let message =
                    format!("the sequence {:?} has an invalid column {column}: {:?}", text(0), text(column));
                Error::new(ErrorKind::StoreViolation, message)
            })
        };
        Ok(Self {
            name: text(0),
            last: number(1)?,
            called: text(2) == "true",
            increment: number(3)?,
            min: number(4)?,
            max: number(5)?,
            cycles: text(6) == "true",
            cache: number(7)?,
            persistence: text(8),
            file: number(9)?.cast_unsigned(),
            oid: number(10)?.cast_unsigned(),
            comment: text(11),
            start: number(12)?,
            told,
        })
    }

    /// Rejects a sequence that could return duplicate ids, ids out of order, or values that cannot be ids.
    ///
    /// # Errors
    /// [`Conflict`](ErrorKind::Conflict), with the statements that fix the sequence, unless it is temporary.
    pub fn check(&self) -> Result<()> {
        // The position of the sequence may be below an id in use, so the statement sets it.
        let fix = |problem: &str, options: &str| {
            format!("{problem}; ALTER SEQUENCE … {options}RESTART N, with N above every id in use")
        };
        let problem = match self {
            _ if self.persistence == "t" => "it is temporary: each session has its own".to_owned(),
            _ if self.persistence != "p" => {
                fix("it is unlogged: a crash resets it; ALTER SEQUENCE … SET LOGGED", "")
            }
            _ if self.cycles => fix("it restarts at its end", "NO CYCLE "),
            _ if self.increment < 1 => {
                fix("it counts down", "INCREMENT BY 1 NO MINVALUE NO MAXVALUE START N ")
            }
            // Sessions keep the values that they have cached: a restart could repeat them.
            _ if self.cache != 1 => {
                "it caches values, so ids are out of order; ALTER SEQUENCE … CACHE 1".to_owned()
            }
            _ if self.first() < 0 || self.last < 0 => fix("it has negative values", "MINVALUE 0 START N "),
            _ => return Ok(()),
        };
        let message = format!("cannot draw from the sequence {:?}: {problem}", self.name);
        Err(Error::new(ErrorKind::Conflict, message))
    }

    /// Returns the first id of the sequence: the id in the note if the note is valid, else the start, or the
    /// minimum if the sequence was restarted below the start.
    pub fn first(&self) -> i64 {
        let start = if self.last < self.start { self.min } else { self.start };
        self.noted_first().unwrap_or(start)
    }

    /// Returns which ids the values of the sequence stand for.
    ///
    /// # Errors
    /// [`Conflict`](ErrorKind::Conflict) if neither the sequence nor the options determine it, or
    /// if they differ.
    pub fn values(&self) -> Result<Values> {
        let (name, increment) = (&self.name, self.increment);
        let message = match (self.noted_values(), self.told) {
            _ if increment == 1 => return Ok(self.told.unwrap_or(Values::Last)),
            (Some(noted), Some(told)) if noted != told => format!(
                "the sequence {name:?} is recorded as values={}, but the option is values={}; correct the \
                 option",
                noted.word(),
                told.word()
            ),
            (Some(values), _) | (None, Some(values)) => return Ok(values),
            (None, None) => format!(
                "{name:?} has INCREMENT BY {increment}; set `values=last` (Hibernate pooled) or \
                 `values=first` (EF Core, pooled-lo)"
            ),
        };
        Err(Error::new(ErrorKind::Conflict, message))
    }

    /// Whether the next value stands for a whole block, and not only for itself.
    pub fn is_begun(&self) -> bool {
        self.called || self.is_whole()
    }

    /// Whether even the first value stands for a whole block, according to the note.
    pub fn is_whole(&self) -> bool {
        self.noted_first().is_some()
    }

    /// Notes of earlier versions, and of sequences with increment 1, have no `values`. All such sequences use
    /// [`Values::Last`], unless the sequence was altered since.
    fn noted_values(&self) -> Option<Values> {
        match self.noted("values") {
            Some(word) => {
                Values::WORDS.iter().find(|(_, known, _)| *known == word).map(|(values, ..)| *values)
            }
            None => self.is_as_noted().then_some(Values::Last),
        }
    }

    /// The first id, if the first value is the last of a whole block. A `setval` below it
    /// invalidates the note.
    fn noted_first(&self) -> Option<i64> {
        let first = self.noted("first").filter(|_| self.is_as_noted())?.parse().ok();
        first.filter(|first| *first <= self.last)
    }

    /// Whether the sequence still has the file number in the note: a restart and each change of its
    /// parameters change the number.
    fn is_as_noted(&self) -> bool {
        self.noted("file").and_then(|file| file.parse().ok()) == Some(self.file)
    }

    fn noted(&self, key: &str) -> Option<&str> {
        let (_, note) = self.comment.rsplit_once(NOTE)?;
        note.split([' ', ']']).find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='))
    }

    /// Converts this to a sequence of a store.
    ///
    /// # Errors
    /// The errors of [`check`](Self::check) and [`values`](Self::values).
    pub fn info(&self) -> Result<SequenceInfo> {
        self.check()?;
        let values = self.values()?;
        let value = if self.called { self.last.checked_add(self.increment) } else { Some(self.last) };
        let next = value.filter(|value| *value <= self.max).map(|value| match values {
            // Only whole blocks are drawn.
            Values::Last if self.is_begun() => (value - self.increment + 1).max(self.first()),
            _ => value,
        });
        let bounds = Bounds::new(self.first().cast_unsigned(), self.max.cast_unsigned())?;
        let name = SequenceName::new(&self.name)?;
        Ok(SequenceInfo::stored(name, next.map(i64::cast_unsigned), bounds, self.identity()))
    }

    /// Returns the identity in the note if the sequence still has the file number in the note. Any restart
    /// changes the file.
    pub fn identity(&self) -> Identity {
        if !self.comment.contains(NOTE) {
            return Identity { incarnation: self.oid.max(1), epoch: self.file };
        }
        let number = |key| self.noted(key).and_then(|value| value.parse::<u64>().ok()).unwrap_or_default();
        let (incarnation, epoch) = (number("incarnation").max(1), number("epoch"));
        if self.is_as_noted() {
            return Identity { incarnation, epoch };
        }
        // This epoch is above all noted ones.
        Identity { incarnation, epoch: epoch.wrapping_add((1 << 32) | self.file) }
    }

    /// Returns the part of the sequence's comment before idmill's note.
    pub fn remark(&self) -> &str {
        self.comment.rsplit_once(NOTE).map_or(self.comment.as_str(), |(remark, _)| remark)
    }
}

/// The names of the sequences in a schema or in all schemas of the path. Each row has the name, whether it
/// may be read (`true`), its schema, and the number of schemas that have it. Parameters of the page: the
/// schema or an empty string for the path, the last name of the previous page, the prefix and the limit.
pub const NAMES: &str = "SELECT c.relname::text, bool_and(COALESCE(has_sequence_privilege(c.oid, 'SELECT'), true))::text, \
    min(n.nspname::text), count(*)::text FROM pg_catalog.pg_class c \
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind = 'S' \
    AND n.nspname = ANY(CASE $1 WHEN '' THEN current_schemas(false) ELSE ARRAY[$1::name] END) \
    AND c.relname::text COLLATE \"C\" > $2 AND left(c.relname::text, length($3)) = $3 \
    GROUP BY c.relname ORDER BY c.relname::text COLLATE \"C\" LIMIT $4::bigint";

/// The columns of [`NativeState::read`] after the name and the position. All are read under the snapshot of
/// the statement. Each change of a property changes the file.
const PROPERTIES: &str = "s.seqincrement::text, s.seqmin::text, s.seqmax::text, s.seqcycle::text, s.seqcache::text, \
    s.relpersistence::text, s.relfilenode::text, s.o::text, obj_description(s.o, 'pg_class'), s.seqstart::text";

/// The columns of the catalog that [`PROPERTIES`] come from.
const CATALOG: &str = "c.oid AS o, c.relname, c.relpersistence, c.relfilenode, p.*";

/// Returns the query for [`NativeState::read`]. The query draws nothing. It returns no row if the sequence
/// was changed during the read: the position and the properties are always of one state.
///
/// The properties come from the snapshot of the statement, but the position comes from the current file,
/// which can be older or newer than the snapshot. So the current file number is compared before and after
/// the position is read.
pub fn see_sql(sql: &str, name: &str) -> String {
    format!(
        "SELECT {}::text, l.last_value::text, l.is_called::text, {PROPERTIES} \
         FROM (SELECT {CATALOG}, pg_relation_filenode(c.oid) AS before FROM pg_catalog.pg_class AS c \
         JOIN pg_catalog.pg_sequence AS p ON p.seqrelid = c.oid WHERE c.oid = {}::regclass OFFSET 0) AS s, \
         LATERAL (SELECT l.last_value, l.is_called FROM {sql} AS l WHERE s.before = s.relfilenode OFFSET 0) AS l \
         WHERE s.relfilenode = CASE WHEN l.is_called IS NOT NULL THEN pg_relation_filenode(s.o) END",
        literal(name),
        literal(sql)
    )
}

/// Returns the statement that draws values. Parameters: the number of values, the lock timeout, and the
/// largest value allowed. The statement draws fewer values if fewer are left. The columns are those of
/// [`see_sql`], with the drawn value as `last_value`, then the commit's durability at [`DRAWN_DURABLE_AT`].
///
/// A statement takes its snapshot before it waits for a lock. `pg_sequence_last_value` takes the lock of
/// `nextval`, which blocks `ALTER SEQUENCE` until the commit. If the sequence then has another file than in
/// the snapshot, it was changed in between, and the statement draws nothing: its properties and its comment
/// would be those from before the change.
///
/// If ranges can have several values, an advisory lock serializes the clients, so that the values are
/// contiguous. Clients that do not take the lock may still draw in between.
pub fn draw_sql(sql: &str) -> String {
    let name = literal(sql);
    format!(
        "WITH session AS (SELECT {DURABLE}, set_config('lock_timeout', $2, true) AS timeout, \
         pg_logical_emit_message(true, 'idmill', '')::text AS flushed), \
         turn AS (SELECT {name}::regclass AS o, session.*, CASE WHEN $1::numeric > 1 \
         OR (SELECT seqincrement = 1 FROM pg_catalog.pg_sequence WHERE seqrelid = {name}::regclass) THEN \
         pg_advisory_xact_lock(({ADVISORY}::bigint << 32) | {name}::regclass::oid::bigint) IS NULL END AS turn \
         FROM session), \
         locked AS (SELECT turn.*, pg_sequence_last_value(turn.o) AS reached FROM turn), \
         s AS (SELECT {CATALOG}, locked.durable FROM locked, pg_catalog.pg_class AS c, pg_catalog.pg_sequence AS p \
         WHERE c.oid = locked.o AND p.seqrelid = locked.o AND c.relfilenode = pg_relation_filenode(locked.o) OFFSET 0), \
         n AS (SELECT nextval(s.o::regclass) AS v, s.* FROM s, {sql} AS l, generate_series(1, LEAST($1::numeric, \
         div(LEAST(s.seqmax, $3::numeric) - l.last_value, s.seqincrement) + CASE WHEN l.is_called THEN 0 ELSE 1 END)::bigint) \
         OFFSET 0) \
         SELECT s.relname::text, s.v::text, 'true', {PROPERTIES}, s.durable FROM n AS s"
    )
}

/// Returns the statement that writes a WAL record, so that its commit syncs everything that the server has
/// written so far. Its answer is one row, with the commit's durability at [`FLUSHED_DURABLE_AT`].
pub fn flush_sql() -> String {
    format!("SELECT pg_logical_emit_message(true, 'idmill', '')::text, {DURABLE}")
}

/// A sequence to be created.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "made by adapters")]
pub struct Creation {
    /// `INCREMENT BY`.
    pub increment: u64,
    /// Its first and last ids.
    pub bounds: Bounds,
    /// The interpretation of its values, if the options set it.
    pub told: Option<Values>,
    /// The identity to note.
    pub identity: Identity,
    /// The number of ids that its creator takes, rounded up to whole blocks; may be 0.
    pub count: u64,
}

impl Creation {
    /// Returns the statement, and the last id that it takes. The statement waits at most `timeout` for a
    /// lock, in the format of PostgreSQL's `lock_timeout`.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) if the values are `last` and no whole block fits into the
    /// bounds.
    pub fn sql(&self, sql: &str, timeout: &str) -> Result<(String, Option<u64>)> {
        let Self { increment, bounds, told, identity, count } = *self;
        let values = told.unwrap_or(Values::Last);
        let first = First::of(increment, bounds, values)?;
        let blocks = count.div_ceil(increment).min((bounds.max() - first.value) / increment + 1);
        let value = blocks.checked_sub(1).map(|more| first.value + more * increment);
        let taken = value.map(|value| match values {
            Values::First => value.saturating_add(increment - 1).min(bounds.max()),
            Values::Last => value,
        });
        let draw = value.map(|value| format!("PERFORM setval({}::regclass, {value}, true); ", literal(sql)));
        // `first` and `last` mean the same if the increment is 1: note neither unless the options set one,
        // since a larger increment may follow.
        let noted = told.or((increment > 1).then_some(values));
        let body = format!(
            "CREATE SEQUENCE {sql} AS bigint INCREMENT BY {increment} {} CACHE 1 NO CYCLE; {}{}",
            bounds_sql(bounds, first.value),
            draw.unwrap_or_default(),
            note_sql(sql, "", &first.note(noted), identity),
        );
        Ok((block("", timeout, &body), taken))
    }
}

/// The first value of a sequence.
struct First {
    value: u64,
    /// Its first id, if the value is the last of a whole block.
    whole_from: Option<u64>,
}

impl First {
    /// Other programs that read a value as the last of its block also take the ids before it.
    /// (Hibernate's `pooled` omits them only if the value is the `initialValue` of its mapping.) So
    /// the first value is the end of the first block.
    fn of(increment: u64, bounds: Bounds, values: Values) -> Result<Self> {
        let (start, max) = (bounds.start(), bounds.max());
        if values == Values::First || increment == 1 {
            return Ok(Self { value: start, whole_from: None });
        }
        let end = start.checked_add(increment - 1).filter(|end| *end <= max).ok_or_else(|| {
            Error::invalid(format!(
                "max {max} leaves no whole block from {start} with increment={increment}; raise max or lower \
                 increment"
            ))
        })?;
        Ok(Self { value: end, whole_from: Some(start) })
    }

    fn note(&self, values: Option<Values>) -> String {
        let values = values.map(|values| format!(" values={}", values.word()));
        let first = self.whole_from.map(|first| format!(" first={first}"));
        values.into_iter().chain(first).collect()
    }
}

/// PostgreSQL requires MINVALUE to be below MAXVALUE.
fn bounds_sql(bounds: Bounds, value: u64) -> String {
    let (start, max) = (bounds.start(), bounds.max());
    let least = i128::from(start) - i128::from(start == max);
    format!("MINVALUE {least} MAXVALUE {max} START WITH {value}")
}

/// Returns the statement that changes a sequence from `seen` to `after`. The statement waits at most
/// `timeout` for a lock.
///
/// The statement holds a lock that blocks draws. If the sequence has changed since it was read, nothing is
/// changed and the error is [`CHANGED`]. The restart changes the file, so that other programs detect the
/// change even if they still read the old comment.
///
/// # Errors
/// The errors of [`NativeState::values`], and [`InvalidInput`](ErrorKind::InvalidInput) if `next` is the
/// start and no whole block fits.
pub fn set_sql(sql: &str, seen: &NativeState, after: &SequenceInfo, timeout: &str) -> Result<String> {
    let (values, max) = (seen.values()?, after.bounds.max());
    let first = First::of(seen.increment.cast_unsigned(), after.bounds, values);
    let (last, called) = match after.next {
        None => (max, true),
        Some(next) if values == Values::First => (next, false),
        // No value comes before the start.
        Some(next) if next == after.bounds.start() => (first.as_ref().map_err(Clone::clone)?.value, false),
        Some(next) => (next - 1, true),
    };
    // Keep MINVALUE and START if both are below the new max.
    let bounds = if seen.min.max(seen.start) < max.cast_signed() {
        format!("MAXVALUE {max}")
    } else {
        bounds_sql(after.bounds, after.bounds.start())
    };
    // If the increment is 1, only keep an earlier note, since a larger increment may follow.
    let noted = if seen.increment > 1 {
        Some(values)
    } else {
        seen.noted("values").and_then(|_| seen.noted_values())
    };
    let note = first.unwrap_or(First { value: 0, whole_from: None }).note(noted);
    let body = format!(
        "{} ALTER SEQUENCE {sql} {bounds} RESTART WITH {last}; PERFORM setval({}::oid::regclass, {last}, {called}); {}",
        unchanged_sql(sql, seen),
        seen.oid,
        note_sql(sql, seen.remark(), &note, after.identity),
    );
    Ok(block(UNCHANGED_VARIABLES, timeout, &body))
}

/// The variables of [`unchanged_sql`].
const UNCHANGED_VARIABLES: &str = "last bigint; called boolean; note text; same boolean; ";

/// Locks a sequence, and raises [`CHANGED`] if it is no longer as it was seen. If only its file has changed,
/// no value was drawn from the new file.
fn unchanged_sql(sql: &str, seen: &NativeState) -> String {
    let NativeState { last, called, increment, min, max, start, oid, .. } = seen;
    format!(
        "ALTER SEQUENCE {sql} NO CYCLE; SELECT l.last_value, l.is_called, obj_description({oid}::oid, 'pg_class'), \
         ROW(p.increment, p.minimum_value, p.maximum_value, p.start_value) = ROW({increment}, {min}, {max}, {start}) \
         INTO last, called, note, same FROM {sql} AS l, pg_sequence_parameters({oid}::oid) AS p; \
         IF last <> {last} OR called <> {called} OR COALESCE(note, '') <> {} OR NOT same THEN \
         RAISE EXCEPTION 'it has changed' USING ERRCODE = '{CHANGED}'; END IF;",
        literal(&seen.comment)
    )
}

/// Returns the statement that drops a sequence. It waits at most `timeout` for a lock. If `seen` is given and
/// the sequence is no longer as it was seen, nothing is dropped and the error is [`CHANGED`].
pub fn drop_sql(sql: &str, seen: Option<&NativeState>, timeout: &str) -> String {
    let unchanged = seen.map(|seen| unchanged_sql(sql, seen)).unwrap_or_default();
    block(UNCHANGED_VARIABLES, timeout, &format!("{unchanged} DROP SEQUENCE {sql};"))
}

/// A block that is one transaction. Its commit is durable whatever the session's settings are, and
/// it waits at most `timeout` for a lock. Its isolation lets it read what another transaction changed while
/// it waited.
fn block(declare: &str, timeout: &str, body: &str) -> String {
    format!(
        "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; DO $idmill$ DECLARE {declare}durable text; BEGIN SELECT {DURABLE} INTO durable; \
         PERFORM set_config('lock_timeout', {}, true); {body} END $idmill$",
        literal(timeout),
        DURABLE = DURABLE.trim_end_matches(" AS durable")
    )
}

/// Notes the identity, the interpretation of values, and the file that both apply to.
fn note_sql(sql: &str, remark: &str, reading: &str, identity: Identity) -> String {
    let (name, before) = (literal(sql), literal(remark));
    let note = format!("{NOTE}incarnation={} epoch={}{reading} file=", identity.incarnation, identity.epoch);
    format!(
        "EXECUTE format('COMMENT ON SEQUENCE %s IS %L', {name}, {before} || '{note}' || pg_relation_filenode({name}::regclass) || ']');"
    )
}
