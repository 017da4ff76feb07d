//! The table of sequences. Each sequence is a partition that is read and written at a serial level, except by
//! `list`. In flat mode, ids are reserved from the partition. In geo mode, the partition holds the global
//! counter and the last claim of every datacenter.
//!
//! The store caches the last state of each sequence, and bases the next write on it. A refused write returns
//! the columns of the condition, which contain the whole state of the sequence. So a reserve from a cached
//! state costs one lightweight transaction, plus one for each lost race.

use std::collections::HashMap;

use idmill::store::{
    Capabilities, Change, Durability, Identity, Listing, Page, Reserve, SequenceInfo, Store, StoreFuture,
    exhausted,
};
use idmill::{Error, ErrorKind, Result, SequenceName};
use idmill_kit::{
    CompareAndSet, Contention, InvalidRow, Numbers, Remembered, Resend, Swapped, Swapping, Versioned,
};
use idmill_shared_cache::datacenter::{Claim, ClaimWrite, Era, GlobalRow, Outcome};
use scylla::value::CqlValue;

use super::connection::{CONTENTION, LOOKS, Statement, outcome};
use super::schema::{FORMAT, Table};
use super::values::{self, Cells, Values};

/// A lost race returns the current row, and the write is repeated once from that row without a pause. After a
/// pause the row would be outdated, and a writer that does not pause would win every race.
const RACES: Contention = CONTENTION.every(2);

const COLUMNS: &str = "name, next, start, max, incarnation, epoch, recalls, writer, format";
/// The columns of a read.
const READ: &str = "name, next, start, max, incarnation, epoch, recalls, writer, format, claims";
/// Condition of a write. Within an era, `next` never has the same value again, so a write of unknown outcome
/// can be resent. If ids could be given back, `next` could repeat, so this store takes no ids back.
const SEEN: &str = "next = ? AND max = ? AND incarnation = ? AND epoch = ? AND recalls = ?";

/// The table, and its rows as last read or written.
#[derive(Debug)]
pub(super) struct SequenceTable {
    table: Table,
    seen: Remembered<Mark>,
}

/// A row of the table.
pub(super) type Row = Versioned<Mark>;

/// The columns that are not in the `SequenceInfo`. The claims are empty unless the row was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    recalls: u64,
    claims: HashMap<String, Claim>,
    /// The last writer: a random number that is unique to one attempt.
    writer: u64,
}

impl Mark {
    fn new(recalls: u64) -> Self {
        Self { recalls, claims: HashMap::new(), writer: Identity::fresh().incarnation }
    }
}

/// Converts a row to the view of one datacenter.
pub(super) fn global(row: &Row, datacenter: &str) -> GlobalRow {
    let claim = row.version.claims.get(datacenter).copied();
    GlobalRow { era: era(row), bounds: row.info.bounds, next: row.info.reached(), claim }
}

fn era(row: &Row) -> Era {
    Era { identity: row.info.identity, recalls: row.version.recalls }
}

/// A conditional write, the row that it expects, and the row that it writes.
struct Write<'a> {
    statement: Statement,
    seen: Option<&'a Row>,
    new: Row,
}

impl Write<'_> {
    /// Returns whether the row shows that this write was applied. The row may have been changed since.
    fn made(&self, row: &Row) -> bool {
        let (new, incarnation) = (&self.new, |row: &Row| row.info.identity.incarnation);
        new.version.writer == row.version.writer
            || self.seen.is_none() && incarnation(new) == incarnation(row)
    }

    /// Returns whether the condition of the write still holds.
    fn is_open(&self, row: &Row) -> bool {
        let state = |row: &Row| (era(row), row.info.reached(), row.info.bounds.max());
        self.seen.is_some_and(|seen| state(seen) == state(row))
    }
}

impl SequenceTable {
    pub(super) fn new(table: Table) -> Self {
        Self { table, seen: Remembered::default() }
    }

    pub(super) async fn look_up(&self, name: &SequenceName) -> Result<Option<Row>> {
        let row = self.read_cells(name).await?.map(|cells| self.decode(name, &cells)).transpose()?;
        self.seen.learn(name, row.clone());
        Ok(row)
    }

