//! The calls of a store, over any executor.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use idmill::store::{
    Bounds, Capabilities, Change, Durability, GiveBack, Grant, Identity, Listing, Page, Reserve,
    SequenceInfo, already_exists, not_found,
};
use idmill::{Error, ErrorKind, Result, SequenceName};
use idmill_kit::history::Failover;
use idmill_kit::{Mode, decide, fits, history};

use super::durable::{DURABLE_AT, Keeps};
use super::history::{in_transaction, open, server};
use super::open::{find, must_sync};
use super::place::{must_be_only, must_see_all};
use super::rows::{self, asks, of_page};
use super::run::{TRIES, crowded, read, written};
use super::table::Table;
use crate::history::History;
use crate::rows::listing;
use crate::{Answer, Batches, Dialect, Executor, Fault, Opening, Row, Statement, Value, must_be_alone};

/// The calls of a [`Store`](idmill::store::Store) over the rows of a table that was found or created. Except
/// in batches, their errors lack the sequence and the operation.
///
/// An executor in a transaction of the caller does not compile here, since a grant must not be
/// rolled back; use [`InTransaction`](crate::InTransaction):
///
/// ```compile_fail,E0080
/// # use idmill::store::{Grant, Reserve};
/// # use idmill_sql::{Answer, Dialect, Executor, Fault, Statement};
/// use idmill_sql::postgres::Calls;
///
/// #[derive(Clone)]
/// struct Callers;
///
/// impl Executor for Callers {
///     const IN_TRANSACTION: bool = true;
///     // …
/// #   async fn execute(&mut self, _: Statement<'_>) -> Result<Answer, Fault> {
/// #       Ok(Answer::default())
/// #   }
/// }
///
/// async fn draw(calls: &Calls, request: &Reserve) -> idmill::Result<Grant> {
///     calls.reserve(&mut Callers, request).await
/// }
/// # type Draw = fn(&'static Calls, &'static Reserve) -> Box<dyn Future<Output = idmill::Result<Grant>>>;
/// # fn main() {
/// #     let draws: Draw = |calls, request| Box::new(draw(calls, request));
/// #     std::hint::black_box(draws);
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Calls {
    pub(super) table: Table,
    pub(super) keeps: Keeps,
    pub(super) mode: Mode,
    pub(super) history: History,
    /// The table of the records, once it was found.
    pub(super) witness: Arc<OnceLock<Table>>,
    /// The statements of reserves, each built once: in a transaction or not, with a floor or not.
    pub(super) reserves: Arc<[OnceLock<String>; 4]>,
}

impl Calls {
    /// Opens a table, and creates it if the mode allows it. If the future is dropped, the table may
    /// have been created.
    ///
    /// # Errors
    /// - [`NotFound`](ErrorKind::NotFound) if there is no schema, or if there is no table and it
    ///   may not be created;
    /// - [`Conflict`](ErrorKind::Conflict) if the table is unlogged or not idmill's, if two tables have this
    ///   name, or if the server does not sync its writes;
    /// - [`Unsupported`](ErrorKind::Unsupported) if the server does not report the history that
    ///   `failover` needs;
    /// - the errors of the executor.
    pub async fn open<E: Executor>(executor: &mut E, table: Table, opening: Opening) -> Result<Self> {
        const { must_be_alone::<E>() };
        let Opening { mode, keeps, failover, .. } = opening;
        let mut history = in_transaction(Failover::default());
        if mode != Mode::ReadOnly {
            must_sync(executor, keeps).await?;
            history = open(executor, failover).await?;
        }
        let table = find(executor, table, mode).await?;
        Ok(Self { keeps, mode, history, ..Self::unopened(table) })
    }

    /// Uses a table without a check that it exists.
    pub(super) fn unopened(table: Table) -> Self {
        let history = in_transaction(Failover::default());
        let (witness, reserves) = (Arc::default(), Arc::default());
        Self { table, keeps: Keeps::default(), mode: Mode::ReadWrite, history, witness, reserves }
    }

    /// Returns the capabilities of a store.
    pub fn capabilities(&self) -> Capabilities {
        Capabilities::new(Durability::Disk).batches(true).shared(true).gives_back(true).records(true)
    }

    /// Returns the table with its schema.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Returns the table, for a call that commits its writes.
    pub(super) fn writing<E: Executor>(&self) -> Result<&Table> {
        const { must_be_alone::<E>() };
        self.writable()
    }

    fn writable(&self) -> Result<&Table> {
        self.mode.must_write().map(|()| &self.table)
    }

