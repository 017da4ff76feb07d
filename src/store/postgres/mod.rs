//! Sequences in a PostgreSQL database, in rows of a table or as `SEQUENCE`s:
//! `postgres://USER:PASSWORD@HOST:PORT/DATABASE?table=NAME&sequences=native&mode=ro|rw|rwc&sslmode=verify-full&timeout=10s`.
//!
//! # What holds
//!
//! - **Durable**: a range is on the server's disk, and at the synchronous standbys where there are some,
//!   before an id of it is handed out. Every statement sets `synchronous_commit` for itself and reads it
//!   back, whatever session or pooler it runs in; a server with `fsync` or `full_page_writes` off is refused,
//!   whenever they were turned off, and so is an unlogged table.
//! - **Atomic**: a reserve is one `UPDATE … RETURNING` of one row; of several sequences, one of several rows,
//!   which passes over those that another transaction holds: no sequence waits for another's lock.
//! - **Sent once**: no statement is sent again after it may have arrived. A connection that was
//!   lost is replaced for the next.
//! - **Gapless**, where it is asked for: see [`InTransaction`].
//!
//! [`NativeSequences`] draws from PostgreSQL's own `SEQUENCE`s instead.
//!
//! PostgreSQL cannot protect from: a restored backup, a failover to a standby that was not synchronous, and
//! changes of a row by hand. See `docs/stores/postgresql.md`.
//!
//! # Cancellation
//!
//! A call that is dropped may have been sent, and is then carried out; the range it reserved is a
//! gap. Its connection is closed.

mod batch;
mod classify;
mod durable;
mod native;
mod options;
mod place;
mod schema;
mod session;
mod tls;
mod transaction;

use std::fmt;
use std::time::Duration;

use tokio_postgres::{Client, Row};

use self::classify::{Asked, Fault, failed};
use self::durable::must_sync;
use self::place::Place;
use self::schema::{Table, Within};
use self::session::{Patience, Sessions, texts};
use super::calls::calls;
use super::{
    Bounds, Capabilities, Change, Cursor, Durability, GiveBack, Grant, Listing, Page, Reserve, RetryCost,
    SequenceInfo, Store, StoreFuture, already_exists, not_found,
};
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::name::SequenceName;
use crate::store::mode::NEVER_MADE;
use crate::sync::Arc;

pub use self::durable::Keeps;
pub use self::native::NativeSequences;
pub use self::options::{PostgresOptions, Sequences, SslMode};
pub use self::transaction::{InTransaction, next_in, next_in_sql, reserve_in};
pub use super::Mode;
/// The driver, in the version whose clients and transactions are taken here.
pub use tokio_postgres as driver;

/// How long one statement may take unless told otherwise.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// How often others may get in between before a call gives up. Each time one of them got on.
const TRIES: usize = 1_000;

/// Sequences in a table of a PostgreSQL database. See the [module](self) for what holds.
///
/// Clones share their connections: at most four, of its own, and four more where locks are waited
/// for; or one that the caller has.
#[derive(Clone)]
pub struct PostgresStore {
    sessions: Sessions,
    table: Table,
    read_only: bool,
}

impl PostgresStore {
    /// Connects to the database that a URL names: see [`PostgresOptions`].
    ///
    /// # Errors
    /// Those of [`PostgresOptions::parse`] and of [`open_with`](Self::open_with).
    pub async fn open(url: &str) -> Result<Self> {
        Self::open_with(PostgresOptions::parse(url)?).await
    }

    /// Connects to a database, and creates the table where the options say so. Dropping the future
    /// can leave the table created.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for options that cannot be;
    /// [`Unavailable`](ErrorKind::Unavailable) if the server cannot be reached; [`Denied`](ErrorKind::Denied)
    /// by the server, or for its certificate; [`NotFound`](ErrorKind::NotFound) if the database is missing,
    /// the schema, or the table and it is not to be created; [`Conflict`](ErrorKind::Conflict) if the table
    /// is unlogged or not this crate's, if two are to be seen, or the server does not sync what it writes.
    pub async fn open_with(options: PostgresOptions) -> Result<Self> {
        options.open().await.map_err(|error| error.during(Operation::Connect))
    }

