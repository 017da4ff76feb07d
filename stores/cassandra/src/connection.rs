//! Sends statements with explicit consistency levels, and decodes the replies.
//!
//! No session default is used: the driver defaults to LOCAL_SERIAL and retries some errors, and a caller's
//! session may use speculative execution. Every statement sets an execution profile, and every statement on
//! one partition sets both consistency levels.
//!
//! A frozen node accepts requests but never replies, and the driver detects this only after the keepalive
//! timeout. So a slow read is also sent to other nodes, and the first reply is used. The driver never resends
//! a conditional write: after a timeout the outcome of the write is unknown, and the caller reads the row
//! through other nodes.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use idmill::store::Page;
use idmill::{Error, ErrorKind, Result};
use idmill_kit::options::Word;
use idmill_kit::paging;
use idmill_kit::{Asked, Contention, Fill};
use idmill_shared_cache::datacenter::Outcome;
use scylla::client::caching_session::{CachingSession, CachingSessionBuilder};
use scylla::client::execution_profile::{ExecutionProfile, ExecutionProfileHandle};
use scylla::client::session::Session;
use scylla::frame::types::{Consistency, SerialConsistency};
use scylla::policies::load_balancing::{DefaultPolicy, LoadBalancingPolicy};
use scylla::policies::retry::FallthroughRetryPolicy;
use scylla::policies::speculative_execution::{SimpleSpeculativeExecutionPolicy, SpeculativeExecutionPolicy};
use scylla::response::PagingState;
use scylla::response::query_result::QueryResult;
use scylla::statement::unprepared::Statement as Cql;
use scylla::value::Row;

use super::classify::failed;
use super::values::{Cells, Values};

/// Number of attempts to determine the outcome of a write, or to resend it.
pub(super) const LOOKS: u32 = 3;
/// Pauses after each lost race, because concurrent Paxos rounds cancel each other.
pub(super) const CONTENTION: Contention =
    Contention::new().every(1).pauses(Duration::from_millis(4), Duration::from_millis(100));

/// How long nodes may take to receive a keyspace or table that another node created.
pub(super) const AGREEMENT: Duration = Duration::from_secs(10);
/// Maximum number of times that a statement is sent if nodes lack its table, with `PAUSE` in between. A new
/// table usually reaches all nodes quickly.
const TRIES: usize = 4;
const PAUSE: Duration = Duration::from_secs(1);
/// Number of additional nodes to which a slow read is sent.
const OTHERS: usize = 2;

/// How long a node may leave one request unanswered, as a share of the statement's timeout. A healthy
/// Cassandra node reports a write timeout after 2 s, which is less than this share of the default 10 s.
pub(super) fn per_node(timeout: Duration) -> Duration {
    timeout / 4
}

/// The replicas among which a quorum must agree on each write of a partition. A partition must always use the
/// same level: a quorum of one datacenter and a quorum of all replicas need not share a replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Serial {
    /// `serial`: all replicas, in all datacenters (SERIAL).
    #[default]
    Everywhere,
    /// `local`: the replicas of one datacenter (LOCAL_SERIAL). For a keyspace that is used from only one
    /// datacenter.
    Local,
}

impl Word for Serial {
    const WORDS: &'static [(Self, &'static str, &'static str)] = &[
        (Self::Everywhere, "serial", "all replicas"),
        (Self::Local, "local", "the replicas in `dc` (LOCAL_SERIAL), for a cluster used from one datacenter"),
    ];
}

impl Serial {
    /// Returns the serial level of a write, the level of a read that sees every agreed write, and the commit
    /// level. Plain reads at the commit level see acknowledged writes.
    fn levels(self) -> (SerialConsistency, Consistency, Consistency) {
        match self {
            Self::Everywhere => (SerialConsistency::Serial, Consistency::Serial, Consistency::Quorum),
            Self::Local => {
                (SerialConsistency::LocalSerial, Consistency::LocalSerial, Consistency::LocalQuorum)
            }
        }
    }
}

/// Execution profiles by kind of statement.
#[derive(Clone)]
struct Profiles {
    reads: ExecutionProfileHandle,
    writes: ExecutionProfileHandle,
    definitions: ExecutionProfileHandle,
}

/// A session, and the profiles for its statements.
#[derive(Clone)]
pub(super) struct Client {
    session: Arc<CachingSession>,
    anywhere: Profiles,
    here: Profiles,
    datacenter: Option<String>,
}

idmill_kit::debug_fields!(Client | client | datacenter = client.datacenter);

/// A statement on one partition, with its values: a read or a conditional write. It is prepared on first use.
#[derive(Debug)]
pub(super) struct Statement {
    pub(super) cql: String,
    pub(super) values: Values,
    pub(super) serial: Serial,
    pub(super) asked: Asked,
}

