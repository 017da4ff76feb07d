//! The calls, over a scripted executor.

use std::collections::VecDeque;
use std::sync::Arc;

use idmill::store::{Bounds, Change, GiveBack, Grant, Identity, Reserve};
use idmill::{Error, ErrorKind, IdRange, SequenceName};
use idmill_kit::Mode;
use idmill_kit::history::Failover;
use parking_lot::Mutex;

use super::history::in_transaction;
use super::*;
use crate::{
    Answer, Dialect, EngineError, Executor, Fault, InTransaction, Opening, Row, Statement, Timeout, Value,
    Witnesses,
};

type Answered = Result<Vec<Row>, Fault>;

/// Clones share the script.
#[derive(Clone, Default)]
struct Script<const IN_TRANSACTION: bool>(Arc<Mutex<Told>>);

#[derive(Default)]
struct Told {
    answers: VecDeque<Answered>,
    heard: Vec<Statement<'static>>,
}

impl<const IN_TRANSACTION: bool> Script<IN_TRANSACTION> {
    fn of(answers: impl IntoIterator<Item = Answered>) -> Self {
        let told = Told { answers: answers.into_iter().collect(), heard: Vec::new() };
        Self(Arc::new(Mutex::new(told)))
    }

    fn heard(&self) -> Vec<Statement<'static>> {
        self.0.lock().heard.clone()
    }
}

impl<const IN_TRANSACTION: bool> Executor for Script<IN_TRANSACTION> {
    const IN_TRANSACTION: bool = IN_TRANSACTION;

    async fn execute(&mut self, statement: Statement<'_>) -> Result<Answer, Fault> {
        // No test here has row-level security.
        if statement.sql.contains("row_security_active") {
            return Ok(Answer::default());
        }
        let mut told = self.0.lock();
        let owned = if statement.writes { Statement::write } else { Statement::read };
        let heard = owned(statement.sql.into_owned(), statement.values);
        told.heard.push(heard.with_timeout(statement.timeout));
        // After the end of the script, answers have no rows.
        told.answers.pop_front().unwrap_or(Ok(Vec::new())).map(Answer::rows)
    }
}

type Session = Script<false>;
type Transaction = Script<true>;

const DURABLE: &str = "on on on";
const IDENTITY: Identity = Identity { incarnation: 7, epoch: 0 };

fn name(text: &str) -> SequenceName {
    SequenceName::new(text).unwrap()
}

fn request(text: &str, count: u64) -> Reserve {
    Reserve::new(name(text), count).create(Bounds::new(1, 100).unwrap())
}

fn texts(texts: &[&str]) -> Row {
    Row::new(texts.iter().map(|text| Value::from(*text)).collect())
}

/// A row from 1 to 100 as written: ids before `next` are reserved, the last reserve from `from` on.
fn row(name: &str, from: &str, next: &str, durable: &str) -> Row {
    texts(&[name, next, "1", "100", "7", "0", "1", from, durable, "4711"])
}

/// The row of `s` as read.
fn seen(next: &str) -> Row {
    texts(&["s", next, "1", "100", "7", "0", "1", "1"])
}

fn held(name: &str) -> Row {
    let mut values = vec![Value::from(name)];
    values.resize(8, Value::Null);
    values.push(DURABLE.into());
    Row::new(values)
}

fn engine(code: &str) -> Answered {
    Err(EngineError::new(code, "its words").into())
}

/// The server's answer with its cluster.
fn told() -> Vec<Row> {
    vec![texts(&["cluster 7, timeline 1"])]
}

fn calls() -> Calls {
    Calls::unopened(Table::new(Some("app"), "t").unwrap())
}

fn opening(mode: Mode, keeps: Keeps, failover: Option<Failover>) -> Opening {
    Opening { mode, keeps, failover, ..Opening::default() }
}

async fn calls_that_trust() -> Calls {
    let there =
        texts(&["public", "r", "name, next, reserved_from, start, max, incarnation, epoch, format, history"]);
    let table = Table::new(None, "t").unwrap();
    Calls::open(
        &mut Session::of([Ok(told()), Ok(vec![there])]),
        table,
        opening(Mode::ReadWrite, Keeps::Trust, None),
    )
    .await
    .unwrap()
}

