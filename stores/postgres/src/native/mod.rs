//! PostgreSQL's own sequences: `nextval`, made durable, with ranges that do not overlap even if the
//! increment changes.
//!
//! A value v of a sequence with `INCREMENT BY n` stands for n ids: the ids that *end* with it, v - n + 1 to v
//! ([`Values::Last`], Hibernate's pooled optimizer), or the ids that *begin* with it ([`Values::First`], EF
//! Core and others). All programs must interpret the values the same way.
//!
//! With `Last`, the ids lie between the previous value and v: the sequence has passed all of them. Whatever
//! the next increment is, later ids are above v. The value that a sequence was restarted with has no previous
//! value, and stands only for itself. A sequence that idmill creates starts with the end of its first block.
//!
//! With `First`, if the increment becomes smaller, the next value can be inside the previous block. So after
//! such a change, ids are skipped up to the end of the largest block that could have been drawn.
//!
//! `nextval` is not durable: it logs 32 values ahead in one record, and returns these values without waiting
//! for the record to reach the disk. If the transaction that wrote the record is still open when the server
//! crashes, these values are returned again. So each statement here writes its own record, whose commit syncs
//! everything before it.

mod list;
mod qualified;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use idmill::store::{
    Bounds, Capabilities, Change, Durability, Grant, Identity, Reserve, SequenceInfo, Store, already_exists,
    exhausted, not_found,
};
use idmill::{Error, ErrorKind, IdRange, Operation, Result, SequenceName};
use idmill_kit::PerSequence;
use idmill_sql::postgres::native::{
    CHANGED, Creation, DRAWN_DURABLE_AT, FLUSHED_DURABLE_AT, NativeState, Values, draw_sql, drop_sql,
    flush_sql, see_sql, set_sql,
};
use idmill_sql::postgres::{
    DATA_CORRUPTED, Lookup, SEQUENCE_LIMIT, TRIES, UNDEFINED_TABLE, crowded, failed, look, must_sync,
    not_created, quoted, server,
};
use idmill_sql::{Asked, Fault, Statement, Timeout, Value};
use tokio::sync::Mutex as AsyncMutex;

use super::session::Sessions;
use super::{Mode, PostgresOptions};

/// The largest id: PostgreSQL's sequences are signed 64-bit integers.
const LARGEST: u64 = i64::MAX.cast_unsigned();
/// The maximum number of values drawn by one statement. Each takes at most a microsecond on the
/// server.
const MOST_VALUES: u64 = 10_000;

/// PostgreSQL's `SEQUENCE`s of one schema, or of all schemas on the `search_path`:
/// `postgres://HOST/DATABASE?sequences=native`. Sequences that idmill did not create can be used
/// too, including those of `serial` and identity columns.
///
/// Other programs may draw from the sequences at the same time with `nextval`, if they interpret the values
/// in the same way. If the increment is 1, a value is one id. If it is larger, a value is the last or the
/// first id of a block: see [`PostgresOptions::values`](super::PostgresOptions::values). A sequence with a
/// larger increment that idmill did not create is rejected unless the options set `values`. A sequence that
/// cycles, counts down, caches, or is unlogged or temporary is rejected too. Unless the sequence is
/// temporary, the error has the statement that fixes it.
///
/// A grant may be shorter than requested. The rest of a value's ids is kept for the next grant, and becomes a
/// gap if this store is dropped. Ids end at 2^63 - 1. With `values=last`, the last ids before the maximum are
/// never granted if they do not fill a block of `INCREMENT BY` ids. Clones share their connections: at most
/// four, plus four that wait for locks.
#[derive(Clone)]
pub struct NativeSequences {
    sessions: Sessions,
    /// The given schema; otherwise each sequence is looked up on the `search_path`.
    schema: Option<Arc<str>>,
    increment: u64,
    values: Option<Values>,
    mode: Mode,
    /// Serializes the reserves of each sequence, so that all kept ids are below the ids drawn
    /// later.
    kept: Arc<PerSequence<Arc<AsyncMutex<SequenceCache>>>>,
}

