//! The calls of [`Store`](idmill::store::Store), and reserves in a transaction of the caller's.

use idmill::store::{
    Bounds, Capabilities, Change, Durability, GiveBack, Grant, Listing, Page, Reserve, SequenceInfo,
    already_exists, not_found,
};
use idmill::{Range, Result, SequenceName};

use super::classify::is_missing_table;
use super::session::{Session, in_transaction};
use super::table::{DEFAULT_TABLE, Table};
use crate::{Answer, Draws, Executor, Fault, Statement};

/// What a store of this dialect can do.
pub const CAPABILITIES: Capabilities =
    Capabilities::new(Durability::Disk).batches(true).shared(true).gives_back(true).records(true);

/// As the methods of [`Store`](idmill::store::Store) of the same names; the errors do not yet say during
/// which operation.
#[allow(clippy::missing_errors_doc)] // they are those of the trait
impl<E: Executor> Session<E> {
    /// Reserves for several sequences in one transaction. The outer error is that of all of them.
    pub async fn reserve_many(&mut self, requests: &[Reserve]) -> Result<Vec<Result<Grant>>> {
        self.begin().await?;
        let mut grants = Vec::with_capacity(requests.len());
        for request in requests {
            match reserve(&mut self.db, &self.table, request, None).await {
                Ok(grant) => grants.push(grant),
                Err(fault) => return self.end(Err(in_transaction(fault))).await,
            }
        }
        self.end(Ok(grants)).await
    }

    /// Takes back the rest of a range.
    pub async fn give_back(&mut self, back: &GiveBack) -> Result<bool> {
        self.begin().await?;
        let outcome = self.try_give_back(back).await;
        self.end(outcome).await
    }

    async fn try_give_back(&mut self, back: &GiveBack) -> Result<bool> {
        let Some(mut info) = self.stored(&back.name).await? else { return Ok(false) };
        let taken = info.take_back(back);
        if taken {
            self.write(self.table.update(&info)).await?;
        }
        Ok(taken)
    }

    /// Creates a sequence.
    pub async fn create(&mut self, name: &SequenceName, bounds: Bounds) -> Result<SequenceInfo> {
        self.begin().await?;
        let outcome = self.try_create(name, bounds).await;
        self.end(outcome).await
    }

    async fn try_create(&mut self, name: &SequenceName, bounds: Bounds) -> Result<SequenceInfo> {
        if self.stored(name).await?.is_some() {
            return Err(already_exists(name));
        }
        let info = SequenceInfo::new(name.clone(), bounds);
        self.write(self.table.insert(&info)).await?;
        Ok(info)
    }

    /// Reads a sequence.
    pub async fn inspect(&mut self, name: &SequenceName) -> Result<Option<SequenceInfo>> {
        self.check().await?;
        let answer = self.read(self.table.select(name)).await?;
        sequence(&self.table, &answer)
    }

    /// Reads a page of the sequences.
    pub async fn list(&mut self, page: &Page) -> Result<Listing> {
        self.check().await?;
        let answer = self.read(self.table.select_page(page)?).await?;
        Ok(self.table.listing(page, &answer))
    }

    /// Changes a sequence.
    pub async fn set(&mut self, name: &SequenceName, change: &Change) -> Result<SequenceInfo> {
        self.begin().await?;
        let outcome = self.try_set(name, change).await;
        self.end(outcome).await
    }

    async fn try_set(&mut self, name: &SequenceName, change: &Change) -> Result<SequenceInfo> {
        let mut info = self.stored(name).await?.ok_or_else(|| not_found(name))?;
        info.apply(change)?;
        self.write(self.table.update(&info)).await?;
        Ok(info)
    }

    /// Removes a sequence.
    pub async fn remove(&mut self, name: &SequenceName) -> Result<bool> {
        self.begin().await?;
        let removed = self.db.execute(self.table.delete(name)).await;
        self.end(removed.map(|answer| answer.changed > 0).map_err(in_transaction)).await
    }

    async fn stored(&mut self, name: &SequenceName) -> Result<Option<SequenceInfo>> {
        select(&mut self.db, &self.table, name).await.map_err(in_transaction)?
    }

    pub(super) async fn write(&mut self, statement: Statement<'_>) -> Result<()> {
        write(&mut self.db, statement).await.map_err(in_transaction)
    }
}

/// In a transaction of the caller's, whose table is created on first use too.
///
/// It takes the write lock first of all. A deferred transaction that has read before fails here if others
/// have written since.
impl Draws for Table {
    const DEFAULT_TABLE: &'static str = DEFAULT_TABLE;

    fn of_table(table: &str) -> Result<Self> {
        Self::new(table)
    }

    fn in_table(self, table: &str) -> Result<Self> {
        Self::new(table)
    }

    async fn draw<E: Executor>(&self, db: &mut E, request: &Reserve, floor: u64) -> Result<Range> {
        lock(db, self).await.map_err(in_transaction)?;
        let grant = reserve(db, self, request, Some(floor)).await.map_err(in_transaction)?;
        grant.map(|grant| grant.range)
    }
}

/// The write lock, first of all; for want of a table, creating that takes it too.
async fn lock<E: Executor>(db: &mut E, table: &Table) -> Result<(), Fault> {
    match db.execute(table.lock()).await {
        Err(fault) if is_missing_table(&fault) => db.execute(table.create()).await.map(drop),
        outcome => outcome.map(drop),
    }
}

/// Reserves within a transaction that has the write lock; writes only if the outcome is a grant. The inner
/// error is this sequence's alone.
async fn reserve<E: Executor>(
    db: &mut E,
    table: &Table,
    request: &Reserve,
    floor: Option<u64>,
) -> Result<Result<Grant>, Fault> {
    let stored = match select(db, table, &request.name).await? {
        Ok(stored) => stored,
        Err(error) => return Ok(Err(error)),
    };
    let exists = stored.is_some();
    let (info, grant) = match decide(stored, request, floor) {
        Ok(decided) => decided,
        Err(error) => return Ok(Err(error)),
    };
    write(db, if exists { table.update(&info) } else { table.insert(&info) }).await?;
    Ok(Ok(grant))
}

/// What is granted, and the sequence after it. With a floor, all that was asked for and nothing below.
fn decide(
    stored: Option<SequenceInfo>,
    request: &Reserve,
    floor: Option<u64>,
) -> Result<(SequenceInfo, Grant)> {
    let mut info = match stored {
        Some(info) => info,
        None => SequenceInfo::new(request.name.clone(), request.creation()?),
    };
    let grant = info.grant(request.count, request.ceiling)?;
    if let Some(floor) = floor {
        grant.must_fit(&request.name, request.count, floor, request.ceiling)?;
    }
    Ok((info, grant))
}

/// Reads one sequence; the inner error says what is wrong with its row.
async fn select<E: Executor>(
    db: &mut E,
    table: &Table,
    name: &SequenceName,
) -> Result<Result<Option<SequenceInfo>>, Fault> {
    db.execute(table.select(name)).await.map(|answer| sequence(table, &answer))
}

fn sequence(table: &Table, answer: &Answer) -> Result<Option<SequenceInfo>> {
    answer.rows.first().map(|row| table.decode(row)).transpose()
}

/// Writes one row. A trigger or a view can make a statement succeed without doing anything.
async fn write<E: Executor>(db: &mut E, statement: Statement<'_>) -> Result<(), Fault> {
    match db.execute(statement).await?.changed {
        1 => Ok(()),
        changed => Err(Fault::Answer(format!("Query changed {changed} rows"))),
    }
}
