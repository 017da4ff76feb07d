//! The table of sequences: one partition each, read and written in agreement. Flat sequences reserve from it;
//! for datacenter windows it holds the global counter and every datacenter's last claim.

use std::collections::HashMap;
use std::time::Duration;

use idmill::store::{
    Bounds, Change, Cursor, Grant, Identity, Listing, Page, Reserve, SequenceInfo, already_exists, exhausted,
    not_found,
};
use idmill::{Error, ErrorKind, Result, SequenceName};
use idmill_kit::Contention;
use idmill_shared_cache::datacenter::{Claim, ClaimWrite, Era, GlobalRow, Outcome};
use scylla::value::CqlValue;

use super::classify::Effect;
use super::client::{Client, Serial, Statement, outcome};
use super::schema::{FORMAT, Table};
use super::values::{self, Cells, Fault, Values};

const COLUMNS: &str = "name, next, start, max, incarnation, epoch, recalls, writer, format";
/// What a write is conditional on. Of these, `next` never has a value twice in an era: a write of unknown
/// outcome may be sent again. That is why nothing is ever given back here.
const SEEN: &str = "next = ? AND max = ? AND incarnation = ? AND epoch = ? AND recalls = ?";
/// How often a write of unknown outcome is looked after before its outcome stays unknown.
pub(super) const LOOKS: u32 = 3;
/// A pause after each loss: Paxos rounds that meet undo each other.
pub(super) const CONTENTION: Contention =
    Contention::new().every(1).pauses(Duration::from_millis(4), Duration::from_millis(100));

/// The table, with its statements.
#[derive(Clone, Debug)]
pub(super) struct Sequences {
    client: Client,
    table: Table,
    serial: Serial,
    read: Statement,
    insert: Statement,
    advance: Statement,
    claim: Statement,
    adjust: Statement,
    recall: Statement,
    delete: Statement,
}

/// A row of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) info: SequenceInfo,
    pub(super) recalls: u64,
    pub(super) claims: HashMap<String, Claim>,
    /// Who wrote it last: a random number that one attempt has and no other.
    pub(super) writer: u64,
}

impl Row {
    fn fresh(name: &SequenceName, bounds: Bounds) -> Self {
        let info = SequenceInfo::stored(name.clone(), Some(bounds.start()), bounds, Identity::fresh());
        Self { info, recalls: 0, claims: HashMap::new(), writer: random() }
    }

    /// As one datacenter sees it.
    pub(super) fn global(&self, datacenter: &str) -> GlobalRow {
        let claim = self.claims.get(datacenter).copied();
        GlobalRow { era: self.era(), bounds: self.info.bounds, next: self.next(), claim }
    }

    fn era(&self) -> Era {
        Era { identity: self.info.identity, recalls: self.recalls }
    }

    /// One past the last id where there is no next one.
    fn next(&self) -> u128 {
        self.info.next.map_or(u128::from(self.info.bounds.max()) + 1, u128::from)
    }

    /// Whether a write that is conditional on having seen `other` could be applied now.
    fn is_where(&self, other: &Self) -> bool {
        self.era() == other.era()
            && self.next() == other.next()
            && self.info.bounds.max() == other.info.bounds.max()
    }
}

/// A conditional write and how it is told from every other.
struct Write<'a> {
    statement: &'a Statement,
    values: Values,
    seen: &'a Row,
    writer: u64,
}

impl Sequences {
    pub(super) async fn prepare(client: Client, table: Table, serial: Serial) -> Result<Self> {
        let t = table.cql();
        let update = |set: &str| format!("UPDATE {t} SET {set} WHERE name = ? IF {SEEN}");
        let read = format!("SELECT {COLUMNS}, claims FROM {t} WHERE name = ?");
        let insert = format!("INSERT INTO {t} ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) IF NOT EXISTS");
        let delete = format!("DELETE FROM {t} WHERE name = ? IF incarnation = ?");
        let write = |cql| client.prepare(cql, serial, Effect::Write);
        Ok(Self {
            read: client.prepare(read, serial, Effect::Read).await?,
            insert: write(insert).await?,
            advance: write(update("next = ?, writer = ?")).await?,
            claim: write(update("next = ?, claims[?] = ?")).await?,
            adjust: write(update("max = ?, writer = ?")).await?,
            recall: write(update("next = ?, max = ?, epoch = ?, recalls = ?, claims = null, writer = ?"))
                .await?,
            delete: write(delete).await?,
            client,
            table,
            serial,
        })
    }