    /// Reserves, usually in one round trip: an update advances `next` if the row has ids and was written in
    /// this history. If no row was changed, the row is read, and a missing row is created with the first
    /// range taken, if the request allows it. If another process created the row first, the call starts
    /// again. A grant with a floor has exactly the requested number of ids, none below the floor.
    pub(super) async fn reserve_with<E: Executor>(
        &self,
        executor: &mut E,
        request: &Reserve,
        floor: Option<u64>,
    ) -> Result<Grant> {
        let (table, exactly) = (self.writable()?, floor.is_some());
        let built = &self.reserves[2 * usize::from(E::IN_TRANSACTION) + usize::from(exactly)];
        let sql = built.get_or_init(|| table.reserve(E::IN_TRANSACTION, exactly, self.history));
        let mut stuck = Stuck::default();
        for _ in 0..TRIES {
            let mut values = asks(&[&request.name, &request.count.max(1), &request.ceiling]);
            values.extend(floor.map(|floor| Value::from(floor.to_string())));
            let statement = Statement::write(sql, values).durable_at(DURABLE_AT).often();
            if let Some(row) = self.written::<E>(executor.execute(statement).await)?.first() {
                return rows::granted(row, request);
            }
            must_be_only(executor, table).await?;
            let (seen, moved) = self.look_again(executor, request).await?;
            if stuck.is_at(seen.as_ref()) {
                return Err(hidden());
            }
            if moved {
                continue;
            }
            let missing = seen.is_none();
            let (info, grant) = decide(seen, request, floor)?;
            if !missing {
                continue;
            }
            let from = Some(grant.range.start());
            if let Some(row) = self.insert(executor, &info, from).await? {
                let grant = rows::granted(&row, request)?;
                return fits(&grant, request, floor).map(|()| grant);
            }
        }
        Err(crowded())
    }

    /// Reads a sequence.
    pub(super) async fn look<E: Executor>(
        &self,
        executor: &mut E,
        name: &SequenceName,
    ) -> Result<Option<SequenceInfo>> {
        let found = read(executor, &self.table.select(), [name.as_str().into()]).await;
        let found = found.map_err(|error| self.located(error))?;
        let Some(row) = found.first() else {
            return must_see_all(executor, &self.table).await.map(|()| None);
        };
        rows::decode(row).map(Some)
    }

    /// Adds a row whose last reserve began at `from`, and returns it as stored; `None` if a row of this name
    /// exists.
    async fn insert<E: Executor>(
        &self,
        executor: &mut E,
        info: &SequenceInfo,
        from: Option<u64>,
    ) -> Result<Option<Row>> {
        let mut values: Vec<_> = rows::values(info, from).map(Value::from).into();
        values.push(Value::Timeout);
        let statement = Statement::write(self.table.insert(E::IN_TRANSACTION, self.history), values);
        Ok(self.write(executor, statement).await?.pop())
    }

    /// Runs a statement and returns whether it wrote the row.
    async fn wrote<E: Executor>(&self, executor: &mut E, statement: Statement<'_>) -> Result<bool> {
        Ok(!self.write(executor, statement).await?.is_empty())
    }

    /// Runs a statement and returns the rows that it wrote durably.
    pub(super) async fn write<E: Executor>(
        &self,
        executor: &mut E,
        statement: Statement<'_>,
    ) -> Result<Vec<Row>> {
        self.written::<E>(executor.execute(statement.durable_at(DURABLE_AT)).await)
    }

    /// Returns the rows of an answer to a write, if they are durable.
    fn written<E: Executor>(&self, answer: Result<Answer, Fault>) -> Result<Vec<Row>> {
        written::<E>(answer, DURABLE_AT, self.keeps).map_err(|error| self.located(error))
    }

    /// Adds the table's schema to a permission error, since PostgreSQL names only the table.
    fn located(&self, error: Error) -> Error {
        let message = error.to_string();
        if error.kind() != ErrorKind::Denied || !message.contains("permission denied for table") {
            return error;
        }
        Error::new(ErrorKind::Denied, format!("{message}; the table is {}", self.table.sql())).because(error)
    }
}

impl<E: Executor + Clone + Send + Sync> Dialect<E> for Calls {
    async fn reserve(&self, executor: &mut E, request: &Reserve) -> Result<Grant> {
        const { must_be_alone::<E>() };
        self.reserve_with(executor, request, None).await
    }

    async fn inspect(&self, executor: &mut E, name: &SequenceName) -> Result<Option<SequenceInfo>> {
        self.look(executor, name).await
    }