    async fn read_cells(&self, name: &SequenceName) -> Result<Option<Cells>> {
        self.table.client.read(&self.table.read(READ, "name = ?", vec![values::text(name)])).await
    }

    /// Reads the row, and creates it if it is missing and the request allows it. Reserves no ids.
    pub(super) async fn ensure(&self, request: &Reserve) -> Result<Row> {
        for _ in 0..LOOKS {
            if let Some(row) = self.look_up(&request.name).await? {
                return Ok(row);
            }
            let create = request.creation()?;
            if create.start() > request.ceiling {
                return Err(exhausted(&request.name, request.ceiling));
            }
            let fresh = self.insert(&SequenceInfo::new(request.name.clone(), create));
            // After any outcome, the next read shows whether the row exists.
            outcome(self.table.client.write(&fresh.statement).await)?;
        }
        let message = "the sequence may have been created; nothing was reserved from it; try again";
        Err(Error::new(ErrorKind::Unavailable, message))
    }

    fn insert(&self, info: &SequenceInfo) -> Write<'_> {
        let (new, id) = (Row { info: info.clone(), version: Mark::new(0) }, values::id);
        let t = self.table.cql();
        let cql = format!("INSERT INTO {t} ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) IF NOT EXISTS");
        let mut values = vec![values::text(&info.name), id(info.reached())];
        values.extend([id(info.bounds.start().into()), id(info.bounds.max().into())]);
        values.extend(values::era(era(&new)));
        values.extend([values::count(new.version.writer), CqlValue::Int(FORMAT)]);
        Write { statement: self.table.write(cql, values), seen: None, new }
    }

    fn advance<'a>(&self, seen: &'a Row, wanted: &SequenceInfo) -> Write<'a> {
        let new = Row { info: wanted.clone(), version: Mark::new(seen.version.recalls) };
        let values = vec![values::id(wanted.reached()), values::count(new.version.writer)];
        self.update("next = ?, writer = ?", values, seen, new)
    }

    /// Builds the write for a `set`. A new `next` recalls the ranges of the windows. Otherwise these
    /// ranges, which were reserved before the change, would still be handed out.
    fn change<'a>(&self, seen: &'a Row, wanted: &SequenceInfo, change: &Change) -> Write<'a> {
        let state = |info: &SequenceInfo| (info.identity, info.reached());
        let recalled = change.next.is_some() || state(wanted) != state(&seen.info);
        let version = Mark::new(seen.version.recalls + u64::from(recalled));
        let mut values = vec![values::id(wanted.bounds.max().into()), values::count(version.writer)];
        let mut set = "max = ?, writer = ?".to_owned();
        if recalled {
            set += ", next = ?, epoch = ?, recalls = ?, claims = null";
            values.push(values::id(wanted.reached()));
            values.extend([wanted.identity.epoch, version.recalls].map(values::count));
        }
        self.update(&set, values, seen, Row { info: wanted.clone(), version })
    }

    /// Builds the write of these columns if the row is unchanged. `start` and `format` never change. The
    /// condition includes them only so that a refused write returns them.
    fn update<'a>(&self, set: &str, mut values: Values, seen: &'a Row, new: Row) -> Write<'a> {
        let t = self.table.cql();
        let cql = format!("UPDATE {t} SET {set} WHERE name = ? IF {SEEN} AND start = ? AND format = ?");
        let Row { info, .. } = seen;
        values.push(values::text(&info.name));
        values.extend(condition(info.reached(), info.bounds.max(), era(seen)));
        values.extend([values::id(info.bounds.start().into()), CqlValue::Int(FORMAT)]);
        Write { statement: self.table.write(cql, values), seen: Some(seen), new }
    }

    /// Sends a write. If its outcome is unknown, tries to determine the outcome.
    async fn send(&self, write: Write<'_>) -> Result<Swapped<Mark>> {
        let name = &write.new.info.name;
        let swapped = match self.table.client.swap(&write.statement).await {
            Ok((true, _)) => Ok(Swapped::Done),
            Ok((false, cells)) => self.refused(&write, &cells).map(Swapped::Now),
            Err(error) if error.kind() == ErrorKind::UnknownOutcome => self.settle(&write, error).await,
            Err(error) => Err(error),
        };
        self.seen.learn(
            name,
            match &swapped {
                Ok(Swapped::Done) => Some(write.new.clone()),
                Ok(Swapped::Now(now)) => now.clone(),
                _ => None,
            },
        );
        swapped
    }

    /// Returns the row that refused the write, or `None` if there is no row.
    fn refused(&self, write: &Write<'_>, cells: &Cells) -> Result<Option<Row>> {
        // A refused insert means that the row exists, so missing columns then mean that the row is corrupt.
        let is_gone = write.seen.is_some() && cells.format().is_none() && cells.value("next").is_none();
        if is_gone { Ok(None) } else { self.decode(&write.new.info.name, cells).map(Some) }
    }

    /// Determines whether a write of unknown outcome was applied, by its random numbers (the writer, or the
    /// incarnation of an insert), and never by comparing other values.
    ///
    /// While the condition holds, the write is resent. At most one copy is applied, because it changes `next`
    /// or the era. A copy that changes only `max` may be applied twice. If another writer has changed the
    /// row, this write may have been applied before that, so the outcome stays unknown.
    ///
    /// An insert is never resent: the row may have been created and removed in between. If a row of another
    /// writer exists, `settle` returns that row: no ids of this insert were handed out.
    async fn settle(&self, write: &Write<'_>, error: Error) -> Result<Swapped<Mark>> {
        let look = || async {
            match self.look_up(&write.new.info.name).await? {
                Some(row) if write.made(&row) => Ok(Some(Swapped::Done)),
                now @ Some(_) if write.seen.is_none() => Ok(Some(Swapped::Now(now))),
                Some(row) if write.is_open(&row) => Ok(None),
                _ => Err(ErrorKind::UnknownOutcome.into()),
            }
        };
        self.table.client.settle(&write.statement, (Swapped::Done, error), look).await
    }

    /// Sends the claim of a datacenter, once.
    pub(super) async fn claim(
        &self,
        name: &SequenceName,
        datacenter: &str,
        write: &ClaimWrite,
    ) -> Result<Outcome> {
        let t = self.table.cql();
        let cql = format!("UPDATE {t} SET next = ?, claims[?] = ? WHERE name = ? IF {SEEN}");
        let mut values =
            vec![values::id(write.claim.span.end), values::text(datacenter), values::claim(write.claim)];
        values.push(values::text(name));
        values.extend(condition(write.seen, write.max, write.era));
        outcome(self.table.client.write(&self.table.write(cql, values)).await)
    }

    /// Removes a row. Without an expected identity, a row is removed even if only its incarnation can be
    /// decoded.
    async fn try_remove(&self, name: &SequenceName, expected: Option<Identity>) -> Result<bool> {
        let Some(cells) = self.read_cells(name).await? else { return Ok(false) };
        let Some(Identity { incarnation, epoch }) = expected else {
            let incarnation =
                cells.count("incarnation").map_err(|fault| self.corrupt(name, &fault.into()))?;
            return self.delete(name, incarnation, None).await;
        };
        self.decode(name, &cells)?.info.check_identity(expected)?;
        let removed = self.delete(name, incarnation, Some(epoch)).await?;
        if !removed {
            // The row has changed since the read.
            self.look_up(name).await?.map_or(Ok(()), |row| row.info.check_identity(expected))?;
        }
        Ok(removed)
    }

    /// Deletes the row only if it has this identity, so that a late request cannot remove a sequence that was
    /// created since.
    async fn delete(&self, name: &SequenceName, incarnation: u64, epoch: Option<u64>) -> Result<bool> {
        self.seen.learn(name, None);
        let also = epoch.map_or("", |_| " AND epoch = ?");
        let cql = format!("DELETE FROM {} WHERE name = ? IF incarnation = ?{also}", self.table.cql());
        let mut values = vec![values::text(name), values::count(incarnation)];
        values.extend(epoch.map(values::count));
        match self.table.client.write(&self.table.write(cql, values)).await {
            Err(error) if error.kind() == ErrorKind::UnknownOutcome => match self.look_up(name).await {
                // The row existed before, and is missing now.
                Ok(None) => Ok(true),
                _ => Err(error),
            },
            outcome => outcome,
        }
    }

    fn decode(&self, name: &str, cells: &Cells) -> Result<Row> {
        decode(name, cells).map_err(|fault| self.corrupt(name, &fault))
    }

    fn corrupt(&self, name: &str, fault: &InvalidRow) -> Error {
        fault.of(format_args!("the row {name:?} of {}", self.table.display()))
    }
}

