//! Connections: opens them, and runs statements on them.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use idmill::{Error, ErrorKind};
use idmill_sql::postgres::{CONNECTIONS, Driver, WAITING, exhausted, failed, halfway};
use idmill_sql::{Asked, Fault, Row, Statement};
use sqlx::pool::PoolConnection;
use sqlx::postgres::PgPoolOptions;
use sqlx::{ConnectOptions, Connection, Error as SqlxError, PgConnection, PgPool, Postgres};
use tokio::time::{Instant, timeout_at};

use super::convert::{fault_of, row_of, unconnected};
use super::notices::listening;
use super::options::PostgresOptions;
use super::text::inlined;
use crate::version::postgres::rows;

/// The idle time after which a connection is pinged before use. The driver does not detect that the server
/// has closed a connection, and a write on it would have an unknown outcome.
const FRESH: Duration = Duration::from_secs(1);

/// Runs statements. Clones share the sessions.
pub(super) type Sessions = idmill_sql::postgres::Sessions<Source>;

/// The source of connections: the caller's pool, or a pool that opens them in the same way.
pub(super) struct Source {
    pool: PgPool,
    /// Opens the store's own connections.
    maker: Option<PgPool>,
    timeout: Duration,
    /// Whether the store's own connections close with the pool.
    closes_with_pool: bool,
}

/// A connection in use. Closed when it is dropped.
pub(super) enum Session {
    Own(PgConnection),
    Shared(Borrowed),
}

/// A connection of the caller's pool. If it is dropped, it does not return to the pool: the pool would wait
/// for the rest of an answer, possibly forever.
pub(super) struct Borrowed(Option<PoolConnection<Postgres>>);

pub(super) fn sessions(pool: &PgPool, options: &PostgresOptions) -> Sessions {
    let (timeout, closes_with_pool) = (options.timeout, options.closes_with_pool);
    let maker = (!options.shares_pool).then(|| maker(pool, timeout / 2));
    let ends = maker.is_some() && closes_with_pool;
    let source = Source { pool: pool.clone(), maker, timeout, closes_with_pool };
    let sessions = Sessions::new(source, timeout, options.keeps);
    if ends {
        sessions.end_with(pool.close_event());
    }
    sessions
}

impl Driver for Source {
    type Session = Session;

    fn owns(&self) -> bool {
        self.maker.is_some()
    }

    async fn open(&self, deadline: Instant) -> Result<Session, Fault> {
        match &self.maker {
            None => self.borrow(&self.pool, deadline).await,
            Some(_) if self.has_closed() => Err(closed()),
            Some(maker) => self.connect(&self.pool, maker, deadline).await.map(Session::Own),
        }
    }

    async fn is_good(&self, session: &mut Session, idle: Duration, deadline: Instant) -> bool {
        if self.has_closed() || idle < FRESH {
            return !self.has_closed();
        }
        let timeout = halfway(halfway(deadline)).min(Instant::now() + FRESH);
        matches!(timeout_at(timeout, session.ping()).await, Ok(Ok(())))
    }

    async fn ask(
        &self,
        session: &mut Session,
        statement: &Statement<'_>,
        lock_timeout: &str,
        told: &mut Vec<Row>,
    ) -> Result<Option<String>, Fault> {
        let sql = inlined(statement, lock_timeout)?;
        let (answer, warning) = listening(rows(session, &sql)).await;
        told.extend(answer.map_err(fault_of)?.iter().map(row_of));
        Ok(warning)
    }

    fn give_back(&self, session: Session) -> Option<Session> {
        match session {
            Session::Own(_) if self.has_closed() => None,
            Session::Own(_) => Some(session),
            Session::Shared(mut borrowed) => {
                drop(borrowed.0.take());
                None
            }
        }
    }
}

impl Source {
    /// Whether the store's own connections were closed with the pool.
    fn has_closed(&self) -> bool {
        self.maker.is_some() && self.closes_with_pool && self.pool.is_closed()
    }

