//! Sequences in a PostgreSQL database, in rows of a table or as `SEQUENCE`s:
//! `postgres://USER:PASSWORD@HOST:PORT/DATABASE?table=NAME&sequences=native&mode=ro|rw|rwc&sslmode=verify-full&timeout=10s`.
//!
//! # What holds
//!
//! - **Durable**: a range is on the server's disk, and at the synchronous standbys where there are some, before an id of
//!   it is handed out. Every statement sets `synchronous_commit` for itself and reads it back, whatever session or pooler it
//!   runs in; a server with `fsync` or `full_page_writes` off is refused, and so is an unlogged table.
//! - **Atomic**: a reserve is one `UPDATE … RETURNING` of one row; of several sequences, one of several rows, locked in the order
//!   of their names.
//! - **Sent once**: no statement is sent again after it may have arrived. A connection that was lost is replaced for the next.
//! - **Gapless**, where it is asked for: see [`InTransaction`].
//!
//! [`NativeSequences`] draws from PostgreSQL's own `SEQUENCE`s instead.
//!
//! What PostgreSQL cannot protect from: a restored backup, a failover to a standby that was not synchronous, and whoever changes a
//! row by hand. See `docs/stores/postgresql.md`.
//!
//! # Cancellation
//!
//! A call that is dropped may have been sent, and is then carried out; the range it reserved is a gap. Its connection is
//! closed.

mod classify;
mod native;
mod options;
mod schema;
mod session;
mod tls;
mod transaction;

use std::fmt;
use std::time::Duration;

use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};

use self::classify::{Asked, Fault, failed};
use self::schema::{Table, Within};
use self::session::{Sessions, text};
use super::calls::calls;
use super::{
    Bounds, Capabilities, Change, Durability, GiveBack, Grant, Reserve, RetryCost, SequenceInfo, Store,
    StoreFuture, already_exists, not_found,
};
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::name::SequenceName;
use crate::sync::Arc;

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
/// Clones share their connections: at most four, of its own, or one that the caller has.
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

    /// Connects to a database, and creates the table where the options say so. Dropping the future can leave the table created.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for options that cannot be; [`Unavailable`](ErrorKind::Unavailable) if the server
    /// cannot be reached; [`Denied`](ErrorKind::Denied) by the server, or for its certificate; [`NotFound`](ErrorKind::NotFound) if
    /// the database is missing, the schema, or the table and it is not to be created; [`Conflict`](ErrorKind::Conflict) if the table is
    /// unlogged or not this crate's, or the server does not sync what it writes.
    pub async fn open_with(options: PostgresOptions) -> Result<Self> {
        options.open().await.map_err(|error| error.during(Operation::Connect))
    }

    /// Over a client that the caller has, in the table `idmill_sequences` of its first schema, which is created where it does not exist.
    /// The client may be used for other things at the same time, but it must not be in a transaction, and nobody replaces it when it is closed.
    ///
    /// # Errors
    /// As [`open_with`](Self::open_with).
    pub async fn new(client: impl Into<Arc<Client>>) -> Result<Self> {
        let sessions = Sessions::given(client.into(), DEFAULT_TIMEOUT, GIVEN);
        let opened = Self::over(sessions, Table::new(None, schema::DEFAULT_TABLE)?, Mode::Create).await;
        opened.map_err(|error| error.during(Operation::Connect))
    }

    async fn over(sessions: Sessions, table: Table, mode: Mode) -> Result<Self> {
        if mode != Mode::ReadOnly {
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
        let table = self.writable()?;
        let runner = Runner::Sessions(&self.sessions);
        reserve(&runner, table, request, Fit::UpTo).await
    }

    /// Those that exist and have ids left, in one statement; `None` for the others.
    async fn try_reserve_all(&self, requests: &[Reserve]) -> Result<Vec<Option<Result<Grant>>>> {
        let table = self.writable()?;
        let names: Vec<_> = requests.iter().map(|request| request.name.as_str()).collect();
        let counts: Vec<_> = requests.iter().map(|request| request.count.max(1).to_string()).collect();
        let ceilings: Vec<_> = requests.iter().map(|request| request.ceiling.to_string()).collect();
        let patience = self.sessions.lock_timeout();
        let parameters = [
            (&names as _, Type::TEXT_ARRAY),
            (&counts as _, Type::TEXT_ARRAY),
            (&ceilings as _, Type::TEXT_ARRAY),
            text(&patience),
        ];
        let rows = self.sessions.run(Asked::Write, &table.reserve_many(), &parameters).await;
        let rows = rows.map_err(|fault| failed(fault, Asked::Write))?;
        Ok(requests.iter().map(|request| of_batch(&rows, request)).collect())
    }

    async fn try_give_back(&self, back: &GiveBack) -> Result<bool> {
        let table = self.writable()?;
        let values = [
            back.name.as_str().to_owned(),
            back.identity.incarnation.to_string(),
            back.identity.epoch.to_string(),
            back.rest.start().to_string(),
            back.rest.end().to_string(),
            self.sessions.lock_timeout(),
        ];
        if back.rest.is_empty() {
            return Ok(false);
        }
        Ok(self.write(&table.give_back(), &values).await?.is_some())
    }

    async fn try_create(&self, name: &SequenceName, bounds: Bounds) -> Result<SequenceInfo> {
        let table = self.writable()?;
        let info = schema::fresh(name, bounds);
        match insert(&Runner::Sessions(&self.sessions), table, &info, None).await? {
            Some(_) => Ok(info),
            None => Err(already_exists(name)),
        }
    }

    async fn try_inspect(&self, name: &SequenceName) -> Result<Option<SequenceInfo>> {
        inspect(&Runner::Sessions(&self.sessions), &self.table, name).await
    }

    async fn try_list(&self) -> Result<Vec<SequenceInfo>> {
        let rows = self.sessions.run(Asked::Read, &self.table.select_all(), &[]).await;
        let rows = rows.map_err(|fault| failed(fault, Asked::Read))?;
        let mut all = rows.iter().map(schema::decode).collect::<Result<Vec<_>>>()?;
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }

    /// Reads, decides, and writes if nothing has changed meanwhile; if something has, begins again.
    async fn try_set(&self, name: &SequenceName, change: Change) -> Result<SequenceInfo> {
        let table = self.writable()?;
        for _ in 0..TRIES {
            let seen = self.try_inspect(name).await?.ok_or_else(|| not_found(name))?;
            let mut after = seen.clone();
            after.apply(&change)?;
            let values = [
                name.as_str().to_owned(),
                seen.identity.incarnation.to_string(),
                seen.identity.epoch.to_string(),
                seen.bounds.max().to_string(),
                schema::reached(&seen).to_string(),
                after.bounds.max().to_string(),
                schema::reached(&after).to_string(),
                after.identity.epoch.to_string(),
                self.sessions.lock_timeout(),
            ];
            if self.write(&table.replace(), &values).await?.is_some() {
                return Ok(after);
            }
        }
        Err(crowded())
    }

    async fn try_remove(&self, name: &SequenceName) -> Result<bool> {
        let values = [name.as_str().to_owned(), self.sessions.lock_timeout()];
        Ok(self.write(&self.writable()?.delete(), &values).await?.is_some())
    }

    /// One statement that writes one row or none.
    async fn write<const N: usize>(&self, sql: &str, values: &[String; N]) -> Result<Option<Row>> {
        let rows = self.sessions.run(Asked::Write, sql, &schema::texts(values)).await;
        let row = rows.map_err(|fault| failed(fault, Asked::Write))?.pop();
        row.as_ref().map_or(Ok(()), schema::check_durable)?;
        Ok(row)
    }
}

