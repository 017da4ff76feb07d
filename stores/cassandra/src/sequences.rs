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
    Asked, CompareAndSet, Contention, InvalidRow, Numbers, Remembered, Resend, Swapped, Swapping, Versioned,
};
use idmill_shared_cache::datacenter::{Claim, ClaimWrite, Era, GlobalRow, Outcome};
use scylla::value::CqlValue;

use super::client::{CONTENTION, Client, LOOKS, Serial, Statement, outcome};
use super::schema::{FORMAT, Table};
use super::values::{self, Cells, Values};

/// A lost race returns the current row, and the write is repeated once from that row without a pause. After a
/// pause the row would be outdated, and a writer that does not pause would win every race.
const RACES: Contention = CONTENTION.every(2);

const COLUMNS: &str = "name, next, start, max, incarnation, epoch, recalls, writer, format";
/// Condition of a write. Within an era, `next` never has the same value again, so a write of unknown outcome
/// can be resent. If ids could be given back, `next` could repeat, so this store takes no ids back.
const SEEN: &str = "next = ? AND max = ? AND incarnation = ? AND epoch = ? AND recalls = ?";
/// `start` and `format` never change. The condition includes them only so that a refused write returns
/// them.
const ALSO: &str = " AND start = ? AND format = ?";

/// The table and its statements.
#[derive(Debug)]
pub(super) struct SequenceTable {
    client: Client,
    table: Table,
    serial: Serial,
    seen: Remembered<Mark>,
    read: Statement,
    insert: Statement,
    advance: Statement,
    claim: Statement,
    adjust: Statement,
    recall: Statement,
    delete: Statement,
    delete_identity: Statement,
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
    statement: &'a Statement,
    values: Values,
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
    pub(super) fn new(client: Client, table: Table, serial: Serial) -> Self {
        let t = table.cql();
        let update = |set: &str, also: &str| format!("UPDATE {t} SET {set} WHERE name = ? IF {SEEN}{also}");
        let read = format!("SELECT {COLUMNS}, claims FROM {t} WHERE name = ?");
        let insert = format!("INSERT INTO {t} ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) IF NOT EXISTS");
        let delete = format!("DELETE FROM {t} WHERE name = ? IF incarnation = ?");
        let recall = "next = ?, max = ?, epoch = ?, recalls = ?, claims = null, writer = ?";
        let write = |cql| Statement { cql, serial, asked: Asked::Write };
        Self {
            read: Statement { cql: read, serial, asked: Asked::Read },
            insert: write(insert),
            advance: write(update("next = ?, writer = ?", ALSO)),
            claim: write(update("next = ?, claims[?] = ?", "")),
            adjust: write(update("max = ?, writer = ?", ALSO)),
            recall: write(update(recall, ALSO)),
            delete_identity: write(format!("{delete} AND epoch = ?")),
            delete: write(delete),
            seen: Remembered::default(),
            client,
            table,
            serial,
        }
    }