    /// Over a client that the caller has, in the table `idmill_sequences` that its `search_path` leads to, or
    /// else of its first schema, where it is created. The client may be used for other things at the same
    /// time, but what is reserved while it is in a transaction is refused. Nobody replaces it when it is
    /// closed; and statements on it wait for each other, so that locks are waited for but briefly.
    ///
    /// # Errors
    /// As [`open_with`](Self::open_with).
    pub async fn new(client: impl Into<Arc<Client>>) -> Result<Self> {
        let sessions = Sessions::given(client.into(), DEFAULT_TIMEOUT);
        let opened = Self::over(sessions, Table::new(None, schema::DEFAULT_TABLE)?, Mode::Create).await;
        opened.map_err(|error| error.during(Operation::Connect))
    }

    async fn over(sessions: Sessions, table: Table, mode: Mode) -> Result<Self> {
        if mode != Mode::ReadOnly {
            sessions.must_be_outside().await.map_err(|fault| failed(fault, Asked::Read))?;
            must_sync(&sessions).await?;
        }
        let table = find(&sessions, table, mode).await?;
        Ok(Self { sessions, table, read_only: mode == Mode::ReadOnly })
    }

    /// The table, in its schema.
    fn writable(&self) -> Result<&Table> {
        if self.read_only {
            let message = "the store was opened to look only; open it with mode=rw or mode=rwc";
            return Err(Error::new(ErrorKind::Denied, message));
        }
        Ok(&self.table)
    }

    async fn try_reserve(&self, request: &Reserve) -> Result<Grant> {
        self.reserve_with(Patience::Full, request).await
    }

    async fn reserve_with(&self, patience: Patience, request: &Reserve) -> Result<Grant> {
        let table = self.writable()?;
        reserve(&Runner::Sessions(&self.sessions, patience), table, request, Fit::UpTo).await
    }

    async fn try_give_back(&self, back: &GiveBack) -> Result<bool> {
        let table = self.writable()?;
        if back.rest.is_empty() {
            return Ok(false);
        }
        let values = |patience| {
            [
                back.name.as_str().to_owned(),
                back.identity.incarnation.to_string(),
                back.identity.epoch.to_string(),
                back.rest.start().to_string(),
                back.rest.end().to_string(),
                patience,
            ]
        };
        Ok(self.write(&table.give_back(), values).await?.is_some())
    }

    async fn try_create(&self, name: &SequenceName, bounds: Bounds) -> Result<SequenceInfo> {
        let table = self.writable()?;
        let info = schema::fresh(name, bounds);
        match insert(&self.runner(), table, &info, None).await? {
            Some(_) => Ok(info),
            None => Err(already_exists(name)),
        }
    }

    async fn try_inspect(&self, name: &SequenceName) -> Result<Option<SequenceInfo>> {
        inspect(&self.runner(), &self.table, name).await
    }

    async fn try_list(&self, page: &Page) -> Result<Listing> {
        let after = page.after.as_ref().map_or("", Cursor::as_str);
        let values = [after.to_owned(), page.prefix.clone(), page.rows().to_string()];
        let rows = self.sessions.run(Asked::Read, &self.table.select_page(), &texts(&values)).await;
        let rows = rows.map_err(|fault| failed(fault, Asked::Read))?;
        let mut listing = Listing::default();
        for row in &rows {
            listing.add(schema::name(row), schema::decode(row));
        }
        let full = rows.len() >= page.limit.max(1);
        listing.next = rows.last().filter(|_| full).map(|row| Cursor::new(schema::name(row)));
        Ok(listing)
    }

    /// Reads, decides, and writes if nothing has changed meanwhile; if something has, begins again.
    async fn try_set(&self, name: &SequenceName, change: Change) -> Result<SequenceInfo> {
        let table = self.writable()?;
        for _ in 0..TRIES {
            let seen = self.try_inspect(name).await?.ok_or_else(|| not_found(name))?;
            let mut after = seen.clone();
            after.apply(&change)?;
            let values = |patience| {
                [
                    name.as_str().to_owned(),
                    seen.identity.incarnation.to_string(),
                    seen.identity.epoch.to_string(),
                    seen.bounds.max().to_string(),
                    schema::reached(&seen).to_string(),
                    after.bounds.max().to_string(),
                    schema::reached(&after).to_string(),
                    after.identity.epoch.to_string(),
                    patience,
                ]
            };
            if self.write(&table.replace(), values).await?.is_some() {
                return Ok(after);
            }
        }
        Err(crowded())
    }