impl Store for SequenceTable {
    idmill::store_calls!(|this| Swapping(this) =>
        capabilities reserve create inspect list set);
    idmill::store_calls!(remove);
}

impl CompareAndSet for SequenceTable {
    type Version = Mark;

    fn can(&self) -> Capabilities {
        Capabilities::new(Durability::Disk).shared(true).records(true)
    }

    fn read<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<Option<Row>>> {
        Box::pin(self.look_up(name))
    }

    fn remembered(&self, name: &SequenceName) -> Option<Row> {
        self.seen.get(name)
    }

    fn swap<'a>(
        &'a self,
        _: &'a SequenceName,
        seen: Option<&'a Row>,
        wanted: Option<&'a SequenceInfo>,
        _: Resend,
    ) -> StoreFuture<'a, Result<Swapped<Mark>>> {
        let wanted = wanted.expect("`try_remove` removes rows");
        Box::pin(self.send(match seen {
            Some(seen) => self.advance(seen, wanted),
            None => self.insert(wanted),
        }))
    }

    fn swap_set<'a>(
        &'a self,
        _: &'a SequenceName,
        seen: &'a Row,
        wanted: &'a SequenceInfo,
        change: &'a Change,
    ) -> StoreFuture<'a, Result<Swapped<Mark>>> {
        Box::pin(self.send(self.change(seen, wanted, change)))
    }

    fn read_page<'a>(&'a self, page: &'a Page) -> StoreFuture<'a, Result<Listing>> {
        Box::pin(async move {
            let decode = |name: &str, cells: &Cells| Ok(self.decode(name, cells)?.info);
            let (client, cql) = (&self.table.client, format!("SELECT {READ} FROM {}", self.table.cql()));
            Ok(client.scan::<Listing>(&cql, self.table.serial, page, decode).await?.sorted())
        })
    }

    fn contention(&self) -> Contention {
        RACES
    }
}