/// The cached state of a sequence.
#[derive(Debug, Default)]
struct SequenceCache {
    /// Drawn ids that are not granted yet, ascending.
    rest: VecDeque<Grant>,
    /// The identity under which a value was already drawn, so the next value stands for a whole block.
    begun: Option<Identity>,
    /// The last increment read; `None` before the first read.
    increment: Option<u64>,
    /// The largest increment read.
    widest: i64,
    /// With `values=first`: ids of this identity below this number may belong to a block of a
    /// larger increment.
    floor: Option<(Identity, i64)>,
    /// The quoted, schema-qualified name of the sequence; empty before the first read.
    sql: String,
}

impl PostgresOptions {
    pub(super) async fn open_native(&self) -> Result<NativeSequences> {
        let (sessions, schema) = (self.sessions()?, self.schema_name());
        if self.mode != Mode::ReadOnly {
            must_sync(&mut sessions.clone(), self.keeps).await?;
        }
        // Checks that the schema exists, even if it has no sequences.
        look(&mut sessions.clone(), schema, "").await?;
        let (schema, increment, values, mode) =
            (schema.map(Into::into), self.increment, self.values, self.mode);
        Ok(NativeSequences { sessions, schema, increment, values, mode, kept: Arc::default() })
    }
}

impl NativeSequences {
    /// Connects to the database that a URL names: see [`PostgresOptions`](super::PostgresOptions).
    /// `sequences=native` is implied; without it in the URL, `failover=` is ignored.
    ///
    /// # Errors
    /// The errors of [`PostgresStore::open_with`](super::PostgresStore::open_with), except those
    /// about the table.
    pub async fn open(url: &str) -> Result<Self> {
        Self::open_with(PostgresOptions::parse(url)?).await
    }

    /// Connects to a database. Creates nothing.
    ///
    /// # Errors
    /// The errors of [`PostgresStore::open_with`](super::PostgresStore::open_with), except those
    /// about the table.
    pub async fn open_with(options: PostgresOptions) -> Result<Self> {
        options.open_native().await.map_err(|error| error.during(Operation::Connect))
    }

    /// Returns the sequence as SQL names it, in its schema or in the schema where it would be
    /// created.
    async fn sql(&self, name: &str) -> Result<String> {
        if name.len() > 63 || name.contains("$idmill$") {
            let message = format!(
                "{name:?} is longer than 63 bytes, or contains `$idmill$`; use another name, or a table \
                 (`sequences=table`)"
            );
            return Err(Error::invalid(message));
        }
        let schema = match &self.schema {
            Some(schema) => schema.to_string(),
            None => match look(&mut self.sessions.clone(), None, name).await? {
                Lookup::There(found) => found.schema,
                Lookup::Nowhere { schema } => schema,
            },
        };
        Ok(format!("{}.{}", quoted(&schema), quoted(name)))
    }

    fn kept(&self, name: &SequenceName) -> Arc<AsyncMutex<SequenceCache>> {
        self.kept.with(name, |kept| kept.clone())
    }

    async fn try_reserve(&self, request: &Reserve) -> Result<Grant> {
        self.mode.must_write()?;
        let kept = self.kept(&request.name);
        let kept = &mut *kept.lock().await;
        for _ in 0..TRIES {
            if let Some(grant) = kept.take(request)? {
                return Ok(grant);
            }
            if kept.increment.is_none() && !self.look(request, kept).await? {
                self.begin(request, kept).await?;
                continue;
            }
            // An exhausted sequence returns no value, nor does one that was changed while the draw waited for
            // its lock.
            if !self.draw(request, kept).await? {
                kept.forget();
            }
        }
        Err(crowded())
    }

    /// Reads the sequence and whether it has begun. Returns `false` if the sequence does not exist.
    async fn look(&self, request: &Reserve, kept: &mut SequenceCache) -> Result<bool> {
        let sql = self.sql(&request.name).await?;
        let Some(seen) = self.see(&sql, &request.name).await? else { return Ok(false) };
        let info = seen.info()?;
        if info.next.is_none_or(|next| next > request.ceiling) {
            return Err(exhausted(&request.name, info.bounds.max().min(request.ceiling)));
        }
        kept.begun = seen.is_begun().then_some(info.identity);
        kept.increment = Some(seen.increment.cast_unsigned());
        kept.sql = sql;
        Ok(true)
    }