impl Client {
    pub(super) fn new(session: Arc<Session>, datacenter: Option<&str>, timeout: Duration) -> Self {
        // The driver applies this policy only to idempotent statements, which are the reads.
        let others =
            SimpleSpeculativeExecutionPolicy { max_retry_count: OTHERS, retry_interval: per_node(timeout) };
        let others: Arc<dyn SpeculativeExecutionPolicy> = Arc::new(others);
        let profiles = |failover| {
            let policy = routing(datacenter, failover);
            let profile = |timeout, others: Option<&Arc<dyn SpeculativeExecutionPolicy>>| {
                let builder = ExecutionProfile::builder().load_balancing_policy(policy.clone());
                let builder = builder.retry_policy(Arc::new(FallthroughRetryPolicy::new()));
                let builder = builder.speculative_execution_policy(others.cloned());
                builder.request_timeout(Some(timeout)).build().into_handle()
            };
            Profiles {
                reads: profile(timeout, Some(&others)),
                writes: profile(per_node(timeout), None),
                definitions: profile(timeout, None),
            }
        };
        Self {
            session: Arc::new(CachingSessionBuilder::new_shared(session).build()),
            anywhere: profiles(true),
            here: profiles(false),
            datacenter: datacenter.map(str::to_owned),
        }
    }

    /// Returns the profiles for a level. LOCAL_SERIAL is local to the coordinator, so the coordinator must
    /// be in the client's datacenter.
    fn profiles(&self, serial: Serial) -> &Profiles {
        match serial {
            Serial::Everywhere => &self.anywhere,
            Serial::Local => &self.here,
        }
    }

    /// Reads at most one row, at the serial level: the result includes every agreed write.
    pub(super) async fn read(&self, statement: &Statement) -> Result<Option<Cells>> {
        first(self.execute(statement).await?, Asked::Read)
    }

    /// Sends a conditional write. After any error except `UnknownOutcome` and `StoreViolation`, the write was
    /// not and will not be applied.
    pub(super) async fn write(&self, statement: &Statement) -> Result<bool> {
        self.swap(statement).await.map(|(applied, _)| applied)
    }

    /// Like `write`. If the write was refused, the current columns of its condition are also returned.
    pub(super) async fn swap(&self, statement: &Statement) -> Result<(bool, Cells)> {
        let cells = first(self.execute(statement).await?, Asked::Write)?;
        cells.and_then(|cells| Some((cells.applied()?, cells))).ok_or_else(|| {
            Error::new(ErrorKind::UnknownOutcome, "the reply to a conditional write has no `[applied]`")
        })
    }

    /// Determines the outcome of a write that failed with the error `unknown`. `look` reads the row. It
    /// returns the outcome, or `None` if the condition of the write still holds, so that the write is
    /// resent. After any error of `look`, the outcome stays unknown. `applied` is the outcome of an applied
    /// write.
    pub(super) async fn settle<R, F: Future<Output = Result<Option<R>>>>(
        &self,
        statement: &Statement,
        (applied, unknown): (R, Error),
        look: impl Fn() -> F,
    ) -> Result<R> {
        let mut contest = CONTENTION.begin();
        for _ in 0..LOOKS {
            let Ok(outcome) = look().await else { break };
            if let Some(outcome) = outcome {
                return Ok(outcome);
            }
            match self.write(statement).await {
                Ok(true) => return Ok(applied),
                // The first attempt or another write was applied, so the retry was refused; or the retry
                // failed.
                _ if contest.lost(None).await.is_err() => break,
                _ => {}
            }
        }
        Err(unknown)
    }

    /// Sends a statement, and resends it if the node lacks the table. The store has found the table before,
    /// so either it was dropped since or this node has not received it yet. A statement that fails in this
    /// way was not executed.
    async fn execute(&self, statement: &Statement) -> Result<QueryResult> {
        let Statement { cql, values, serial, asked } = statement;
        let (reads, profiles) = (*asked == Asked::Read, self.profiles(*serial));
        let mut cql = Cql::new(cql);
        let (agreement, reading, commit) = serial.levels();
        cql.set_consistency(if reads { reading } else { commit });
        cql.set_serial_consistency(Some(agreement));
        cql.set_is_idempotent(reads);
        let profile = if reads { &profiles.reads } else { &profiles.writes };
        cql.set_execution_profile_handle(Some(profile.clone()));
        let mut tries = 1;
        let answer = loop {
            let answer = self.session.execute_unpaged(cql.clone(), values).await;
            match answer.map_err(|error| failed(error, *asked)) {
                Err(error) if error.kind() == ErrorKind::NotFound && tries < TRIES => self.agree().await,
                answer => break answer?,
            }
            tries += 1;
            tokio::time::sleep(PAUSE).await;
        };
        if *serial == Serial::Local {
            self.check_coordinator(&answer)?;
        }
        Ok(answer)
    }