/// Returns the values of [`SEEN`].
fn condition(next: u128, max: u64, era: Era) -> impl Iterator<Item = CqlValue> {
    [values::id(next), values::id(max.into())].into_iter().chain(values::era(era))
}

fn decode(name: &str, cells: &Cells) -> Result<Row, InvalidRow> {
    match cells.format() {
        Some(FORMAT) => {}
        Some(_) => return Err(InvalidRow::Format),
        None => return Err("has no format".into()),
    }
    let name = SequenceName::new(name).map_err(|error| format!("has no valid name: {error}"))?;
    // The cast is lossless, because all values are at most 2^64.
    let id = |column| cells.id(column).map(u128::cast_signed);
    let (next, start, max) = (id("next")?, id("start")?, id("max")?);
    let (incarnation, epoch) = (cells.count("incarnation")?.into(), cells.count("epoch")?.into());
    let info = Numbers { next: Some(next), start, max, incarnation, epoch }.or_used_up(name)?;
    let claims = cells.claims()?;
    let (start, reached) = (u128::from(info.bounds.start()), info.reached());
    if claims.values().any(|claim| claim.span.start < start || claim.span.end > reached) {
        return Err(format!("has a claim outside its reserved ids {start}..{next}").into());
    }
    let (recalls, writer) = (cells.count("recalls")?, cells.count("writer").unwrap_or(0));
    Ok(Row { info, version: Mark { recalls, claims, writer } })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn row_of_a_lost_race_is_tried_without_a_pause() {
        let (mut contest, begun) = (RACES.begin(), Instant::now());
        for _ in 0..50 {
            let lost = Instant::now();
            contest.lost(None).await.unwrap();
            assert_eq!(lost.elapsed(), Duration::ZERO, "the row would be outdated");
            contest.lost(None).await.unwrap();
        }
        assert!(begun.elapsed() > Duration::from_millis(100), "writers spread out: {:?}", begun.elapsed());
    }
}
