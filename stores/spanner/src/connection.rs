//! Connects to one database, prepares it, and runs reads and transactions on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable as _};
use gcloud_gax::conn::Environment;
use gcloud_gax::grpc::{Code, Status};
use gcloud_gax::retry::{RetrySetting, TryAs};
use gcloud_googleapis::spanner::admin::database::v1::{CreateDatabaseRequest, UpdateDatabaseDdlRequest};
use gcloud_googleapis::spanner::admin::instance::v1::CreateInstanceRequest;
use gcloud_spanner::admin::AdminClientConfig;
use gcloud_spanner::admin::client::Client as AdminClient;
use gcloud_spanner::client::{
    ChannelConfig, Client, ClientConfig, Error as ClientError, ReadWriteTransactionOption,
};
use gcloud_spanner::session::SessionError;
use gcloud_spanner::statement::Statement;
use gcloud_spanner::transaction::{CallOptions, QueryOptions, Transaction};
use gcloud_spanner::transaction_rw::{CommitOptions, ReadWriteTransaction};
use idmill::store::SequenceInfo;
use idmill::{Error, ErrorKind, Result, SequenceName};
use idmill_kit::Mode;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::aborted::Abort;
use super::classify::{
    client_failed, commit_failed, failed, is_missing_database, is_missing_table, is_schema_busy,
    no_connection, no_session, not_created, status_of,
};
use super::options::Checked;
use super::schema::{Found, Mutations, Stored, Table};

/// Timeout of one request, which detects an unresponsive server.
const REQUEST: Duration = Duration::from_secs(10);
/// Maximum time for which an aborted transaction or a rejected schema change is retried.
const ABORTED: Duration = Duration::from_secs(30);
/// The tag of idmill's transactions in Spanner's lock and transaction statistics.
const TAG: &str = "idmill";

/// A client and the table of sequences.
#[derive(Clone)]
pub(super) struct Database {
    pub(super) client: Client,
    pub(super) table: Table,
    /// The options, if tables may be created.
    creates: Option<Arc<Checked>>,
}

idmill_kit::debug_fields!(Database | database | table = database.table);

impl Database {
    /// Connects, and creates a missing instance, database or table if the options allow it.
    pub(super) async fn open(options: Checked) -> Result<Self> {
        let client = match connect(&options).await {
            Err(error) if options.may_create_database() && is(&error, is_missing_database) => {
                create_database(&options).await?;
                connect(&options).await?
            }
            outcome => outcome?,
        };
        let table = options.table.clone();
        let options = Arc::new(options);
        let creates = (options.mode == Mode::Create).then(|| options.clone());
        let database = Self { client, table, creates };
        match database.check_table().await {
            Err(error) if options.mode == Mode::Create && is(&error, is_missing_table) => {
                create_table(&options, options.table.ddl()).await?;
                database.check_table().await?;
            }
            outcome => outcome?,
        }
        Ok(database)
    }

    /// Uses the caller's client, and checks that the table exists.
    pub(super) async fn with_client(client: Client, table: Table) -> Result<Self> {
        let database = Self { client, table, creates: None };
        database.check_table().await?;
        Ok(database)
    }

    async fn check_table(&self) -> Result<()> {
        self.select(self.table.select_none()).await.map(|_| ())
    }

    /// Reads the latest committed row, outside any transaction and without locks.
    pub(super) async fn select(&self, statement: Statement) -> Result<Option<SequenceInfo>> {
        let mut single = self.client.single().await.map_err(client_failed)?;
        Ok(self.table.stored(&read(&mut single, statement).await?)?.info)
    }