fn range(grant: &Grant) -> (u64, u64) {
    (grant.range.start(), grant.range.len())
}

/// Rows that a crash would revert are rejected, whatever the adapter.
#[tokio::test]
async fn a_write_that_is_not_durable_is_refused() {
    for (durable, kind) in [
        ("on off on", ErrorKind::Conflict),
        ("on on off", ErrorKind::Conflict),
        ("off on on", ErrorKind::StoreViolation),
        ("", ErrorKind::StoreViolation),
    ] {
        let (calls, wrote) = (calls(), || Ok(vec![row("s", "1", "4", durable)]));
        let is = |error: Error| assert_eq!(error.kind(), kind, "{durable:?}: {error}");
        is(calls.reserve(&mut Session::of([wrote()]), &request("s", 3)).await.unwrap_err());
        let created = [Ok(vec![]), Ok(vec![]), wrote()];
        is(calls.reserve(&mut Session::of(created), &request("s", 3)).await.unwrap_err());
        is(calls.reserve_many(&Session::of([wrote()]), &[request("s", 3)]).await.remove(0).unwrap_err());
        let bounds = Bounds::new(1, 100).unwrap();
        is(calls.create(&mut Session::of([wrote()]), &name("s"), bounds).await.unwrap_err());
        let back = GiveBack::new(name("s"), IDENTITY, IdRange::new(4, 3).unwrap());
        is(calls.give_back(&mut Session::of([wrote()]), &back).await.unwrap_err());
        let read = Ok(vec![seen("4")]);
        let change = Change::new().next(50);
        is(calls.set(&mut Session::of([read, wrote()]), &name("s"), change).await.unwrap_err());
        is(calls.remove(&mut Session::of([wrote()]), &name("s"), None).await.unwrap_err());
    }
    let trusted = Ok(vec![row("s", "1", "4", "on off off")]);
    let grant = calls_that_trust().await.reserve(&mut Session::of([trusted]), &request("s", 3)).await;
    assert_eq!(range(&grant.unwrap()), (1, 3));
}

