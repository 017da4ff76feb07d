//! Statements, each with its consistency set, and their answers.
//!
//! Nothing is left to the session's own settings: its driver defaults to LOCAL_SERIAL, retries some errors by itself
//! and may speculate. Every statement carries a profile that does neither, and both of its consistencies.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use scylla::client::execution_profile::{ExecutionProfile, ExecutionProfileHandle};
use scylla::client::session::Session;
use scylla::frame::types::{Consistency, SerialConsistency};
use scylla::policies::load_balancing::{DefaultPolicy, LoadBalancingPolicy};
use scylla::policies::retry::FallthroughRetryPolicy;
use scylla::response::query_result::QueryResult;
use scylla::statement::prepared::PreparedStatement;
use scylla::statement::unprepared::Statement as Cql;
use scylla::value::Row;

use super::classify::{Effect, failed, prepare_failed};
use super::values::{Cells, Values};
use crate::error::{Error, ErrorKind, Result};
use crate::tier::datacenter::Outcome;

/// How long nodes may take to hear of a table that another made.
const AGREEMENT: Duration = Duration::from_secs(10);

/// Among whom a partition's writes are agreed on. For one partition it is always the same: a quorum of one datacenter and
/// a quorum of all need not have a replica in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Serial {
    /// `serial`: all replicas, in whichever datacenter they are (SERIAL).
    #[default]
    Everywhere,
    /// `local`: the replicas of one datacenter (LOCAL_SERIAL). For a keyspace that is used from one datacenter alone.
    Local,
}

impl Serial {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Everywhere => "serial",
            Self::Local => "local",
        }
    }

    fn agreement(self) -> SerialConsistency {
        match self {
            Self::Everywhere => SerialConsistency::Serial,
            Self::Local => SerialConsistency::LocalSerial,
        }
    }

    fn reading(self) -> Consistency {
        match self {
            Self::Everywhere => Consistency::Serial,
            Self::Local => Consistency::LocalSerial,
        }
    }

    /// What a write waits for once it was agreed on, so that plain reads at the same level see it.
    pub(super) fn commit(self) -> Consistency {
        match self {
            Self::Everywhere => Consistency::Quorum,
            Self::Local => Consistency::LocalQuorum,
        }
    }
}

/// A session, and how its statements are sent.
#[derive(Clone)]
pub(super) struct Client {
    session: Arc<Session>,
    anywhere: ExecutionProfileHandle,
    here: ExecutionProfileHandle,
    datacenter: Option<String>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("datacenter", &self.datacenter).finish_non_exhaustive()
    }
}

/// A prepared statement with everything that it is sent with.
#[derive(Clone, Debug)]
pub(super) struct Statement {
    prepared: PreparedStatement,
    serial: Serial,
    effect: Effect,
}

impl Client {
    pub(super) fn new(session: Arc<Session>, datacenter: Option<&str>, timeout: Duration) -> Self {
        let profile = |failover| {
            let policy = routing(datacenter, failover);
            let builder = ExecutionProfile::builder().load_balancing_policy(policy);
            let builder = builder.retry_policy(Arc::new(FallthroughRetryPolicy::new()));
            builder.speculative_execution_policy(None).request_timeout(Some(timeout)).build().into_handle()
        };
        Self {
            session,
            anywhere: profile(true),
            here: profile(false),
            datacenter: datacenter.map(str::to_owned),
        }
    }

    /// Prepares a statement on one partition: a read, or a conditional write.
    pub(super) async fn prepare(&self, cql: String, serial: Serial, effect: Effect) -> Result<Statement> {
        let mut prepared = match self.session.prepare(cql.as_str()).await.map_err(prepare_failed) {
            Err(error) if error.kind() == ErrorKind::NotFound => self.prepare_later(&cql, error).await?,
            outcome => outcome?,
        };
        prepared.set_consistency(match effect {
            Effect::Read => serial.reading(),
            Effect::Write => serial.commit(),
        });
        prepared.set_serial_consistency(Some(serial.agreement()));
        prepared.set_is_idempotent(false);
        prepared.set_execution_profile_handle(Some(self.profile(serial).clone()));
        Ok(Statement { prepared, serial, effect })
    }

    /// The table was seen before, at another node: this one has not heard of it yet.
    async fn prepare_later(&self, cql: &str, error: Error) -> Result<PreparedStatement> {
        // Whether they agree in time shows in the next try.
        let _ = tokio::time::timeout(AGREEMENT, self.session.await_schema_agreement()).await;
        self.session.prepare(cql).await.map_err(|_| {
            Error::new(ErrorKind::Unavailable, format!("not all nodes know the tables yet: {error}"))
                .because(error)
        })
    }

    /// LOCAL_SERIAL is local to the node that coordinates: none of another datacenter may.
    fn profile(&self, serial: Serial) -> &ExecutionProfileHandle {
        match serial {
            Serial::Everywhere => &self.anywhere,
            Serial::Local => &self.here,
        }
    }