    pub(super) async fn read(&self, name: &SequenceName) -> Result<Option<Row>> {
        let cells = self.client.read(&self.read, vec![values::text(name.as_str())]).await?;
        cells.map(|cells| self.decode(&cells)).transpose()
    }

    /// Reads it, having made it where it did not exist and may be made; nothing is reserved by that.
    pub(super) async fn ensure(&self, request: &Reserve) -> Result<Row> {
        for _ in 0..LOOKS {
            if let Some(row) = self.read(&request.name).await? {
                return Ok(row);
            }
            let create = request.creation()?;
            if create.start() > request.ceiling {
                return Err(exhausted(&request.name, request.ceiling));
            }
            match outcome(self.insert(&Row::fresh(&request.name, create)).await)? {
                // Whatever became of it, and whoever did it: it is there, or not.
                Outcome::Applied | Outcome::Refused | Outcome::Unknown => {}
            }
        }
        let message = "it is not known whether the sequence was created; nothing was reserved from it";
        Err(Error::new(ErrorKind::Unavailable, message))
    }

    async fn insert(&self, row: &Row) -> Result<bool> {
        let (info, id) = (&row.info, values::id);
        let mut bound = vec![values::text(info.name.as_str()), id(row.next())];
        bound.extend([id(info.bounds.start().into()), id(info.bounds.max().into())]);
        bound.extend(values::era(row.era()));
        bound.extend([values::count(row.writer), CqlValue::Int(FORMAT)]);
        self.client.write(&self.insert, bound).await
    }

    /// Reserves from it directly.
    pub(super) async fn reserve(&self, request: &Reserve) -> Result<Grant> {
        let mut contest = CONTENTION.begin();
        loop {
            let seen = self.ensure(request).await?;
            let mut info = seen.info.clone();
            let grant = info.grant(request.count, request.ceiling)?;
            let new = Row { info, ..seen.clone() };
            let writer = random();
            let values = bind([values::id(new.next()), values::count(writer)], &seen);
            if self.send(&Write { statement: &self.advance, values, seen: &seen, writer }).await? {
                return Ok(grant);
            }
            contest.lost(None).await?;
        }
    }

    /// Sends a write, and looks after it if its outcome is unknown: whether it was applied.
    async fn send(&self, write: &Write<'_>) -> Result<bool> {
        match self.client.write(write.statement, write.values.clone()).await {
            Err(error) if error.kind() == ErrorKind::UnknownOutcome => self.settle(write, error).await,
            outcome => outcome,
        }
    }

    /// Finds out about a write of unknown outcome by what nobody else writes, never by values.
    ///
    /// While its condition still holds it is sent again: of all its copies one is applied at most, and once
    /// one is, or another write, the others never will be. If the row has moved on under another's name, ours
    /// may have been applied before that, or not: that stays unknown.
    async fn settle(&self, write: &Write<'_>, error: Error) -> Result<bool> {
        let mut contest = CONTENTION.begin();
        for _ in 0..LOOKS {
            let Ok(Some(row)) = self.read(&write.seen.info.name).await else { break };
            if row.writer == write.writer {
                return Ok(true);
            }
            if !row.is_where(write.seen) {
                break;
            }
            match self.client.write(write.statement, write.values.clone()).await {
                Ok(true) => return Ok(true),
                // Refused, by our own first copy or by another's write; or unknown again.
                _ if contest.lost(None).await.is_err() => break,
                _ => {}
            }
        }
        Err(error)
    }

    /// Sends a datacenter's claim.
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

    pub(super) async fn create(&self, name: &SequenceName, bounds: Bounds) -> Result<SequenceInfo> {
        let row = Row::fresh(name, bounds);
        match self.insert(&row).await {
            Ok(true) => Ok(row.info),
            Ok(false) => Err(already_exists(name)),
            Err(error) if error.kind() == ErrorKind::UnknownOutcome => match self.read(name).await {
                Ok(Some(found)) if found.info.identity == row.info.identity => Ok(found.info),
                Ok(Some(_)) => Err(already_exists(name)),
                _ => Err(error),
            },
            Err(error) => Err(error),
        }
    }