    /// Rejects a reply from another datacenter. The routing policy should select only nodes of this
    /// datacenter. If another datacenter agreed on a write, ids could repeat.
    fn check_coordinator(&self, answer: &QueryResult) -> Result<()> {
        let theirs = answer.request_coordinator().node().datacenter.clone();
        if theirs == self.datacenter {
            return Ok(());
        }
        let (theirs, ours) = (theirs.unwrap_or_default(), self.datacenter.as_deref().unwrap_or_default());
        let message = format!(
            "a statement for datacenter {ours:?} was executed in {theirs:?}; the answer was rejected"
        );
        Err(Error::new(ErrorKind::StoreViolation, message))
    }

    /// Reads a page of a table. Each row includes its last acknowledged write. Rows are returned in ring
    /// order, so names with a common prefix are scattered, and the prefix is filtered here.
    pub(super) async fn scan<P: Fill>(
        &self,
        cql: &str,
        serial: Serial,
        page: &Page,
        decode: impl Fn(&str, &Cells) -> Result<P::Row>,
    ) -> Result<P> {
        let mut statement = Cql::new(cql).with_page_size(paging::limit(page));
        statement.set_consistency(serial.levels().2);
        statement.set_execution_profile_handle(Some(self.profiles(serial).reads.clone()));
        statement.set_is_idempotent(true);
        let from = page.after.as_ref().map(paging::bytes).transpose()?;
        let from = from.map_or_else(PagingState::start, PagingState::new_from_raw_bytes);
        let read = self.session.get_session().query_single_page(statement, (), from).await;
        let (answer, next) = read.map_err(|error| failed(error, Asked::Read))?;
        let mut scanned = P::empty(match next.into_paging_control_flow() {
            ControlFlow::Continue(next) => next.as_bytes_slice().map(|bytes| paging::cursor(bytes)),
            ControlFlow::Break(()) => None,
        });
        let answer = answer.into_rows_result().map_err(unreadable)?;
        for row in answer.rows::<Row>().map_err(unreadable)? {
            let row = row.map_err(unreadable)?;
            let cells = Cells::new(answer.column_specs().iter(), row);
            let name = cells.text("name").unwrap_or_default();
            if name.starts_with(&page.prefix) {
                scanned.add(name, decode(name, &cells));
            }
        }
        Ok(scanned)
    }

    /// Queries the node's own schema tables.
    pub(super) async fn describe(&self, cql: &str, values: Values) -> Result<Option<Cells>> {
        let mut statement = Cql::new(cql);
        statement.set_consistency(Consistency::One);
        statement.set_execution_profile_handle(Some(self.anywhere.reads.clone()));
        statement.set_is_idempotent(true);
        let answer = self.session.get_session().query_unpaged(statement, values).await;
        first(answer.map_err(|error| failed(error, Asked::Read))?, Asked::Read)
    }

    /// Waits until the connected nodes agree on the schema, for at most [`AGREEMENT`]. The result is
    /// ignored: the next attempt shows whether the nodes agree.
    pub(super) async fn agree(&self) {
        let _ = tokio::time::timeout(AGREEMENT, self.session.get_session().await_schema_agreement()).await;
    }

    /// Changes the schema. The driver then waits until the connected nodes have the change, unless another
    /// client has already made it.
    pub(super) async fn define(&self, cql: &str) -> Result<()> {
        let mut statement = Cql::new(cql);
        statement.set_execution_profile_handle(Some(self.anywhere.definitions.clone()));
        // `Asked::Read`: the caller reads the schema afterwards, so the outcome need not be known.
        let answer = self.session.get_session().query_unpaged(statement, ()).await;
        answer.map(drop).map_err(|error| failed(error, Asked::Read))
    }
}

fn routing(datacenter: Option<&str>, failover: bool) -> Arc<dyn LoadBalancingPolicy> {
    let builder = DefaultPolicy::builder().permit_dc_failover(failover);
    match datacenter {
        Some(datacenter) => builder.prefer_datacenter(datacenter.to_owned()).build(),
        None => builder.build(),
    }
}

fn unreadable(error: impl std::error::Error) -> Error {
    Error::new(ErrorKind::Unavailable, error.to_string())
}

fn first(answer: QueryResult, asked: Asked) -> Result<Option<Cells>> {
    let unreadable =
        |error: &dyn std::error::Error| Error::new(asked.doubt(), format!("cannot read the reply: {error}"));
    let rows = answer.into_rows_result().map_err(|error| unreadable(&error))?;
    let row = rows.maybe_first_row::<Row>().map_err(|error| unreadable(&error))?;
    Ok(row.map(|row| Cells::new(rows.column_specs().iter(), row)))
}

/// Returns the outcome of a write, or its error. After any error but `StoreViolation`, the write was not, and
/// will not be, applied.
pub(super) fn outcome(written: Result<bool>) -> Result<Outcome> {
    match written {
        Ok(true) => Ok(Outcome::Applied),
        Ok(false) => Ok(Outcome::Refused),
        Err(error) if error.kind() == ErrorKind::UnknownOutcome => Ok(Outcome::Unknown),
        Err(error) => Err(error),
    }
}