    pub(super) async fn look_up(&self, name: &SequenceName) -> Result<Option<Row>> {
        let cells = self.client.read(&self.read, vec![values::text(name)]).await?;
        let row = cells.map(|cells| self.decode(name, &cells)).transpose()?;
        self.seen.learn(name, row.clone());
        Ok(row)
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
            match outcome(self.client.write(fresh.statement, fresh.values).await)? {
                // The next read shows whether the row exists.
                Outcome::Applied | Outcome::Refused | Outcome::Unknown => {}
            }
        }
        let message = "the sequence may have been created; nothing was reserved from it; try again";
        Err(Error::new(ErrorKind::Unavailable, message))
    }

    fn insert(&self, info: &SequenceInfo) -> Write<'_> {
        let (new, id) = (Row { info: info.clone(), version: Mark::new(0) }, values::id);
        let mut values = vec![values::text(&info.name), id(info.reached())];
        values.extend([id(info.bounds.start().into()), id(info.bounds.max().into())]);
        values.extend(values::era(era(&new)));
        values.extend([values::count(new.version.writer), CqlValue::Int(FORMAT)]);
        Write { statement: &self.insert, values, seen: None, new }
    }

    fn advance<'a>(&'a self, seen: &'a Row, wanted: &SequenceInfo) -> Write<'a> {
        let new = Row { info: wanted.clone(), version: Mark::new(seen.version.recalls) };
        let set = [values::id(wanted.reached()), values::count(new.version.writer)];
        Write { statement: &self.advance, values: bind(set, seen), seen: Some(seen), new }
    }

    /// Builds the write for a `set`. A new `next` recalls the ranges of the windows. Otherwise these
    /// ranges, which were reserved before the change, would still be handed out.
    fn change<'a>(&'a self, seen: &'a Row, wanted: &SequenceInfo, change: &Change) -> Write<'a> {
        let state = |info: &SequenceInfo| (info.identity, info.reached());
        let recalled = change.next.is_some() || state(wanted) != state(&seen.info);
        let version = Mark::new(seen.version.recalls + u64::from(recalled));
        let (max, mark) = (values::id(wanted.bounds.max().into()), values::count(version.writer));
        let (epoch, recalls) = (values::count(wanted.identity.epoch), values::count(version.recalls));
        let (statement, values) = if recalled {
            (&self.recall, bind([values::id(wanted.reached()), max, epoch, recalls, mark], seen))
        } else {
            (&self.adjust, bind([max, mark], seen))
        };
        Write { statement, values, seen: Some(seen), new: Row { info: wanted.clone(), version } }
    }

    /// Sends a write. If its outcome is unknown, tries to determine the outcome.
    async fn send(&self, write: Write<'_>) -> Result<Swapped<Mark>> {
        let name = &write.new.info.name;
        let swapped = match self.client.swap(write.statement, write.values.clone()).await {
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
        self.client.settle((write.statement, &write.values), (Swapped::Done, error), look).await
    }

    /// Sends the claim of a datacenter, once.
    pub(super) async fn claim(
        &self,
        name: &SequenceName,
        datacenter: &str,
        write: &ClaimWrite,
    ) -> Result<Outcome> {
        let mut bound =
            vec![values::id(write.claim.span.end), values::text(datacenter), values::claim(write.claim)];
        bound.extend([values::text(name.as_str()), values::id(write.seen), values::id(write.max.into())]);
        bound.extend(values::era(write.era));
        outcome(self.client.write(&self.claim, bound).await)
    }

    /// Removes a row. Without an expected identity, a row is removed even if only its incarnation can be
    /// decoded.
    async fn try_remove(&self, name: &SequenceName, expected: Option<Identity>) -> Result<bool> {
        let key = vec![values::text(name)];
        let Some(cells) = self.client.read(&self.read, key).await? else { return Ok(false) };
        let Some(Identity { incarnation, epoch }) = expected else {
            let incarnation =
                cells.count("incarnation").map_err(|fault| self.corrupt(name, &fault.into()))?;
            return self.delete(name, incarnation).await;
        };
        self.decode(name, &cells)?.info.check_identity(expected)?;
        let removed = self.delete_with(&self.delete_identity, name, &[incarnation, epoch]).await?;
        if !removed {
            // The row has changed since the read.
            self.look_up(name).await?.map_or(Ok(()), |row| row.info.check_identity(expected))?;
        }
        Ok(removed)
    }

    /// Deletes the row only if it has this incarnation, so that a late request cannot remove a sequence
    /// that was created since.
    async fn delete(&self, name: &SequenceName, incarnation: u64) -> Result<bool> {
        self.delete_with(&self.delete, name, &[incarnation]).await
    }

    async fn delete_with(&self, delete: &Statement, name: &SequenceName, identity: &[u64]) -> Result<bool> {
        self.seen.learn(name, None);
        let mut values = vec![values::text(name)];
        values.extend(identity.iter().map(|number| values::count(*number)));
        match self.client.write(delete, values).await {
            Err(error) if error.kind() == ErrorKind::UnknownOutcome => match self.look_up(name).await {
                // The row existed before, and is missing now.
                Ok(None) => Ok(true),
                _ => Err(error),
            },
            outcome => outcome,
        }
    }

    async fn list(&self, page: &Page) -> Result<Listing> {
        let cql = format!("SELECT {COLUMNS}, claims FROM {}", self.table.cql());
        let decode = |name: &str, cells: &Cells| Ok(self.decode(name, cells)?.info);
        Ok(self.client.scan::<Listing>(&cql, self.serial, page, decode).await?.sorted())
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
        name: &'a SequenceName,
        seen: Option<&'a Row>,
        wanted: Option<&'a SequenceInfo>,
        _: Resend,
    ) -> StoreFuture<'a, Result<Swapped<Mark>>> {
        Box::pin(async move {
            match (seen, wanted) {
                (None, Some(wanted)) => self.send(self.insert(wanted)).await,
                (Some(seen), Some(wanted)) => self.send(self.advance(seen, wanted)).await,
                (Some(seen), None) => {
                    let done = self.delete(name, seen.info.identity.incarnation).await?;
                    Ok(if done { Swapped::Done } else { Swapped::Changed(None) })
                }
                (None, None) => Ok(Swapped::Done),
            }
        })
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
        Box::pin(self.list(page))
    }

    fn contention(&self) -> Contention {
        RACES
    }
}

/// Binds the new values, the key and the condition.
fn bind<const N: usize>(set: [CqlValue; N], seen: &Row) -> Values {
    let (bounds, mut bound) = (seen.info.bounds, Vec::from(set));
    bound.push(values::text(&seen.info.name));
    bound.extend([values::id(seen.info.reached()), values::id(bounds.max().into())]);
    bound.extend(values::era(era(seen)));
    bound.extend([values::id(bounds.start().into()), CqlValue::Int(FORMAT)]);
    bound
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