    async fn try_remove(&self, name: &SequenceName) -> Result<bool> {
        let values = |patience| [name.as_str().to_owned(), patience];
        Ok(self.write(&self.writable()?.delete(), values).await?.is_some())
    }

    fn runner(&self) -> Runner<'_> {
        Runner::Sessions(&self.sessions, Patience::Full)
    }

    /// One statement that writes one row or none.
    async fn write<const N: usize>(
        &self,
        sql: &str,
        values: impl Fn(String) -> [String; N],
    ) -> Result<Option<Row>> {
        Ok(self.runner().lock(sql, values).await?.pop())
    }
}

/// The table with its schema, created if need and leave be.
async fn find(sessions: &Sessions, table: Table, mode: Mode) -> Result<Table> {
    let mut created = false;
    for _ in 0..TRIES {
        match place::look(sessions, table.schema(), table.name()).await? {
            Place::There(found) => {
                let table = table.within(&found.schema);
                table.check(&found)?;
                if created {
                    tell_created(sessions, &found.schema, &table).await;
                }
                return Ok(table);
            }
            Place::Nowhere { schema } => {
                created = create(sessions, &table.within(&schema), mode).await?;
            }
        }
    }
    Err(crowded())
}

/// Whether it was by this call: of several that create it at the same time, some hear
/// that it, or its type, exists.
async fn create(sessions: &Sessions, table: &Table, mode: Mode) -> Result<bool> {
    if mode != Mode::Create {
        let message = format!("there is no table {}; {NEVER_MADE}", table.sql());
        return Err(Error::new(ErrorKind::NotFound, message));
    }
    match sessions.batch(&table.ddl()).await {
        Err(fault) if matches!(fault.code(), Some("23505" | "42P07" | "42710")) => Ok(false),
        Err(fault) => Err(failed(fault, Asked::Read)),
        Ok(()) => Ok(true),
    }
}

/// Sequences begin anew in a table that was created: it should be seen where that is.
async fn tell_created(sessions: &Sessions, schema: &str, table: &Table) {
    let name = table.sql();
    match place::elsewhere(sessions, schema, table.name()).await {
        None => tracing::info!(table = %name, "created the table: its sequences begin at their first ids"),
        Some(others) => tracing::warn!(
            table = %name,
            others,
            "created the table: its sequences begin at their first ids; there are tables of its name in other schemas, which \
             the search_path does not lead to"
        ),
    }
}

/// Where statements are run: in transactions of their own, or in the caller's.
enum Runner<'a> {
    Sessions(&'a Sessions, Patience),
    Transaction(&'a tokio_postgres::Transaction<'a>),
}

impl Runner<'_> {
    /// Reads.
    async fn read<const N: usize>(&self, sql: &str, values: &[String; N]) -> Result<Vec<Row>> {
        match self {
            Self::Sessions(sessions, _) => {
                let rows = sessions.run(Asked::Read, sql, &texts(values)).await;
                rows.map_err(|fault| failed(fault, Asked::Read))
            }
            Self::Transaction(transaction) => in_transaction(transaction, sql, values).await,
        }
    }

    /// Writes; the values are told how long locks may be waited for.
    async fn lock<const N: usize>(
        &self,
        sql: &str,
        values: impl Fn(String) -> [String; N],
    ) -> Result<Vec<Row>> {
        match self {
            Self::Sessions(sessions, patience) => {
                let rows = sessions.run_locking(*patience, sql, values).await;
                rows.map_err(|fault| failed(fault, Asked::Write))
            }
            Self::Transaction(transaction) => in_transaction(transaction, sql, &values(String::new())).await,
        }
    }

    fn within(&self) -> Within {
        match self {
            Self::Sessions(..) => Within::Its,
            Self::Transaction(_) => Within::Callers,
        }
    }
}

async fn in_transaction<const N: usize>(
    transaction: &tokio_postgres::Transaction<'_>,
    sql: &str,
    values: &[String; N],
) -> Result<Vec<Row>> {
    let rows = transaction.query_typed(sql, &texts(values)).await;
    rows.map_err(|error| failed(Fault::Driver(error), Asked::InTransaction))
}

/// Whether fewer ids than were asked for are of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fit {
    /// What is left of the sequence.
    UpTo,
    /// All of them or none, and none below this id.
    Exactly { floor: u64 },
}