    async fn server(&self, executor: &mut E) -> Result<Option<String>> {
        server(executor).await
    }

    async fn give_back(&self, executor: &mut E, back: &GiveBack) -> Result<bool> {
        let table = self.writing::<E>()?;
        if back.rest.is_empty() {
            return Ok(false);
        }
        let GiveBack { name, identity, rest, .. } = back;
        let values = asks(&[name, &identity.incarnation, &identity.epoch, &rest.start(), &rest.end()]);
        self.wrote(executor, Statement::write(table.give_back(self.history), values)).await
    }

    async fn create(&self, executor: &mut E, name: &SequenceName, bounds: Bounds) -> Result<SequenceInfo> {
        self.writing::<E>()?;
        let info = SequenceInfo::new(name.clone(), bounds);
        match self.insert(executor, &info, None).await? {
            Some(_) => Ok(info),
            None => Err(already_exists(name)),
        }
    }

    async fn list(&self, executor: &mut E, page: &Page) -> Result<Listing> {
        let found = read(executor, &self.table.select_page(), of_page(page)).await;
        let found = found.map_err(|error| self.located(error))?;
        must_see_all(executor, &self.table).await?;
        Ok(listing(page, &found, rows::cursor, rows::decode))
    }

    async fn set(&self, executor: &mut E, name: &SequenceName, change: Change) -> Result<SequenceInfo> {
        let sql = self.writing::<E>()?.replace(self.history, history::decides(&change));
        for _ in 0..TRIES {
            let seen = self.look(executor, name).await?.ok_or_else(|| not_found(name))?;
            let mut after = seen.clone();
            after.apply(&change)?;
            let (was, identity, epoch) = (seen.reached(), seen.identity, after.identity.epoch);
            let (max, new_max, next) = (seen.bounds.max(), after.bounds.max(), after.reached());
            let values =
                asks(&[name, &identity.incarnation, &identity.epoch, &max, &was, &new_max, &next, &epoch]);
            if self.wrote(executor, Statement::write(&sql, values)).await? {
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
        let table = self.writing::<E>()?;
        let values = match &expected {
            Some(Identity { incarnation, epoch }) => asks(&[name, incarnation, epoch]),
            None => asks(&[name]),
        };
        let removed =
            self.wrote(executor, Statement::write(table.delete(expected.is_some()), values)).await?;
        if !removed {
            must_see_all(executor, table).await?;
        }
        if !removed && expected.is_some() {
            let seen = self.look(executor, name).await?;
            seen.map_or(Ok(()), |seen| seen.check_identity(expected))?;
        }
        Ok(removed)
    }
}

impl<E: Executor + Clone + Send + Sync> Batches<E> for Calls {
    async fn reserve_many(&self, executor: &mut E, requests: &[Reserve]) -> Result<Vec<Result<Grant>>> {
        self.writable()?;
        Ok(Self::reserve_many(self, executor, requests).await)
    }

    async fn give_back_many(&self, executor: &mut E, backs: &[GiveBack]) -> Result<Vec<bool>> {
        let table = self.writing::<E>()?;
        let texts = |text: fn(&GiveBack) -> String| Value::Texts(backs.iter().map(text).collect());
        let values = [
            texts(|back| back.name.to_string()),
            texts(|back| back.identity.incarnation.to_string()),
            texts(|back| back.identity.epoch.to_string()),
            texts(|back| back.rest.start().to_string()),
            texts(|back| back.rest.end().to_string()),
            Value::Timeout,
        ];
        let rows = self.write(executor, Statement::write(table.give_back_many(self.history), values)).await?;
        let mut taken: HashSet<_> = rows.iter().map(rows::name).collect();
        // A row is updated once: if a name occurs twice, the second rest counts as a gap.
        Ok(backs.iter().map(|back| !back.rest.is_empty() && taken.remove(back.name.as_str())).collect())
    }
}

/// Detects a row that is visible and unchanged, but that no update can change.
#[derive(Default)]
struct Stuck {
    at: Option<SequenceInfo>,
    times: u32,
}

impl Stuck {
    /// Returns whether ten reads in a row found the row unchanged.
    fn is_at(&mut self, seen: Option<&SequenceInfo>) -> bool {
        self.times = if seen.is_some() && seen == self.at.as_ref() { self.times + 1 } else { 0 };
        self.at = seen.cloned();
        self.times >= 10
    }
}

fn hidden() -> Error {
    let message = "row-level security or a rule hides the row from UPDATE; give the user a policy for \
                   UPDATE, or BYPASSRLS";
    Error::new(ErrorKind::Denied, message)
}