    /// Creates the sequence unless it exists, and takes the requested ids in the same transaction. With two
    /// transactions, an import that is interrupted between them could leave a sequence that begins below the
    /// imported ids.
    async fn begin(&self, request: &Reserve, kept: &mut SequenceCache) -> Result<()> {
        let bounds = storable(request.creation()?)?;
        let Some(most) = bounds.max().min(request.ceiling).checked_sub(bounds.start()) else {
            return Err(exhausted(&request.name, bounds.max().min(request.ceiling)));
        };
        let count = request.count.clamp(1, most.saturating_add(1));
        match self.created(&request.name, bounds, count).await {
            Ok((info, Some(last))) => {
                kept.widest = kept.widest.max(self.increment.cast_signed());
                let range = part(bounds.start(), last - bounds.start() + 1)?;
                kept.append(Grant::new(range, info.identity, info.bounds), &request.name)
            }
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        }
    }

    /// Draws values for up to `count` ids; `false` if none are left, or if the sequence was changed while the
    /// draw waited.
    async fn draw(&self, request: &Reserve, kept: &mut SequenceCache) -> Result<bool> {
        // An estimate of the number of values: each row has the increment that applies to it.
        let increment = kept.increment.unwrap_or(1).max(1);
        let values = request.count.max(1).div_ceil(increment).min(MOST_VALUES);
        let sql = draw_sql(&kept.sql);
        let asked = [values.to_string().into(), Value::Timeout, request.ceiling.to_string().into()];
        let rows = match self.sessions.run(Statement::write(sql, asked).durable_at(DRAWN_DURABLE_AT)).await {
            Ok(rows) => rows,
            // Other clients drew the last values in the meantime. The values drawn before the error
            // can be used once they are durable.
            Err(Fault::Engine(error)) if error.code == SEQUENCE_LIMIT => {
                self.flush().await?;
                error.rows
            }
            // The sequence was dropped or restarted. If the sequence's data are damaged, the next read
            // reports the damage.
            Err(fault) if matches!(fault.code(), Some(UNDEFINED_TABLE | DATA_CORRUPTED)) => {
                kept.forget();
                return Ok(true);
            }
            Err(fault) => return Err(failed(fault, Asked::Write)),
        };
        for row in &rows {
            kept.add(&NativeState::read(row, self.values)?)?;
        }
        Ok(!rows.is_empty())
    }

    /// Waits until everything that the server has written so far is as durable as a commit.
    async fn flush(&self) -> Result<()> {
        let flushed =
            self.sessions.run(Statement::write(flush_sql(), []).durable_at(FLUSHED_DURABLE_AT)).await;
        flushed.map(drop).map_err(|fault| failed(fault, Asked::Write))
    }

    async fn try_see(&self, name: &SequenceName) -> Result<Option<NativeState>> {
        self.see(&self.sql(name).await?, name).await
    }

    async fn see(&self, sql: &str, name: &SequenceName) -> Result<Option<NativeState>> {
        let sql = see_sql(sql, name);
        let mut last = None;
        for _ in 0..TRIES {
            match self.sessions.run(Statement::read(&sql, [])).await {
                Ok(rows) => {
                    if let Some(row) = rows.first() {
                        return NativeState::read(row, self.values).map(Some);
                    }
                    // The sequence exists, and was changed during the read.
                }
                Err(fault) if fault.code() == Some(UNDEFINED_TABLE) => return Ok(None),
                // The old file was removed during the read.
                Err(fault) if fault.code() == Some(DATA_CORRUPTED) => last = Some(fault),
                Err(fault) => return Err(failed(fault, Asked::Read)),
            }
        }
        Err(last.map_or_else(crowded, |fault| failed(fault, Asked::Read)))
    }

    async fn try_inspect(&self, name: &SequenceName) -> Result<Option<SequenceInfo>> {
        self.try_see(name).await?.map(|seen| seen.info()).transpose()
    }

    async fn try_create(&self, name: &SequenceName, bounds: Bounds) -> Result<SequenceInfo> {
        Ok(self.created(name, storable(bounds)?, 0).await?.0)
    }