    /// Reads at most one row, in agreement with everybody who writes it.
    pub(super) async fn read(&self, statement: &Statement, values: Values) -> Result<Option<Cells>> {
        let answer = self.execute(statement, values).await?;
        first(answer, Effect::Read)
    }

    /// Sends a conditional write. An error other than an unknown outcome means that it was and will not be applied.
    pub(super) async fn write(&self, statement: &Statement, values: Values) -> Result<bool> {
        let answer = self.execute(statement, values).await?;
        let applied = first(answer, Effect::Write)?.and_then(|cells| cells.applied());
        applied.ok_or_else(|| {
            Error::new(ErrorKind::UnknownOutcome, "a conditional write was answered without `[applied]`")
        })
    }

    async fn execute(&self, statement: &Statement, values: Values) -> Result<QueryResult> {
        let answer = self.session.execute_unpaged(&statement.prepared, values).await;
        let answer = answer.map_err(|error| failed(error, statement.effect))?;
        if statement.serial == Serial::Local {
            self.check_coordinator(&answer)?;
        }
        Ok(answer)
    }

    /// That routing kept its word is worth a look: what another datacenter agreed on among itself would repeat ids.
    fn check_coordinator(&self, answer: &QueryResult) -> Result<()> {
        let theirs = answer.request_coordinator().node().datacenter.clone();
        if theirs == self.datacenter {
            return Ok(());
        }
        let (theirs, ours) = (theirs.unwrap_or_default(), self.datacenter.as_deref().unwrap_or_default());
        let message = format!(
            "a statement for datacenter {ours:?} was carried out in {theirs:?}; nothing of it is used"
        );
        Err(Error::new(ErrorKind::StoreViolation, message))
    }

    /// Reads many rows, as new as the last acknowledged write of each.
    pub(super) async fn scan(&self, cql: &str, serial: Serial, values: Values) -> Result<Vec<Cells>> {
        use futures_util::TryStreamExt as _;
        let mut statement = Cql::new(cql);
        statement.set_consistency(serial.commit());
        statement.set_execution_profile_handle(Some(self.profile(serial).clone()));
        let unreadable =
            |error: &dyn std::error::Error| Error::new(ErrorKind::Unavailable, format!("{error}"));
        let pager = self.session.query_iter(statement, values).await.map_err(|error| unreadable(&error))?;
        let columns: Vec<_> = pager.column_specs().iter().map(|column| column.name().to_owned()).collect();
        let rows = pager.rows_stream::<Row>().map_err(|error| unreadable(&error))?;
        let rows = rows.map_ok(|row| Cells::named(&columns, row)).map_err(|error| unreadable(&error));
        rows.try_collect().await
    }

    /// Looks into the node's own description of the schema.
    pub(super) async fn describe(&self, cql: &str, values: Values) -> Result<Option<Cells>> {
        let mut statement = Cql::new(cql);
        statement.set_consistency(Consistency::One);
        statement.set_execution_profile_handle(Some(self.anywhere.clone()));
        let answer = self.session.query_unpaged(statement, values).await;
        first(answer.map_err(|error| failed(error, Effect::Read))?, Effect::Read)
    }

    /// Changes the schema, and waits until all nodes that can be reached have it.
    pub(super) async fn define(&self, cql: &str) -> Result<()> {
        let mut statement = Cql::new(cql);
        statement.set_execution_profile_handle(Some(self.anywhere.clone()));
        // Whatever came of it, the schema is looked at again.
        let answer = self.session.query_unpaged(statement, ()).await;
        answer.map(drop).map_err(|error| failed(error, Effect::Read))
    }
}

fn routing(datacenter: Option<&str>, failover: bool) -> Arc<dyn LoadBalancingPolicy> {
    let builder = DefaultPolicy::builder().permit_dc_failover(failover);
    match datacenter {
        Some(datacenter) => builder.prefer_datacenter(datacenter.to_owned()).build(),
        None => builder.build(),
    }
}

fn first(answer: QueryResult, effect: Effect) -> Result<Option<Cells>> {
    let kind = match effect {
        Effect::Read => ErrorKind::Unavailable,
        Effect::Write => ErrorKind::UnknownOutcome,
    };
    let unreadable =
        |error: &dyn std::error::Error| Error::new(kind, format!("the answer cannot be read: {error}"));
    let rows = answer.into_rows_result().map_err(|error| unreadable(&error))?;
    let row = rows.maybe_first_row::<Row>().map_err(|error| unreadable(&error))?;
    Ok(row.map(|row| Cells::new(rows.column_specs().iter(), row)))
}

/// What became of a write; an error where it certainly was not applied, and will not be by itself.
pub(super) fn outcome(written: Result<bool>) -> Result<Outcome> {
    match written {
        Ok(true) => Ok(Outcome::Applied),
        Ok(false) => Ok(Outcome::Refused),
        Err(error) if error.kind() == ErrorKind::UnknownOutcome => Ok(Outcome::Unknown),
        Err(error) => Err(error),
    }
}
