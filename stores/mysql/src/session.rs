//! Runs statements with the driver, and checks that they committed.

use idmill::{Error, ErrorKind, Result};
use idmill_sql::mysql::whole;
use idmill_sql::{Answer, Executor, Fault, Statement};
use mysql_async::consts::StatusFlags;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error as Mysql, Params, Row, Transaction};

use super::convert::{self, Carried, fault, parameter};

/// `ER_UNKNOWN_STMT_HANDLER`, `ER_NEED_REPREPARE`: the statement was not run.
const IS_NOT_KEPT: [u16; 2] = [1243, 1615];

/// Runs a statement. If it has parameters and the connection keeps statements, it is prepared.
pub(super) async fn run(
    connection: &mut Conn,
    statement: Statement<'_>,
    keeps: bool,
) -> Result<Answer, Fault> {
    if !keeps || statement.values.is_empty() {
        return Bare(connection).execute(statement).await;
    }
    let prepared = match connection.prep(&*statement.sql).await {
        Ok(prepared) => prepared,
        // The statement was not prepared, so it was not run: for example, a proxy does not support prepared
        // statements, or the server has reached its limit of them. Run it unprepared.
        Err(Mysql::Server(_)) => return Bare(connection).execute(statement).await,
        Err(error) => return Err(fault(error)),
    };
    let values = Params::Positional(statement.values.iter().map(parameter).collect());
    let result = match connection.exec_iter(&prepared, values).await {
        Ok(result) => result,
        Err(Mysql::Server(said)) if IS_NOT_KEPT.contains(&said.code) => {
            return Bare(connection).execute(statement).await;
        }
        Err(error) => return Err(fault(error)),
    };
    let answer = Answer::changed(result.affected_rows(), result.last_insert_id());
    result.drop_result().await.map_err(fault)?;
    if connection.took_effect() { Ok(answer) } else { Err(Fault::Uncommitted) }
}

/// Runs statements on a connection or a transaction, without a time limit.
pub(super) struct Bare<'a, R>(pub(super) &'a mut R);

impl<R: Runs> Executor for Bare<'_, R> {
    const IN_TRANSACTION: bool = !R::COMMITS;

    async fn execute(&mut self, statement: Statement<'_>) -> Result<Answer, Fault> {
        let sql = whole(&statement);
        let result = self.0.query_iter(&*sql).await.map_err(fault)?;
        let answer = Answer::changed(result.affected_rows(), result.last_insert_id());
        let rows: Vec<Row> = result.collect_and_drop().await.map_err(fault)?;
        if statement.writes && !self.0.took_effect() {
            return Err(Fault::Uncommitted);
        }
        Ok(answer.with_rows(rows.into_iter().map(convert::row).collect()))
    }
}

/// A connection or a transaction, with the status of the last answer.
pub(super) trait Runs: Queryable {
    /// Whether each statement commits by itself, and not with the caller's transaction.
    const COMMITS: bool;

    fn connection(&self) -> &Conn;

    /// Whether the last change is committed, or part of a transaction that is still open.
    fn took_effect(&self) -> bool {
        status(self.connection()).is_some_and(|status| {
            if Self::COMMITS { commits(status) } else { status.contains(StatusFlags::SERVER_STATUS_IN_TRANS) }
        })
    }
}

impl Runs for Conn {
    const COMMITS: bool = true;

    fn connection(&self) -> &Conn {
        self
    }
}

impl Runs for Transaction<'_> {
    const COMMITS: bool = false;

    fn connection(&self) -> &Conn {
        self
    }
}

fn status(connection: &Conn) -> Option<StatusFlags> {
    connection.last_ok_packet().map(mysql_async::OkPacket::status_flags)
}

fn commits(status: StatusFlags) -> bool {
    status.contains(StatusFlags::SERVER_STATUS_AUTOCOMMIT)
        && !status.contains(StatusFlags::SERVER_STATUS_IN_TRANS)
}

/// Checks that a connection commits each statement and counts changed rows, since the caller's pool may have
/// other settings.
pub(super) async fn must_commit(connection: &mut Conn) -> Result<(), Mysql> {
    if connection.opts().client_found_rows() {
        return Err(ours(
            "the pool has `client_found_rows`, which hides writes undone by triggers; use a pool without it",
        ));
    }
    if status(connection).is_none() {
        connection.ping().await?;
    }
    if status(connection).is_some_and(commits) {
        return Ok(());
    }
    Err(ours(
        "the pool does not commit each statement (autocommit=0, or an open transaction); give the store its \
         own pool",
    ))
}

fn ours(message: &'static str) -> Mysql {
    Carried::by_driver(Fault::Refused(Error::new(ErrorKind::Unsupported, message)))
}