    /// Creates a sequence and takes `count` of its ids. Returns the sequence as it was before the ids were
    /// taken, and the last id taken.
    async fn created(
        &self,
        name: &SequenceName,
        bounds: Bounds,
        count: u64,
    ) -> Result<(SequenceInfo, Option<u64>)> {
        self.mode.must_write()?;
        qualified::must_not_be(&mut self.sessions.clone(), name).await?;
        // This batch returns no rows with the durability settings, so check them first.
        must_sync(&mut self.sessions.clone(), self.sessions.keeps()).await?;
        let (increment, told, identity) = (self.increment, self.values, Identity::fresh());
        let creation = Creation { increment, bounds, told, identity, count };
        let (create, taken) = creation.sql(&self.sql(name).await?, &self.lock_timeout())?;
        match self.sessions.batch(&create).await {
            Ok(()) => Ok((SequenceInfo::stored(name.clone(), Some(bounds.start()), bounds, identity), taken)),
            Err(fault) if matches!(fault.code(), Some("42P07" | "23505")) => Err(already_exists(name)),
            Err(fault) => Err(not_created(fault, Asked::Write)),
        }
    }

    /// Reads, decides, and writes if nothing has changed in the meantime; otherwise starts again.
    async fn try_set(&self, name: &SequenceName, change: Change) -> Result<SequenceInfo> {
        self.mode.must_write()?;
        if let Some(max) = change.max.filter(|max| *max > LARGEST) {
            return Err(too_large("max", max));
        }
        must_sync(&mut self.sessions.clone(), self.sessions.keeps()).await?;
        let kept = self.kept(name);
        let mut kept = kept.lock().await;
        let sql = self.sql(name).await?;
        for _ in 0..TRIES {
            let seen = self.see(&sql, name).await?.ok_or_else(|| not_found(name))?;
            let mut after = seen.info()?;
            after.apply(&change)?;
            match self.sessions.batch(&set_sql(&sql, &seen, &after, &self.lock_timeout())?).await {
                Ok(()) => {
                    *kept = SequenceCache::default();
                    return Ok(after);
                }
                Err(fault) if matches!(fault.code(), Some(CHANGED | UNDEFINED_TABLE)) => {}
                Err(fault) => return Err(failed(fault, Asked::Write)),
            }
        }
        Err(crowded())
    }

    /// A change stops waiting for a lock before this store stops waiting for the answer.
    fn lock_timeout(&self) -> String {
        self.sessions.lock_timeout(Timeout::Full)
    }

    async fn try_server(&self) -> Result<Option<String>> {
        server(&mut self.sessions.clone()).await
    }

    async fn try_remove(&self, name: &SequenceName, expected: Option<Identity>) -> Result<bool> {
        self.mode.must_write()?;
        let kept = self.kept(name);
        let mut kept = kept.lock().await;
        let sql = self.sql(name).await?;
        for _ in 0..TRIES {
            let seen = if expected.is_some() { self.see(&sql, name).await? } else { None };
            if seen.is_none() && expected.is_some() {
                return Ok(false);
            }
            seen.as_ref().map_or(Ok(()), |seen| seen.info()?.check_identity(expected))?;
            match self.sessions.batch(&drop_sql(&sql, seen.as_ref(), &self.lock_timeout())).await {
                Ok(()) => {
                    *kept = SequenceCache::default();
                    return Ok(true);
                }
                // The next read shows whether the sequence was removed or replaced.
                Err(fault) if seen.is_some() && matches!(fault.code(), Some(CHANGED | UNDEFINED_TABLE)) => {}
                Err(fault) if fault.code() == Some(UNDEFINED_TABLE) => return Ok(false),
                Err(fault) => return Err(failed(fault, Asked::Write)),
            }
        }
        Err(crowded())
    }
}

