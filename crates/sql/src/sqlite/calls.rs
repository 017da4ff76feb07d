//! The calls of [`Store`](idmill::store::Store), and reserves in a transaction of the caller.

use idmill::store::{
    Bounds, Capabilities, Change, Durability, GiveBack, Grant, Identity, Listing, Page, Reserve,
    SequenceInfo, already_exists, not_found,
};
use idmill::{IdRange, Result, SequenceName};
use idmill_kit::{Mode, decide};

use super::classify::is_missing_table;
use super::session::{Session, in_transaction};
use super::table::Table;
use crate::{Answer, Batches, Dialect, Draws, Executor, Fault, Statement};

/// Runs a block in a transaction, which commits if the outcome is `Ok`.
macro_rules! within {
    ($session:ident, $block:block) => {{
        $session.begin().await?;
        let outcome = async $block.await;
        $session.end(outcome).await
    }};
}

/// The calls of a store. Each call that writes is one transaction.
#[derive(Clone, Copy, Debug)]
pub struct Calls(pub Mode);

impl Calls {
    /// Returns the capabilities of a store.
    pub fn capabilities(&self) -> Capabilities {
        Capabilities::new(Durability::Disk).batches(true).shared(true).gives_back(true).records(true)
    }
}

impl<E: Executor + Send> Batches<Session<E>> for Calls {
    async fn reserve_many(
        &self,
        session: &mut Session<E>,
        requests: &[Reserve],
    ) -> Result<Vec<Result<Grant>>> {
        within!(session, {
            let mut grants = Vec::with_capacity(requests.len());
            for request in requests {
                let grant = reserve(&mut session.db, &session.table, request, None).await;
                grants.push(grant.map_err(in_transaction)?);
            }
            Ok(grants)
        })
    }

    /// In one transaction, which waits for the disk once.
    async fn give_back_many(&self, session: &mut Session<E>, backs: &[GiveBack]) -> Result<Vec<bool>> {
        within!(session, {
            let mut taken = Vec::with_capacity(backs.len());
            for back in backs {
                taken.push(session.take_back(back).await?);
            }
            Ok(taken)
        })
    }
}

impl<E: Executor + Send> Dialect<Session<E>> for Calls {
    async fn reserve(&self, session: &mut Session<E>, request: &Reserve) -> Result<Grant> {
        let mut grants = self.reserve_many(session, std::slice::from_ref(request)).await?;
        grants.pop().expect("one outcome for each request")
    }

    async fn server(&self, _: &mut Session<E>) -> Result<Option<String>> {
        Ok(None)
    }

    async fn give_back(&self, session: &mut Session<E>, back: &GiveBack) -> Result<bool> {
        let taken = self.give_back_many(session, std::slice::from_ref(back)).await?;
        Ok(taken == [true])
    }

    async fn create(
        &self,
        session: &mut Session<E>,
        name: &SequenceName,
        bounds: Bounds,
    ) -> Result<SequenceInfo> {
        within!(session, {
            if session.stored(name).await?.is_some() {
                return Err(already_exists(name));
            }
            let info = SequenceInfo::new(name.clone(), bounds);
            session.write(session.table.insert(&info)).await.map(|()| info)
        })
    }

    async fn inspect(&self, session: &mut Session<E>, name: &SequenceName) -> Result<Option<SequenceInfo>> {
        session.check().await?;
        let answer = session.read(session.table.select(name)).await?;
        sequence(&session.table, &answer)
    }

    async fn list(&self, session: &mut Session<E>, page: &Page) -> Result<Listing> {
        session.check().await?;
        let answer = session.read(session.table.select_page(page)?).await?;
        Ok(session.table.listing(page, &answer))
    }

    async fn set(
        &self,
        session: &mut Session<E>,
        name: &SequenceName,
        change: Change,
    ) -> Result<SequenceInfo> {
        within!(session, {
            let mut info = session.stored(name).await?.ok_or_else(|| not_found(name))?;
            info.apply(&change)?;
            session.write(session.table.update(&info)).await.map(|()| info)
        })
    }

    async fn remove(
        &self,
        session: &mut Session<E>,
        name: &SequenceName,
        expected: Option<Identity>,
    ) -> Result<bool> {
        within!(session, {
            // Without an expected identity, a row that cannot be read is removed too.
            if expected.is_some() {
                session.stored(name).await?.map_or(Ok(()), |stored| stored.check_identity(expected))?;
            }
            let removed = session.db.execute(session.table.delete(name)).await;
            removed.map(|answer| answer.changed > 0).map_err(in_transaction)
        })
    }
}

impl<E: Executor> Session<E> {
    async fn stored(&mut self, name: &SequenceName) -> Result<Option<SequenceInfo>> {
        select(&mut self.db, &self.table, name).await.map_err(in_transaction)?
    }

    async fn take_back(&mut self, back: &GiveBack) -> Result<bool> {
        let Some(mut info) = self.stored(&back.name).await? else { return Ok(false) };
        let taken = info.take_back(back);
        if taken {
            self.write(self.table.update(&info)).await?;
        }
        Ok(taken)
    }

    pub(super) async fn write(&mut self, statement: Statement<'_>) -> Result<()> {
        write(&mut self.db, statement).await.map_err(in_transaction)
    }
}

/// Draws in a transaction of the caller, and creates the table on first use.
///
/// A draw takes the write lock first. A deferred transaction that has already read fails here if others have
/// written since.
impl Draws for Table {
    fn of_table(table: &str) -> Result<Self> {
        Self::new(table)
    }

    fn in_table(self, table: &str) -> Result<Self> {
        Self::new(table)
    }

    async fn draw<E: Executor>(&self, db: &mut E, request: &Reserve, floor: u64) -> Result<IdRange> {
        lock(db, self).await.map_err(in_transaction)?;
        let grant = reserve(db, self, request, Some(floor)).await.map_err(in_transaction)?;
        grant.map(|grant| grant.range)
    }
}

/// Takes the write lock. If the table is missing, creating it takes the lock too.
async fn lock<E: Executor>(db: &mut E, table: &Table) -> Result<(), Fault> {
    match db.execute(table.lock()).await {
        Err(fault) if is_missing_table(&fault) => db.execute(table.create()).await.map(drop),
        outcome => outcome.map(drop),
    }
}

/// Reserves within a transaction that has the write lock; writes only if the outcome is a grant.
/// The inner error concerns only this sequence.
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

/// Reads one sequence; the inner error describes an invalid row.
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

/// Writes one row. A trigger or a view can make a statement succeed without effect.
async fn write<E: Executor>(db: &mut E, statement: Statement<'_>) -> Result<(), Fault> {
    match db.execute(statement).await?.changed {
        1 => Ok(()),
        changed => Err(Fault::Answer(format!("Query changed {changed} rows"))),
    }
}