#[tokio::test]
async fn in_transaction_draw_keeps_settings_and_needs_all_ids() {
    let draws = InTransaction::<i32, Calls, Script<true>>::new("s")
        .unwrap()
        .schema("app")
        .unwrap()
        .table("t")
        .unwrap();
    let mut transaction = Transaction::of([Ok(vec![row("s", "1", "4", "on")])]);
    let drawn = draws.draw(&mut transaction, 3).await.unwrap();
    assert_eq!((drawn.start(), drawn.len()), (1, 3));
    let statement = transaction.heard().remove(0);
    assert!(statement.writes && !statement.sql.contains("set_config"), "{}", statement.sql);
    assert!(statement.sql.contains("UPDATE \"app\".\"t\""), "{}", statement.sql);
    let values = ["s".into(), "3".into(), i32::MAX.to_string().into(), Value::Timeout, "0".into()];
    assert_eq!(statement.values[..5], values);
    // Fewer ids are left than requested.
    let mut transaction = Transaction::of([Ok(vec![]), Ok(vec![seen("99")])]);
    let error = draws.draw(&mut transaction, 3).await.unwrap_err();
    assert_eq!((error.kind(), error.sequence()), (ErrorKind::Exhausted, Some("s")), "{error}");
    assert_eq!(draws.draw(&mut transaction, 0).await.unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(transaction.heard().len(), 2);
    // A lost connection is not an unknown outcome here: the caller has not committed.
    let lost = EngineError::new("57P01", "its words").ending_session();
    let error = draws.draw(&mut Transaction::of([Err(lost.into())]), 1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("roll the transaction back"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn batch_retries_locked_rows_and_shortens_later_timeouts() {
    let both = || Ok(vec![held("b"), row("a", "1", "4", DURABLE)]);
    let again = || Ok(vec![held("b")]);
    let batch = [request("b", 3), request("a", 3), request("new", 3)];
    let created = [Ok(vec![]), Ok(vec![]), Ok(vec![row("new", "1", "4", DURABLE)])];
    let session = Session::of([both(), again(), again(), again(), again()].into_iter().chain(created));
    let answers = calls().reserve_many(&session, &batch).await;
    let error = answers[0].clone().unwrap_err();
    assert_eq!((error.kind(), error.sequence()), (ErrorKind::Unavailable, Some("b")), "{error}");
    for granted in &answers[1..] {
        assert_eq!(range(granted.as_ref().unwrap()), (1, 3));
    }
    let heard = session.heard();
    let names = |statement: &Statement<'_>| statement.values[0].clone();
    assert_eq!(names(&heard[0]), Value::Texts(vec!["b".into(), "a".into(), "new".into()]));
    assert_eq!(names(&heard[4]), Value::Texts(vec!["b".into()]));
    let timeout: Vec<_> = heard.iter().filter(|one| one.writes).map(|one| one.timeout).collect();
    assert_eq!(timeout, [[Timeout::Full; 5].as_slice(), &[Timeout::Brief; 2]].concat());
}

#[tokio::test]
async fn one_sequence_twice_in_a_batch_is_two_reserves() {
    let answers = [Ok(vec![row("s", "1", "4", DURABLE)]), Ok(vec![row("s", "4", "6", DURABLE)])];
    let session = Session::of(answers);
    let granted = calls().reserve_many(&session, &[request("s", 3), request("s", 2)]).await;
    assert_eq!(granted.iter().map(|one| range(one.as_ref().unwrap())).collect::<Vec<_>>(), [(1, 3), (4, 2)]);
}

#[tokio::test]
async fn reserve_gives_up_after_lost_races_or_hidden_rows() {
    // The row has ids whenever it is read, but another writer is always first.
    let moving = (0..).flat_map(|round| {
        let next = (1 + round % 90).to_string();
        [Ok(vec![]), Ok(vec![seen(&next)])]
    });
    let crowd = Session::of(moving.take(2 * TRIES));
    let error = calls().reserve(&mut crowd.clone(), &request("s", 3)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains(&format!("each of {TRIES} attempts")), "{error}");
    assert_eq!(crowd.heard().len(), 2 * TRIES);

    let hidden = Session::of((0..100).flat_map(|_| [Ok(vec![]), Ok(vec![seen("4")])]));
    let error = calls().reserve(&mut hidden.clone(), &request("s", 3)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(error.to_string().contains("policy for UPDATE"), "{error}");
}

#[tokio::test]
async fn row_changed_by_a_trigger_is_not_granted() {
    for (fault, changed) in [
        ("not advanced by the requested count", row("s", "1", "9", DURABLE)),
        ("does not show the reserved ids", row("s", "", "4", DURABLE)),
        ("for another sequence", row("other", "1", "4", DURABLE)),
    ] {
        // The session returns the changed row as the answer to the UPDATE, or to the INSERT.
        for before in [vec![], vec![Ok(vec![]), Ok(vec![])]] {
            let mut session = Session::of(before.into_iter().chain([Ok(vec![changed.clone()])]));
            let error = calls().reserve(&mut session, &request("s", 3)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::StoreViolation, "{error}");
            assert!(error.to_string().contains(fault), "{error}");
        }
    }
}

#[tokio::test]
async fn table_is_created_once_if_the_mode_allows_it() {
    let columns = "name, next, reserved_from, start, max, incarnation, epoch, format, history";
    let earlier = columns.trim_end_matches(", history");
    let synced = || Ok(vec![texts(&["on", "on"])]);
    let nowhere = || Ok(vec![texts(&["app"])]);
    let there = || Ok(vec![texts(&["app", "r", columns])]);
    let open = async |answers: Vec<Answered>, mode| {
        let mut session = Session::of(answers);
        let opened =
            Calls::open(&mut session, Table::new(None, "t").unwrap(), opening(mode, Keeps::Disk, None)).await;
        let ddl = session.heard().iter().filter(|one| one.sql.starts_with("CREATE TABLE")).count();
        (opened.map(|calls| calls.table().sql()), ddl)
    };
    let found = "\"app\".\"t\"".to_owned();
    let created = vec![synced(), Ok(told()), nowhere(), Ok(vec![]), there(), Ok(vec![])];
    let is = |(opened, ddl): (Result<String, Error>, usize), count| {
        assert_eq!((opened.unwrap(), ddl), (found.clone(), count));
    };
    is(open(created, Mode::Create).await, 1);
    // Another process was faster.
    let beaten = vec![synced(), Ok(told()), nowhere(), engine("23505"), there()];
    is(open(beaten, Mode::Create).await, 1);
    is(open(vec![there()], Mode::ReadOnly).await, 0);
    for (answers, kind, text) in [
        (vec![synced(), Ok(told()), nowhere()], ErrorKind::NotFound, "mode=rwc"),
        (vec![synced(), Ok(told())], ErrorKind::NotFound, "schema=NAME"),
        (vec![Ok(vec![texts(&["off", "on"])])], ErrorKind::Conflict, "set fsync = on"),
        (
            vec![synced(), Ok(told()), Ok(vec![texts(&["app", "r", "a, b"])])],
            ErrorKind::Conflict,
            "not idmill's",
        ),
        (
            vec![synced(), Ok(told()), Ok(vec![texts(&["app", "r", columns, "t"])])],
            ErrorKind::Conflict,
            "SET LOGGED",
        ),
        (
            vec![synced(), Ok(told()), Ok(vec![texts(&["app", "r", earlier])])],
            ErrorKind::Conflict,
            "run ALTER TABLE \"app\".\"t\" ADD COLUMN history text",
        ),
    ] {
        let (outcome, ddl) = open(answers, Mode::ReadWrite).await;
        let error = outcome.unwrap_err();
        assert_eq!((error.kind(), ddl), (kind, 0), "{error}");
        assert!(error.to_string().contains(text), "{error}");
    }
}

#[tokio::test]
async fn read_only_mode_sends_no_writes() {
    let there =
        texts(&["public", "r", "name, next, reserved_from, start, max, incarnation, epoch, format, history"]);
    let (mut session, table) = (Session::of([Ok(vec![there])]), Table::new(None, "t").unwrap());
    let calls = Calls::open(&mut session, table, opening(Mode::ReadOnly, Keeps::Disk, None)).await.unwrap();
    let denied = |error: Error| assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    denied(calls.reserve(&mut session, &request("s", 3)).await.unwrap_err());
    denied(calls.reserve_many(&session, &[request("s", 3)]).await.remove(0).unwrap_err());
    denied(calls.create(&mut session, &name("s"), Bounds::new(1, 100).unwrap()).await.unwrap_err());
    denied(calls.set(&mut session, &name("s"), Change::default()).await.unwrap_err());
    denied(calls.remove(&mut session, &name("s"), None).await.unwrap_err());
    assert!(session.heard().iter().all(|statement| !statement.writes));
    assert_eq!(calls.inspect(&mut session, &name("s")).await.unwrap(), None);
}

/// A record that a crash would revert is not reported as written.
#[tokio::test]
async fn a_record_that_is_not_durable_is_refused() {
    let found = || Ok(vec![texts(&["app", "r", "name, record"])]);
    for (durable, kind) in [
        (DURABLE, None),
        ("on off on", Some(ErrorKind::Conflict)),
        ("off on on", Some(ErrorKind::StoreViolation)),
        ("", Some(ErrorKind::StoreViolation)),
    ] {
        for seen in [None, Some("a")] {
            let mut session = Session::of([found(), Ok(vec![texts(&[durable, "4711"])])]);
            let written = calls().swap_record(&mut session, &name("s"), seen, "b").await;
            assert_eq!(written.err().map(|error| error.kind()), kind, "{durable:?} {seen:?}");
            let last = session.heard().pop().unwrap();
            assert!(last.writes && last.values.contains(&Value::Timeout), "{}", last.sql);
        }
    }
    for (answer, kind) in [
        (engine("40001"), ErrorKind::Unavailable),
        (engine("08007"), ErrorKind::UnknownOutcome),
        (Err(Fault::Warned("canceled".to_owned())), ErrorKind::UnknownOutcome),
        (Err(Fault::Uncommitted), ErrorKind::Conflict),
    ] {
        let mut session = Session::of([found(), answer]);
        let error = calls().swap_record(&mut session, &name("s"), Some("a"), "b").await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
    }
}

/// A row as read after a reserve that matched none, with its history and the current one.
fn row_of(was: &str, here: &str) -> Row {
    texts(&["s", "4", "1", "100", "7", "0", "1", "1", was, here])
}

#[tokio::test]
async fn row_of_another_history_is_adopted_once_if_unchanged() {
    let (was, here) = ("cluster 7, timeline 1", "cluster 7, timeline 2");
    let of = |failover| Calls { history: in_transaction(failover), ..calls() };
    let mut session = Session::of([Ok(vec![]), Ok(vec![row_of(was, here)])]);
    let error = of(Failover::Refuse).reserve(&mut session, &request("s", 3)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert!(error.to_string().contains(&format!("on {was}, not on {here}")), "{error}");
    assert_eq!(session.heard().iter().filter(|one| one.writes).count(), 1, "nothing but the reserve");

    // This process adopts the row, or another was faster; in both cases, the reserve is sent again.
    for adopted in [vec![row("s", "1", "14", DURABLE)], vec![]] {
        let after = Ok(vec![row("s", "14", "17", DURABLE)]);
        let mut session = Session::of([Ok(vec![]), Ok(vec![row_of(was, here)]), Ok(adopted), after]);
        let grant = of(Failover::Skip(10)).reserve(&mut session, &request("s", 3)).await.unwrap();
        assert_eq!(range(&grant), (14, 3));
        let adopt = session.heard().remove(2);
        let values = ["s", "7", "0", "4", was, "14"].map(Value::from);
        assert_eq!(adopt.values[..6], values, "the row as it was read, with next raised by 10");
        assert!(adopt.sql.contains("s.next = $4::numeric AND s.history = $5"), "{}", adopt.sql);
    }
    // A row that already has this history is not adopted again: another process was faster.
    let mut session =
        Session::of([Ok(vec![]), Ok(vec![row_of(here, here)]), Ok(vec![row("s", "4", "7", DURABLE)])]);
    assert_eq!(range(&of(Failover::Refuse).reserve(&mut session, &request("s", 3)).await.unwrap()), (4, 3));
}

/// The history is not reported to a role without the privilege, or by an engine without the function.
#[tokio::test]
async fn unreported_history_is_queried_once() {
    let open = async |answers: Vec<Answered>, failover| {
        let there = Ok(vec![texts(&[
            "app",
            "r",
            "name, next, reserved_from, start, max, incarnation, epoch, format, history",
        ])]);
        let mut session = Session::of(answers.into_iter().chain([there]));
        let opening = opening(Mode::ReadWrite, Keeps::Trust, failover);
        Calls::open(&mut session, Table::new(None, "t").unwrap(), opening).await
    };
    let (denied, missing) = (|| engine("42501"), || engine("0A000"));
    let sql = |calls: &Calls| calls.table.reserve(false, false, calls.history);
    let told = sql(&open(vec![Ok(told())], None).await.unwrap());
    assert!(told.contains("pg_walfile_name") && told.contains("s.history = 'cluster ' ||"), "{told}");
    assert!(told.contains(super::history::SYSTEM), "the SQL must read the cluster's identifier: {told}");
    let half = sql(&open(vec![missing(), Ok(vec![])], None).await.unwrap());
    assert!(half.contains("pg_control_system") && !half.contains("pg_walfile_name"), "{half}");
    for (answers, failover) in
        [(vec![denied()], None), (vec![missing(), denied()], None), (vec![denied()], Some(Failover::Allow))]
    {
        let nothing = sql(&open(answers, failover).await.unwrap());
        assert!(!nothing.contains("history") && !nothing.contains("pg_"), "{nothing}");
    }
    for failover in [Failover::Refuse, Failover::Skip(1)] {
        let error = open(vec![denied()], Some(failover)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("GRANT EXECUTE ON FUNCTION pg_control_system()"), "{error}");
    }
    assert_eq!(open(vec![engine("57014")], None).await.unwrap_err().kind(), ErrorKind::Unavailable);
}