    /// What windows hold is recalled whenever `next` is set: it was reserved before, and
    /// would go on being handed out.
    pub(super) async fn set(&self, name: &SequenceName, change: Change) -> Result<SequenceInfo> {
        let mut contest = CONTENTION.begin();
        loop {
            let seen = self.read(name).await?.ok_or_else(|| not_found(name))?;
            let mut info = seen.info.clone();
            info.apply(&change)?;
            let mut new = Row { info, ..seen.clone() };
            let recalled = change.next.is_some() || new.era() != seen.era() || new.next() != seen.next();
            new.recalls += u64::from(recalled);
            let writer = random();
            let (max, mark) = (values::id(new.info.bounds.max().into()), values::count(writer));
            let (statement, values) = if recalled {
                let (epoch, recalls) = (values::count(new.info.identity.epoch), values::count(new.recalls));
                (&self.recall, bind([values::id(new.next()), max, epoch, recalls, mark], &seen))
            } else {
                (&self.adjust, bind([max, mark], &seen))
            };
            if self.send(&Write { statement, values, seen: &seen, writer }).await? {
                return Ok(new.info);
            }
            contest.lost(None).await?;
        }
    }

    /// By its incarnation: a request that is late does not remove a sequence that was created since.
    pub(super) async fn remove(&self, name: &SequenceName) -> Result<bool> {
        let key = values::text(name.as_str());
        let Some(cells) = self.client.read(&self.read, vec![key.clone()]).await? else { return Ok(false) };
        let incarnation = cells.count("incarnation").map_err(|fault| self.corrupt(name.as_str(), &fault))?;
        match self.client.write(&self.delete, vec![key, values::count(incarnation)]).await {
            Err(error) if error.kind() == ErrorKind::UnknownOutcome => match self.read(name).await {
                // It was there, and is not.
                Ok(None) => Ok(true),
                _ => Err(error),
            },
            outcome => outcome,
        }
    }

    /// In the order of the ring, in which names that begin alike are scattered: so
    /// the prefix is looked at here.
    pub(super) async fn list(&self, page: &Page) -> Result<Listing> {
        let after = page.after.as_ref().map(Cursor::bytes).transpose()?;
        let cql = format!("SELECT {COLUMNS}, claims FROM {}", self.table.cql());
        let (rows, next) = self.client.scan(&cql, self.serial, after, page.rows()).await?;
        let mut listing = Listing::new(Vec::new(), next.map(|next| Cursor::of_bytes(&next)));
        for cells in rows {
            let name = cells.text("name").unwrap_or_default();
            if name.starts_with(&page.prefix) {
                listing.add(name, self.decode(&cells).map(|row| row.info));
            }
        }
        Ok(listing.sorted())
    }

    fn decode(&self, cells: &Cells) -> Result<Row> {
        let name = cells.text("name").unwrap_or("?").to_owned();
        if cells.format().is_some_and(|format| format != FORMAT) {
            let message = format!(
                "the row {name:?} of {} is in another format, perhaps a later version's",
                self.table.display()
            );
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        decode(cells).map_err(|fault| self.corrupt(&name, &fault))
    }

    fn corrupt(&self, name: &str, fault: &str) -> Error {
        let message =
            format!("the row {name:?} of {} {fault}; nothing is reserved from it", self.table.display());
        Error::new(ErrorKind::StoreViolation, message)
    }
}

/// What is set, the key, and the condition.
fn bind<const N: usize>(set: [CqlValue; N], seen: &Row) -> Values {
    let mut bound = Vec::from(set);
    bound.push(values::text(seen.info.name.as_str()));
    bound.extend([values::id(seen.next()), values::id(seen.info.bounds.max().into())]);
    bound.extend(values::era(seen.era()));
    bound
}

fn decode(cells: &Cells) -> Result<Row, Fault> {
    if cells.format().is_none() {
        return Err("has no format".to_owned());
    }
    let name =
        SequenceName::new(cells.text("name")?).map_err(|error| format!("has no valid name: {error}"))?;
    let (bounds, next, era) = (cells.bounds()?, cells.id("next")?, cells.era()?);
    let (start, end) = (u128::from(bounds.start()), u128::from(bounds.max()) + 1);
    if !(start..=end).contains(&next) {
        return Err(format!("has next {next} outside its bounds {start}..={}", bounds.max()));
    }
    let claims = cells.claims()?;
    if claims.values().any(|claim| claim.span.start < start || claim.span.end > next) {
        return Err(format!("has a claim of ids that are not below its next {next}"));
    }
    let next = u64::try_from(next).ok().filter(|next| *next <= bounds.max());
    let info = SequenceInfo::stored(name, next, bounds, era.identity);
    Ok(Row { info, recalls: era.recalls, claims, writer: cells.count("writer").unwrap_or(0) })
}

/// A number that nobody else comes by.
fn random() -> u64 {
    Identity::fresh().incarnation
}