/// What a statement of [`Table::reserve_many`] took for this request; `None` if it did not find ids for it.
fn of_batch(rows: &[Row], request: &Reserve) -> Option<Result<Grant>> {
    let named = |row: &&Row| row.try_get::<_, String>(0).is_ok_and(|name| name == request.name.as_str());
    rows.iter().find(named).map(|row| schema::granted(row, request))
}

/// On a client of the caller's, statements follow one another anyway.
const GIVEN: usize = 4;

/// The server must write to the disk what it says it has.
async fn must_sync(sessions: &Sessions) -> Result<()> {
    let sql = "SELECT current_setting('fsync'), current_setting('full_page_writes')";
    let rows = sessions.run(Asked::Read, sql, &[]).await.map_err(|fault| failed(fault, Asked::Read))?;
    let row =
        rows.first().ok_or_else(|| Error::new(ErrorKind::StoreViolation, "the server has no settings"))?;
    for (place, setting) in ["fsync", "full_page_writes"].into_iter().enumerate() {
        let value: &str = row.get(place);
        if value != "on" {
            let message = format!(
                "the server has {setting} = {value}: after a crash it would hand out ids again; set {setting} = on in \
                 postgresql.conf and reload it"
            );
            return Err(Error::new(ErrorKind::Conflict, message));
        }
    }
    Ok(())
}

/// The table with its schema, created if need and leave be.
async fn find(sessions: &Sessions, table: Table, mode: Mode) -> Result<Table> {
    let schema = table.schema().unwrap_or_default().to_owned();
    let look = [schema, table.name().to_owned()];
    for _ in 0..TRIES {
        let rows = sessions.run(Asked::Read, Table::LOOK, &schema::texts(&look)).await;
        let rows = rows.map_err(|fault| failed(fault, Asked::Read))?;
        let Some(row) = rows.first() else {
            let message = match table.schema() {
                Some(schema) => {
                    format!("there is no schema {schema:?}; create it, or name another with schema=NAME")
                }
                None => "the connection has no schema to begin with; name one with schema=NAME".to_owned(),
            };
            return Err(Error::new(ErrorKind::NotFound, message));
        };
        let table = table.clone().within(row.get(0));
        if table.is_there(row)? {
            return Ok(table);
        }
        if mode != Mode::Create {
            let message =
                format!("there is no table {}; open the store with mode=rwc to create it", table.sql());
            return Err(Error::new(ErrorKind::NotFound, message));
        }
        match sessions.batch(&table.ddl()).await {
            // Of several that create it at the same time, some hear that it, or its type, exists.
            Err(fault) if !matches!(fault.code(), Some("23505" | "42P07" | "42710")) => {
                return Err(failed(fault, Asked::Read));
            }
            _ => {}
        }
    }
    Err(crowded())
}

