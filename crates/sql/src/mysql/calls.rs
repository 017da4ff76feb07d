//! The calls of a store, over any executor.

use std::sync::{Arc, OnceLock};

use idmill::store::{
    Bounds, Capabilities, Change, Durability, GiveBack, Grant, Identity, Listing, Page, Reserve,
    SequenceInfo, already_exists, not_found,
};
use idmill::{Result, SequenceName};
use idmill_kit::history::Failover;
use idmill_kit::{Mode, PerSequence, history};

use super::classify::{failed, is_duplicate};
use super::history::{UNKNOWN_VARIABLE, in_transaction, open};
use super::reserve::{DUPLICATES, Reserving, TRIES, crowded, read_to_write};
use super::rows::cursor;
use super::run::{read, text, try_read};
use super::server;
use super::table::{Fixed, Table};
use crate::executor::{must_be_alone, to_write};
use crate::history::History;
use crate::rows::listing;
use crate::{Asked, Dialect, Executor, Opening};

/// The calls of [`Store`](idmill::store::Store) on the sequences of a table. Each call runs over an executor
/// of the adapter, whose connection commits each statement. Clones share the cached state of the sequences.
///
/// An executor in a transaction of the caller does not compile here, since a grant must not be
/// rolled back; use [`InTransaction`](crate::InTransaction). Each call may be dropped at any await
/// point.
#[derive(Clone, Debug)]
pub struct Calls {
    pub(super) table: Table,
    pub(super) mode: Mode,
    pub(super) history: History,
    /// The cached state that every reserve of a sequence is conditional on. The state may be stale: a reserve
    /// whose condition is not met changes nothing.
    known: Arc<PerSequence<Option<Fixed>>>,
    /// The table of the records, once it was found.
    pub(super) witness: Arc<OnceLock<Table>>,
}

impl Calls {
    /// Checks the server and the table in the connection's database, and creates a missing table if
    /// the mode allows it. `place` names the server in messages.
    ///
    /// # Errors
    /// - [`Denied`](idmill::ErrorKind::Denied) if the user lacks a privilege;
    /// - [`NotFound`](idmill::ErrorKind::NotFound) if the table is missing and may not be created;
    /// - [`Conflict`](idmill::ErrorKind::Conflict) if it exists but is not idmill's;
    /// - [`Unsupported`](idmill::ErrorKind::Unsupported) if the table is not InnoDB, commits would not be
    ///   durable, the server is not supported, or its binary log does not support the requested `failover`;
    /// - [`InvalidInput`](idmill::ErrorKind::InvalidInput) if the connection uses no database;
    /// - the errors of the executor.
    pub async fn open<E: Executor>(
        executor: &mut E,
        table: Table,
        place: &str,
        opening: Opening,
    ) -> Result<Self> {
        const { must_be_alone::<E>() };
        let mode = opening.mode;
        let table = server::open(executor, table, mode, place).await?;
        let history = match mode {
            Mode::ReadOnly => in_transaction(Failover::Refuse),
            _ => open(executor, opening.failover).await?,
        };
        Ok(Self { table, mode, history, known: Arc::default(), witness: Arc::default() })
    }

    /// Checks that the mode allows changes. Each call that changes something makes this check; an adapter
    /// makes the check before it connects for such a call.
    ///
    /// # Errors
    /// [`Denied`](idmill::ErrorKind::Denied) if the mode does not allow changes.
    pub fn may_write(&self) -> Result<()> {
        self.mode.must_write()
    }

    /// Returns the capabilities of a store.
    pub fn capabilities(&self) -> Capabilities {
        Capabilities::new(Durability::Disk).shared(true).gives_back(true).records(true)
    }

    pub(super) fn writing<E: Executor>(&self) -> Result<()> {
        const { must_be_alone::<E>() };
        self.may_write()
    }
}