impl Fit {
    /// Whether this grant may be taken.
    fn check(self, grant: &Grant, request: &Reserve) -> Result<()> {
        let Self::Exactly { floor } = self else { return Ok(()) };
        grant.must_fit(&request.name, request.count, floor, request.ceiling)
    }
}

/// Reserves, in one round trip as a rule: `next` moves on if the row has ids. If no row was
/// changed, it is read, and created with the first range taken if it is missing; a process that
/// loses that race begins again.
async fn reserve(runner: &Runner<'_>, table: &Table, request: &Reserve, fit: Fit) -> Result<Grant> {
    let (exactly, floor) = match fit {
        Fit::UpTo => ("", 0),
        Fit::Exactly { floor } => ("exactly", floor),
    };
    let values = |patience| {
        [
            request.name.as_str().to_owned(),
            request.count.max(1).to_string(),
            request.ceiling.to_string(),
            patience,
            exactly.to_owned(),
            floor.to_string(),
        ]
    };
    let (sql, mut stuck) = (table.reserve(runner.within()), Stuck::default());
    for _ in 0..TRIES {
        if let Some(row) = runner.lock(&sql, values).await?.first() {
            return schema::granted(row, request);
        }
        let seen = inspect(runner, table, &request.name).await?;
        if stuck.is_at(seen.as_ref()) {
            return Err(hidden());
        }
        let missing = seen.is_none();
        let mut info = match seen {
            Some(info) => info,
            None => schema::fresh(&request.name, request.creation()?),
        };
        let grant = info.grant(request.count, request.ceiling)?;
        fit.check(&grant, request)?;
        if missing && insert(runner, table, &info, Some(grant.range.start())).await?.is_some() {
            return Ok(grant);
        }
    }
    Err(crowded())
}

async fn inspect(runner: &Runner<'_>, table: &Table, name: &SequenceName) -> Result<Option<SequenceInfo>> {
    let rows = runner.read(&table.select(), &[name.as_str().to_owned()]).await?;
    rows.first().map(schema::decode).transpose()
}

/// Adds a row; `None` if there is one of its name.
async fn insert(
    runner: &Runner<'_>,
    table: &Table,
    info: &SequenceInfo,
    from: Option<u64>,
) -> Result<Option<Row>> {
    let values = |patience| {
        let [name, next, from, start, max, incarnation, epoch] = schema::values(info, from);
        [name, next, from, start, max, incarnation, epoch, patience]
    };
    Ok(runner.lock(&table.insert(runner.within()), values).await?.pop())
}

/// Others were always faster; nothing was done.
fn crowded() -> Error {
    let message =
        format!("others changed the sequence each of the {TRIES} times that this was tried; try again");
    Error::new(ErrorKind::Unavailable, message)
}

/// A row that is there, that nobody changes, and that no update finds.
#[derive(Default)]
struct Stuck {
    at: Option<SequenceInfo>,
    times: u32,
}

impl Stuck {
    /// Whether the row was seen like this again and again.
    fn is_at(&mut self, seen: Option<&SequenceInfo>) -> bool {
        self.times = if seen.is_some() && seen == self.at.as_ref() { self.times + 1 } else { 0 };
        self.at = seen.cloned();
        self.times >= 10
    }
}

fn hidden() -> Error {
    let message = "this user sees the sequence's row and cannot change it, as row-level security or a rule on the table has it: give \
                   the user a policy for UPDATE too, or BYPASSRLS";
    Error::new(ErrorKind::Denied, message)
}

impl Store for PostgresStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            durability: Durability::Disk,
            retry: RetryCost::Gap,
            batches: true,
            shared: true,
            gives_back: true,
        }
    }

    fn reserve_many<'a>(&'a self, requests: &'a [Reserve]) -> StoreFuture<'a, Vec<Result<Grant>>> {
        Box::pin(async move {
            let outcomes = self.reserve_each(requests).await.into_iter().zip(requests);
            let named = |(outcome, request): (Result<Grant>, &Reserve)| {
                outcome.map_err(|error| error.of(&request.name).during(Operation::Reserve))
            };
            outcomes.map(named).collect()
        })
    }

    calls!(reserve give_back create inspect list set remove);
}

/// Not the options, which hold a password.
impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore").field("table", &self.table.sql()).finish_non_exhaustive()
    }
}