/// Where statements are run: in transactions of their own, or in the caller's.
enum Runner<'a> {
    Sessions(&'a Sessions),
    Transaction(&'a tokio_postgres::Transaction<'a>),
}

impl Runner<'_> {
    async fn run<const N: usize>(&self, asked: Asked, sql: &str, values: &[String; N]) -> Result<Vec<Row>> {
        let parameters = schema::texts(values);
        match self {
            Self::Sessions(sessions) => {
                sessions.run(asked, sql, &parameters).await.map_err(|fault| failed(fault, asked))
            }
            Self::Transaction(transaction) => {
                let rows = transaction.query_typed(sql, &parameters).await;
                rows.map_err(|error| failed(Fault::Driver(error), Asked::InTransaction))
            }
        }
    }

    fn within(&self) -> Within {
        match self {
            Self::Sessions(_) => Within::Its,
            Self::Transaction(_) => Within::Callers,
        }
    }

    fn lock_timeout(&self) -> String {
        match self {
            Self::Sessions(sessions) => sessions.lock_timeout(),
            Self::Transaction(_) => String::new(),
        }
    }
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

/// Reserves in one round trip as a rule: the row is moved on if it has ids. If none was, it is read, and created with the first range taken
/// where it is missing; who loses that race begins again.
async fn reserve(runner: &Runner<'_>, table: &Table, request: &Reserve, fit: Fit) -> Result<Grant> {
    let (exactly, floor) = match fit {
        Fit::UpTo => ("", 0),
        Fit::Exactly { floor } => ("exactly", floor),
    };
    let values = [
        request.name.as_str().to_owned(),
        request.count.max(1).to_string(),
        request.ceiling.to_string(),
        runner.lock_timeout(),
        exactly.to_owned(),
        floor.to_string(),
    ];
    let sql = table.reserve(runner.within());
    for _ in 0..TRIES {
        if let Some(row) = runner.run(Asked::Write, &sql, &values).await?.first() {
            return schema::granted(row, request);
        }
        let seen = inspect(runner, table, &request.name).await?;
        let missing = seen.is_none();
        let mut info = seen.unwrap_or_else(|| schema::fresh(&request.name, request.create));
        let grant = info.grant(request.count, request.ceiling)?;
        fit.check(&grant, request)?;
        if missing && insert(runner, table, &info, Some(grant.range.start())).await?.is_some() {
            return Ok(grant);
        }
    }
    Err(crowded())
}

async fn inspect(runner: &Runner<'_>, table: &Table, name: &SequenceName) -> Result<Option<SequenceInfo>> {
    let rows = runner.run(Asked::Read, &table.select(), &[name.as_str().to_owned()]).await?;
    rows.first().map(schema::decode).transpose()
}

/// Adds a row; `None` if there is one of its name.
async fn insert(
    runner: &Runner<'_>,
    table: &Table,
    info: &SequenceInfo,
    from: Option<u64>,
) -> Result<Option<Row>> {
    let [name, next, from, start, max, incarnation, epoch] = schema::values(info, from);
    let values = [name, next, from, start, max, incarnation, epoch, runner.lock_timeout()];
    let row = runner.run(Asked::Write, &table.insert(runner.within()), &values).await?.pop();
    row.as_ref().map_or(Ok(()), schema::check_durable)?;
    Ok(row)
}

/// Others were always faster; nothing was done.
fn crowded() -> Error {
    let message =
        format!("others changed the sequence each of the {TRIES} times that this was tried; try again");
    Error::new(ErrorKind::Unavailable, message)
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
            let mut seen = std::collections::HashSet::new();
            // A row is locked and moved once in a statement.
            let distinct = requests.iter().all(|request| seen.insert(&request.name));
            let batch =
                if distinct { self.try_reserve_all(requests).await } else { Ok(vec![None; requests.len()]) };
            let mut results = Vec::with_capacity(requests.len());
            for (place, request) in requests.iter().enumerate() {
                let outcome = match &batch {
                    Err(error) => Err(error.clone()),
                    Ok(found) => match &found[place] {
                        Some(outcome) => outcome.clone(),
                        // Missing, exhausted, or not to be had in this way: what is the matter is found out for each.
                        None => self.try_reserve(request).await,
                    },
                };
                results.push(outcome.map_err(|error| error.of(&request.name).during(Operation::Reserve)));
            }
            results
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