impl<E: Executor + Send> Dialect<E> for Calls {
    async fn reserve(&self, executor: &mut E, request: &Reserve) -> Result<Grant> {
        self.writing::<E>()?;
        let before = self.known.with(&request.name, |known| *known);
        let mut known = before;
        let reserving = Reserving { table: &self.table, history: self.history, request, floor: None };
        let outcome = reserving.run(executor, &mut known).await;
        if known != before {
            self.known.with(&request.name, |now| *now = known);
        }
        let (range, known) = (outcome?, known.expect("a granted sequence is known"));
        Ok(Grant::new(range, known.identity, known.bounds))
    }

    async fn give_back(&self, executor: &mut E, back: &GiveBack) -> Result<bool> {
        self.writing::<E>()?;
        Ok(self.history.write(executor, &self.table.give_back(back, self.history)).await?.changed == 1)
    }

    async fn inspect(&self, executor: &mut E, name: &SequenceName) -> Result<Option<SequenceInfo>> {
        let found = read(executor, &self.table.select(name)).await?;
        found.last().map(|row| self.table.decode(row)).transpose()
    }

    async fn list(&self, executor: &mut E, page: &Page) -> Result<Listing> {
        let found = read(executor, &self.table.select_page(page)?).await?;
        Ok(listing(page, &found, cursor, |row| self.table.decode(row)))
    }

    async fn create(&self, executor: &mut E, name: &SequenceName, bounds: Bounds) -> Result<SequenceInfo> {
        self.writing::<E>()?;
        let info = SequenceInfo::new(name.clone(), bounds);
        let insert = self.table.insert(&info, self.history);
        let mut duplicates = 0;
        while let Err(fault) = self.history.try_write(executor, &insert).await {
            if !is_duplicate(&fault) || duplicates >= DUPLICATES {
                return Err(failed(fault, to_write::<E>()));
            }
            // The sequence exists, or a user's unique index rejected the row.
            if read_to_write(executor, &self.table, name).await?.is_some() {
                return Err(already_exists(name));
            }
            duplicates += 1;
        }
        Ok(info)
    }

    async fn set(&self, executor: &mut E, name: &SequenceName, change: Change) -> Result<SequenceInfo> {
        self.writing::<E>()?;
        // A caller who sets `next` has decided where to continue, so the row's old history is void.
        let anew = history::decides(&change);
        let besides = if anew { self.history.sets_anew() } else { String::new() };
        for _ in 0..TRIES {
            let seen = read_to_write(executor, &self.table, name).await?.ok_or_else(|| not_found(name))?;
            let mut after = seen.info.clone();
            after.apply(&change)?;
            // An UPDATE without a change looks like a conflict: no rows are changed.
            let same = after == seen.info && (!anew || seen.moved().is_none());
            let update = self.table.replace(&seen.info, &after, &besides, self.history);
            if same || self.history.write(executor, &update).await?.changed == 1 {
                return Ok(after);
            }
        }
        Err(crowded())
    }

    async fn remove(
        &self,
        executor: &mut E,
        name: &SequenceName,
        expected: Option<Identity>,
    ) -> Result<bool> {
        self.writing::<E>()?;
        let delete = self.table.delete(name, expected, self.history);
        let removed = self.history.write(executor, &delete).await?.changed > 0;
        if !removed && expected.is_some() {
            let seen = read_to_write(executor, &self.table, name).await?;
            seen.map_or(Ok(()), |seen| seen.info.check_identity(expected))?;
        }
        Ok(removed)
    }

    async fn server(&self, executor: &mut E) -> Result<Option<String>> {
        match try_read(executor, "SELECT CONCAT('MySQL server ', @@server_uuid)").await {
            Ok(rows) => Ok(rows.first().and_then(|row| text(row, 0)).map(str::to_owned)),
            Err(fault) if fault.code() == Some(UNKNOWN_VARIABLE) => Ok(None),
            Err(fault) => Err(failed(fault, Asked::Read)),
        }
    }
}