    /// Reads rows and writes the result of `decide`, in a separate transaction. Retries while Spanner
    /// aborts the transaction, since an aborted transaction was certainly not applied.
    pub(super) async fn run<R: Send + 'static>(
        &self,
        select: Statement,
        decide: impl Decide<R>,
    ) -> Result<R> {
        while_it_passes(Abort::is_abort, ABORTED, || self.attempt(select.clone(), decide.clone())).await
    }

    /// Creates another table if the options allow it. Returns `false` if the options do not allow it.
    pub(super) async fn create_also(&self, ddl: String) -> Result<bool> {
        let Some(options) = &self.creates else { return Ok(false) };
        create_table(options, ddl).await.map(|()| true)
    }

    /// Runs the transaction once, in a task, so that a dropped caller leaves no locks behind. If the caller
    /// is dropped before COMMIT is sent, the task rolls the transaction back.
    async fn attempt<R: Send + 'static>(&self, select: Statement, decide: impl Decide<R>) -> Result<R> {
        let (sender, receiver) = oneshot::channel();
        let database = self.clone();
        let runtime = tokio::runtime::Handle::try_current().map_err(|error| {
            Error::new(ErrorKind::Unsupported, "the Spanner store needs a tokio runtime; call it within one")
                .because(error)
        })?;
        runtime.spawn(async move {
            let sender = Arc::new(sender);
            let outcome = database.transact(select, decide, sender.clone()).await;
            // Succeeds, because the driver has dropped the closure that held the other `Arc`.
            if let Some(sender) = Arc::into_inner(sender) {
                let _ = sender.send(outcome);
            }
        });
        receiver.await.unwrap_or_else(|_| {
            let message = "the task of the transaction ended early; its commit may have been applied";
            Err(Error::new(ErrorKind::UnknownOutcome, message))
        })
    }

    async fn transact<R: Send + 'static>(
        &self,
        select: Statement,
        decide: impl Decide<R>,
        caller: Arc<oneshot::Sender<Result<R>>>,
    ) -> Result<R> {
        let at_commit = Arc::new(AtomicBool::new(false));
        let mark = at_commit.clone();
        let outcome = self.client.read_write_transaction_with_option(
            move |tx| {
                let (select, decide) = (select.clone(), decide.clone());
                let (caller, mark) = (caller.clone(), mark.clone());
                Box::pin(async move {
                    let (answer, mutations) = decide(read(tx, select).await?)?;
                    tx.buffer_write(mutations);
                    if caller.is_closed() {
                        return Err(NotCommitted::Ours(Error::new(
                            ErrorKind::Unavailable,
                            "the caller stopped waiting",
                        )));
                    }
                    // The driver sends COMMIT next. Relaxed ordering suffices, because only this task reads
                    // the flag.
                    mark.store(true, Ordering::Relaxed);
                    Ok(answer)
                })
            },
            once(),
        );
        outcome.await.map(|(_, result)| result).map_err(|failure| match failure {
            NotCommitted::Ours(error) => error,
            NotCommitted::Session(error) => no_session(error),
            // Relaxed ordering suffices, because the same task stored the flag.
            NotCommitted::Driver(status) if at_commit.load(Ordering::Relaxed) => commit_failed(*status),
            NotCommitted::Driver(status) => failed(*status),
        })
    }
}

/// A function from the rows that were read to the result of the transaction and the mutations to commit. The
/// function is called again for each attempt of the transaction.
pub(super) trait Decide<R>:
    Fn(Found) -> Result<(R, Mutations)> + Clone + Send + Sync + 'static
{
}

impl<R, F: Fn(Found) -> Result<(R, Mutations)> + Clone + Send + Sync + 'static> Decide<R> for F {}

/// The reason why a transaction of the store did not commit.
#[derive(Debug)]
pub(super) enum NotCommitted {
    Ours(Error),
    Driver(Box<Status>),
    Session(SessionError),
}

/// Never returns a status: otherwise the driver would retry the transaction up to five times without jitter,
/// and the store could not detect whether the last attempt was aborted.
impl TryAs<Status> for NotCommitted {
    fn try_as(&self) -> Option<&Status> {
        None
    }
}

impl From<Error> for NotCommitted {
    fn from(error: Error) -> Self {
        Self::Ours(error)
    }
}

impl From<Status> for NotCommitted {
    fn from(status: Status) -> Self {
        Self::Driver(Box::new(status))
    }
}

impl From<SessionError> for NotCommitted {
    fn from(error: SessionError) -> Self {
        Self::Session(error)
    }
}

/// Reads a sequence inside a transaction, and locks its row.
pub(super) async fn read_for_update(
    tx: &mut ReadWriteTransaction,
    table: &Table,
    name: &SequenceName,
) -> Result<Stored> {
    table.stored(&read(tx, table.select_for_update(name)).await?)
}

/// Runs a query. Returns its rows and their columns.
pub(super) async fn read(tx: &mut Transaction, statement: Statement) -> Result<Found> {
    let mut rows = tx.query_with_option(statement, query_once()).await.map_err(failed)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().await.map_err(failed)? {
        found.push(row);
    }
    // The columns are known only after the first part of the reply has been read.
    Ok((rows.columns_metadata().to_vec(), found))
}

/// Retries, with pauses, while the error satisfies `passes`. After `limit`, returns the error.
pub(super) async fn while_it_passes<T, E, F: Future<Output = Result<T, E>>>(
    passes: impl Fn(&E) -> bool,
    limit: Duration,
    attempt: impl FnMut() -> F,
) -> Result<T, E> {
    // From 5 ms to 500 ms, doubling, plus up to the same time at random. Jitter keeps two transactions that
    // collided from colliding again.
    let pauses = ExponentialBuilder::new()
        .with_min_delay(Duration::from_millis(5))
        .with_max_delay(Duration::from_millis(500))
        .with_jitter()
        .without_max_times();
    let begun = Instant::now();
    let again = |error: &E| passes(error) && begun.elapsed() < limit;
    attempt.retry(pauses).sleep(tokio::time::sleep).when(again).await
}

/// Returns options that turn off the driver's retries. Otherwise the driver would resend a COMMIT without a
/// reply up to twenty times, and take minutes to report an unreachable server.
fn no_retry() -> CallOptions {
    let retry = RetrySetting { take: 0, codes: Vec::new(), ..RetrySetting::default() };
    CallOptions { priority: None, retry: Some(retry) }
}

fn once() -> ReadWriteTransactionOption {
    ReadWriteTransactionOption {
        begin_options: no_retry(),
        commit_options: commit_once(),
        transaction_tag: Some(TAG.to_owned()),
    }
}