impl SequenceCache {
    /// Takes ids from the front, up to the ceiling; `None` if there are none.
    fn take(&mut self, request: &Reserve) -> Result<Option<Grant>> {
        let Some(front) = self.rest.front_mut() else { return Ok(None) };
        let (start, last) = (front.range.start(), front.range.end() - 1);
        let last = u64::try_from(last).unwrap_or(LARGEST).min(request.ceiling);
        if start > request.ceiling {
            return Err(exhausted(&request.name, front.bounds.max().min(request.ceiling)));
        }
        let count = (last - start + 1).min(request.count.max(1));
        let grant = front.range(part(start, count)?);
        match front.range.len() - count {
            0 => drop(self.rest.pop_front()),
            left => front.range = part(start + count, left)?,
        }
        Ok(Some(grant))
    }

    /// Clears everything except the protection of `values=first` against a smaller increment.
    fn forget(&mut self) {
        *self = Self { widest: self.widest, floor: self.floor, ..Self::default() };
    }

    /// Adds the ids that a drawn value stands for.
    fn add(&mut self, seen: &NativeState) -> Result<()> {
        let info = seen.info()?;
        let (first, last) = match seen.values()? {
            Values::First => self.block_from(seen, info.identity),
            // Changes to the increment do not matter here: the ids lie between the previous value and this
            // one.
            _ if seen.is_whole() || self.begun == Some(info.identity) => {
                (seen.last - seen.increment + 1, seen.last)
            }
            _ => (seen.last, seen.last),
        };
        self.begun = Some(info.identity);
        self.increment = Some(seen.increment.cast_unsigned());
        self.widest = self.widest.max(seen.increment);
        self.rest.retain(|grant| grant.identity == info.identity);
        let first = first.max(seen.first());
        if first > last {
            return Ok(());
        }
        let range = part(first.cast_unsigned(), (last - first).cast_unsigned() + 1)?;
        self.append(Grant::new(range, info.identity, info.bounds), &seen.name)
    }

    /// Returns the block that begins with a value, without ids below the floor. Each change of the increment
    /// changes the identity. The last value before the change was lower than this value by at least the
    /// current increment, and its block had the length of the old increment.
    fn block_from(&mut self, seen: &NativeState, identity: Identity) -> (i64, i64) {
        let floor = match self.floor {
            Some((known, floor)) if known == identity => floor,
            _ => seen.last.saturating_add((self.widest - seen.increment).max(0)),
        };
        self.floor = Some((identity, floor));
        (seen.last.max(floor), seen.last.saturating_add(seen.increment - 1).min(seen.max))
    }

    /// Appends ids to the kept ones.
    fn append(&mut self, grant: Grant, name: &str) -> Result<()> {
        let first = grant.range.start();
        let Some(back) = self.rest.back_mut().filter(|back| u128::from(first) <= back.range.end()) else {
            self.rest.push_back(grant);
            return Ok(());
        };
        if u128::from(first) < back.range.end() {
            self.rest.clear();
            let message = format!("the sequence {name:?} went back to {first}; the answer was rejected");
            return Err(Error::new(ErrorKind::StoreViolation, message));
        }
        back.range = part(back.range.start(), back.range.len() + grant.range.len())?;
        Ok(())
    }
}

fn part(start: u64, len: u64) -> Result<IdRange> {
    IdRange::new(start, len).ok_or_else(|| {
        Error::new(ErrorKind::StoreViolation, format!("{len} ids from {start} on are not a valid range"))
    })
}

/// The bounds to create a sequence with. The default maximum of a `u64` is lowered to the largest
/// id.
fn storable(bounds: Bounds) -> Result<Bounds> {
    if bounds.max() == u64::MAX {
        return Bounds::new(bounds.start(), LARGEST).map_err(|_| too_large("start", bounds.start()));
    }
    if bounds.max() > LARGEST {
        return Err(too_large("max", bounds.max()));
    }
    Ok(bounds)
}

fn too_large(what: &str, id: u64) -> Error {
    Error::invalid(format!(
        "{what} {id} is above 2^63 - 1, the limit of PostgreSQL's sequences; use `sequences=table`"
    ))
}

impl Store for NativeSequences {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new(Durability::Disk).shared(true)
    }

    idmill::store_calls!(reserve create inspect list set remove server);
}

/// Omits the options, which contain a password.
impl fmt::Debug for NativeSequences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NativeSequences").field("schema", &self.schema).finish_non_exhaustive()
    }
}