    async fn connect(&self, pool: &PgPool, maker: &PgPool, deadline: Instant) -> Result<PgConnection, Fault> {
        // The options may have changed, for example a short-lived password.
        maker.set_connect_options((*pool.connect_options()).clone());
        match timeout_at(halfway(deadline), maker.acquire()).await {
            Ok(Ok(connection)) => Ok(connection.detach()),
            Ok(Err(SqlxError::PoolTimedOut)) | Err(_) => {
                Err(refused(pool, self.why_not(pool, deadline).await))
            }
            Ok(Err(error)) => Err(refused(pool, unconnected(error))),
        }
    }

    /// Connects once without the pool to find the reason: the pool retries, and then fails without a reason.
    async fn why_not(&self, pool: &PgPool, deadline: Instant) -> Fault {
        match timeout_at(halfway(deadline), pool.connect_options().connect()).await {
            Ok(Err(error)) => unconnected(error),
            _ => unavailable(format!(
                "no connection within {:?} (half the timeout); if the pool has an `after_connect`, check \
                 the log for its errors",
                self.timeout / 2
            )),
        }
    }

    async fn borrow(&self, pool: &PgPool, deadline: Instant) -> Result<Session, Fault> {
        let timeout = self.timeout / 2;
        let most = pool.options().get_max_connections();
        match timeout_at(halfway(deadline), pool.acquire()).await {
            Ok(Ok(connection)) => Ok(Session::Shared(Borrowed(Some(connection)))),
            Ok(Err(SqlxError::PoolTimedOut)) | Err(_) if pool.size() >= most && pool.num_idle() == 0 => {
                let timeout = timeout.min(pool.options().get_acquire_timeout());
                let most = usize::try_from(most).unwrap_or(usize::MAX);
                Err(exhausted(most, timeout, "no `share_pool`", "max_connections"))
            }
            Ok(Err(SqlxError::PoolTimedOut)) | Err(_) => {
                Err(refused(pool, self.why_not(pool, deadline).await))
            }
            Ok(Err(SqlxError::PoolClosed)) => Err(closed()),
            Ok(Err(error)) => Err(refused(pool, unconnected(error))),
        }
    }
}

fn closed() -> Fault {
    let message = "the pool of this store is closed; open a store with another pool";
    Fault::Refused(Error::new(ErrorKind::Closed, message))
}

fn unavailable(message: String) -> Fault {
    Fault::Refused(Error::new(ErrorKind::Unavailable, message))
}

fn refused(pool: &PgPool, fault: Fault) -> Fault {
    let options = pool.connect_options();
    let place = match options.get_socket() {
        Some(path) => path.display().to_string(),
        None => format!("{}:{}", options.get_host(), options.get_port()),
    };
    let error = failed(fault, Asked::Connect);
    Fault::Refused(Error::new(error.kind(), format!("cannot connect to {place}: {error}")).because(error))
}

/// A pool that opens connections like the caller's, with its `after_connect`, and keeps none of
/// them.
///
/// The caller's options may name a parent pool, as those of `#[sqlx::test]` do: a pool takes the right to
/// open a connection from its parent, and keeps it. The parent is replaced by a pool of this store, since
/// `PoolOptions` cannot remove it. Otherwise the stores of many tests would take all connections of the
/// parent.
fn maker(pool: &PgPool, timeout: Duration) -> PgPool {
    let options = pool.options().clone();
    let most =
        options.get_max_connections().clamp(1, u32::try_from(CONNECTIONS + WAITING).unwrap_or(u32::MAX));
    let maker = |options: PgPoolOptions| {
        let options = options.max_connections(most).min_connections(0).acquire_timeout(timeout);
        let options = options.idle_timeout(None).max_lifetime(None);
        options.connect_lazy_with((*pool.connect_options()).clone())
    };
    let parent = maker(PgPoolOptions::new());
    // A pool is as fair as its parent.
    maker(options.__fair(true).parent(parent))
}

impl Deref for Session {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        match self {
            Self::Own(connection) => connection,
            Self::Shared(borrowed) => {
                borrowed.0.as_ref().expect("only `give_back` and `drop` take the connection")
            }
        }
    }
}

impl DerefMut for Session {
    fn deref_mut(&mut self) -> &mut PgConnection {
        match self {
            Self::Own(connection) => connection,
            Self::Shared(borrowed) => {
                borrowed.0.as_mut().expect("only `give_back` and `drop` take the connection")
            }
        }
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        drop(self.0.take().map(PoolConnection::detach));
    }
}