pub(super) fn commit_once() -> CommitOptions {
    CommitOptions { call_options: no_retry(), ..CommitOptions::default() }
}

pub(super) fn query_once() -> QueryOptions {
    QueryOptions { call_options: no_retry(), enable_resume: false, ..QueryOptions::default() }
}

pub(super) fn is(error: &Error, what: fn(&Status) -> bool) -> bool {
    status_of(error).is_some_and(what)
}

impl Checked {
    /// Returns whether a missing instance and database may be created. Only on emulators, which start empty
    /// and cost nothing.
    fn may_create_database(&self) -> bool {
        self.mode == Mode::Create && self.emulator.is_some()
    }

    /// Returns the name of the server for connection errors.
    fn server(&self) -> &str {
        self.emulator.as_deref().unwrap_or("spanner.googleapis.com")
    }
}

async fn connect(options: &Checked) -> Result<Client> {
    let mut config = ClientConfig::default();
    let channels = ChannelConfig { connect_timeout: REQUEST, timeout: REQUEST, ..ChannelConfig::default() };
    config.channel_config = channels;
    // A refill uses one session at a time, and the pool grows on demand.
    config.session_config.min_opened = config.channel_config.num_channels;
    if let Some(address) = &options.emulator {
        config.environment = Environment::Emulator(address.clone());
    } else {
        config = config.with_auth().await.map_err(no_credentials)?;
    }
    // The client opens a session here, which fails if the emulator is still starting or the database is
    // missing.
    let connecting = tokio::time::timeout(REQUEST, Client::new(options.database.path(), config));
    let silent = |_| {
        let message = format!("Spanner did not answer within {REQUEST:?} at {}", options.server());
        Error::new(ErrorKind::Unavailable, message)
    };
    connecting.await.map_err(silent)?.map_err(|error| match error {
        ClientError::Connection(error) => no_connection(error, options.server()),
        error => client_failed(error),
    })
}

async fn admin(options: &Checked) -> Result<AdminClient> {
    let mut config = AdminClientConfig::default();
    if let Some(address) = &options.emulator {
        config.environment = Environment::Emulator(address.clone());
    } else {
        config = config.with_auth().await.map_err(no_credentials)?;
    }
    AdminClient::new(config).await.map_err(|error| no_connection(error, options.server()))
}

fn no_credentials(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    let remedy = "set GOOGLE_APPLICATION_CREDENTIALS, run `gcloud auth application-default login`, or add \
                  `?emulator=HOST:PORT`";
    Error::new(ErrorKind::Denied, format!("no Google credentials: {error}; {remedy}")).because(error)
}

/// Creates a table, with retries: during a concurrent schema change, the emulator rejects the request,
/// whereas Spanner lets it wait.
async fn create_table(options: &Checked, ddl: String) -> Result<()> {
    let admin = admin(options).await?;
    let defining = while_it_passes(is_schema_busy, ABORTED, || define_table(&admin, options, ddl.clone()));
    defining.await.map_err(not_created)
}

async fn define_table(admin: &AdminClient, options: &Checked, ddl: String) -> Result<(), Status> {
    let request = UpdateDatabaseDdlRequest {
        database: options.database.path(),
        statements: vec![ddl],
        ..UpdateDatabaseDdlRequest::default()
    };
    let mut creating = admin.database().update_database_ddl(request, None).await?;
    creating.wait(None).await.map(drop)
}

/// Creates the instance and the database. Skips objects that another process has created.
async fn create_database(options: &Checked) -> Result<()> {
    let admin = admin(options).await?;
    let name = &options.database;
    let (parent, instance_id) = (name.project_path(), name.instance.clone());
    let request = CreateInstanceRequest { parent, instance_id, instance: None };
    let mut instance = created(admin.instance().create_instance(request, None).await)?;
    if let Some(instance) = &mut instance {
        created(instance.wait(None).await)?;
    }
    let request = CreateDatabaseRequest {
        parent: name.instance_path(),
        create_statement: format!("CREATE DATABASE `{}`", name.id),
        ..CreateDatabaseRequest::default()
    };
    let mut database = created(admin.database().create_database(request, None).await)?;
    if let Some(database) = &mut database {
        created(database.wait(None).await)?;
    }
    Ok(())
}

/// Returns the created object, or `None` if the object exists already.
fn created<T>(outcome: Result<T, Status>) -> Result<Option<T>> {
    match outcome {
        Ok(created) => Ok(Some(created)),
        Err(status) if status.code() == Code::AlreadyExists => Ok(None),
        Err(status) => Err(not_created(status)),
    }
}

#[cfg(test)]
mod tests {
    use tonic::transport::{ClientTlsConfig, Endpoint};

    /// If two cryptography providers are compiled in, rustls chooses neither. With all features on, other
    /// stores add a second provider.
    #[test]
    fn tls_setup_works_with_two_crypto_providers() {
        let endpoint = Endpoint::from_static("https://spanner.googleapis.com");
        endpoint.tls_config(ClientTlsConfig::new().with_webpki_roots()).unwrap();
    }
}
