//! The calls over a scripted server.

use std::collections::VecDeque;
use std::time::Duration;

use idmill::store::{Bounds, Change, GiveBack, Page, Reserve, SequenceInfo};
use idmill::{ErrorKind, IdRange, Result, SequenceName};
use idmill_kit::Mode;

use super::fence::WRITABLE;
use super::{Calls, Draws, Table, must_be_durable, settings, whole};
use crate::{
    Answer, Dialect, EngineError, Executor, Fault, InTransaction, Opening, Row, Statement, Value, Witnesses,
};

/// A scripted answer.
#[derive(Clone)]
struct Reply(Result<Answer, Fault>);

/// Returns the answers in order, and records the statements.
struct Told<const IN_TRANSACTION: bool> {
    answers: VecDeque<Reply>,
    /// Answers after the script has ended; without it, a further statement panics.
    always: Option<fn(&Statement<'_>) -> Answer>,
    asked: Vec<String>,
    /// Whether `read_only` is set. The query for it is answered outside the script.
    read_only: bool,
    discarded: bool,
}

impl<const IN_TRANSACTION: bool> Told<IN_TRANSACTION> {
    fn new(answers: impl IntoIterator<Item = Reply>) -> Self {
        let answers = answers.into_iter().collect();
        Self { answers, always: None, asked: Vec::new(), read_only: false, discarded: false }
    }
}

impl<const IN_TRANSACTION: bool> Executor for Told<IN_TRANSACTION> {
    const IN_TRANSACTION: bool = IN_TRANSACTION;

    async fn execute(&mut self, statement: Statement<'_>) -> Result<Answer, Fault> {
        if statement.sql == format!("SELECT {WRITABLE}") {
            return Ok(Answer::rows(vec![texts(&[if self.read_only { "0" } else { "1" }])]));
        }
        assert_eq!(statement.writes, !statement.sql.starts_with("SELECT"), "{}", statement.sql);
        self.asked.push(whole(&statement).into_owned());
        let reply = self.answers.pop_front().map(|reply| reply.0);
        let always = self.always.map(|answer| Ok(answer(&statement)));
        reply.or(always).unwrap_or_else(|| panic!("no scripted answer for: {}", statement.sql))
    }

    fn discard(&mut self) {
        self.discarded = true;
    }
}

type Alone = Told<false>;
type Within = Told<true>;

fn name() -> SequenceName {
    SequenceName::new("s").unwrap()
}

fn request(count: u64) -> Reserve {
    Reserve::new(name(), count).create(Bounds::of::<u64>())
}

fn found(rows: impl IntoIterator<Item = Row>) -> Reply {
    Reply(Ok(Answer::rows(rows.into_iter().collect())))
}

fn texts(values: &[&str]) -> Row {
    Row::new(values.iter().map(|text| Value::from(*text)).collect())
}

fn nothing() -> Reply {
    found([])
}

fn changed(rows: u64, first: u64) -> Reply {
    Reply(Ok(Answer::changed(rows, Some(first))))
}

fn fails(fault: impl Into<Fault>) -> Reply {
    Reply(Err(fault.into()))
}

fn says(code: u16) -> Reply {
    fails(EngineError::new(code.to_string(), "said"))
}

/// A row of a sequence from 1 to 100.
fn row(next: u64) -> Row {
    texts(&["s", &next.to_string(), "1", "100", "7", "0", "1"])
}

/// The columns of a table; the first is its key.
fn layout(columns: &[(&str, &str)]) -> Reply {
    let keyed = |index| if index == 0 { "PRI" } else { "" };
    found(columns.iter().enumerate().map(|(index, (name, kind))| texts(&[name, kind, keyed(index)])))
}

fn good_layout() -> Reply {
    let big = "bigint unsigned";
    layout(&[
        ("name", "varbinary"),
        ("next", big),
        ("start", big),
        ("max", big),
        ("incarnation", big),
        ("epoch", big),
        ("format", "tinyint unsigned"),
        ("history", "varbinary"),
    ])
}

/// The answers while a store opens an existing table.
fn opening() -> [Reply; 5] {
    let (durable, logs) = (found([texts(&["1", "0", "0"])]), found([texts(&["1", "MIXED"])]));
    [found([texts(&["ids"])]), durable, found([texts(&["InnoDB"])]), good_layout(), logs]
}

async fn open(mode: Mode, server: &mut Alone) -> Result<Calls> {
    Calls::open(server, Table::new("t").unwrap(), "h:1", Opening { mode, ..Opening::default() }).await
}

/// Opens a store on an existing table; the server continues with these answers.
async fn opened(answers: impl IntoIterator<Item = Reply>) -> (Calls, Alone) {
    let mut server = Alone::new(opening().into_iter().chain(answers));
    let calls = open(Mode::Create, &mut server).await.unwrap();
    server.asked.clear();
    (calls, server)
}

/// Returns the kind of the next reserve's error, whose text must contain `hint`.
async fn refused(calls: &Calls, server: &mut Alone, hint: &str) -> ErrorKind {
    let error = calls.reserve(server, &request(10)).await.unwrap_err();
    assert!(error.to_string().contains(hint), "{error}");
    error.kind()
}

#[tokio::test]
async fn first_reserve_creates_and_later_ones_are_one_statement() {
    let (calls, mut server) = opened([nothing(), changed(1, 0), changed(1, 11)]).await;
    let grant = calls.reserve(&mut server, &request(10)).await.unwrap();
    assert_eq!(grant.range, IdRange::new(1, 10).unwrap());
    let next = calls.reserve(&mut server, &request(10)).await.unwrap();
    assert_eq!((next.range, next.identity), (IdRange::new(11, 10).unwrap(), grant.identity));
    let begins = [
        "SELECT `name`, ",
        "INSERT INTO `ids`.`t` ",
        "UPDATE `ids`.`t` SET `next` = LAST_INSERT_ID(`next`) + 10",
    ];
    assert_eq!(server.asked.len(), begins.len());
    assert!(
        server.asked.iter().zip(begins).all(|(asked, begin)| asked.starts_with(begin)),
        "{:?}",
        server.asked
    );
    assert!(server.asked[0].ends_with(" FOR UPDATE"));
}

/// A process may draw from sequences that it never draws from again.
#[tokio::test]
async fn state_of_unused_sequences_is_dropped() {
    let (calls, mut server) = opened([]).await;
    server.always =
        Some(|statement| if statement.writes { Answer::changed(1, None) } else { Answer::default() });
    for n in 0..70_000 {
        let request = Reserve::new(SequenceName::new(&n.to_string()).unwrap(), 1).create(Bounds::of::<u64>());
        calls.reserve(&mut server, &request).await.unwrap();
        server.asked.clear();
    }
    let first = Reserve::new(SequenceName::new("0").unwrap(), 1).create(Bounds::of::<u64>());
    calls.reserve(&mut server, &first).await.unwrap();
    assert!(server.asked[0].starts_with("SELECT"), "the sequence is still known: {:?}", server.asked);
}

/// A write that may have been applied is not sent again, and an impossible answer is rejected.
#[tokio::test]
async fn a_write_that_failed_is_the_last_statement() {
    let silent = fails(Fault::Silent(Duration::from_secs(1)));
    let cases = [
        (silent, ErrorKind::UnknownOutcome, "no answer within 1s; the write may have been applied"),
        (
            fails(Fault::Uncommitted),
            ErrorKind::UnknownOutcome,
            "not committed; the write may have been applied",
        ),
        (says(1317), ErrorKind::UnknownOutcome, "(1317)"),
        (says(1213), ErrorKind::Unavailable, "begin it again"),
        (Reply(Ok(Answer::changed(1, None))), ErrorKind::StoreViolation, "check triggers"),
        (changed(1, 0), ErrorKind::StoreViolation, "id 0 returned"),
        (changed(2, 11), ErrorKind::StoreViolation, "2 rows"),
        (changed(1, 91), ErrorKind::StoreViolation, "1 to 90"),
    ];
    for (answer, kind, hint) in cases {
        let (calls, mut server) =
            opened([nothing(), changed(1, 0), changed(0, 0), found([row(11)]), answer]).await;
        calls.reserve(&mut server, &request(10)).await.unwrap();
        assert_eq!(refused(&calls, &mut server, hint).await, kind, "{hint}");
        assert!(server.answers.is_empty());
    }
}

#[tokio::test]
async fn the_last_ids_are_taken_if_nothing_has_changed() {
    let answers = [found([row(95)]), changed(0, 0), changed(0, 0), found([row(96)]), changed(1, 0)];
    let (calls, mut server) = opened(answers).await;
    let grant = calls.reserve(&mut server, &request(10)).await.unwrap();
    assert_eq!(grant.range, IdRange::new(96, 5).unwrap());
    assert!(server.asked[4].contains("SET `next` = NULL, ") && server.asked[4].contains("`next` <=> 96"));
}

#[tokio::test]
async fn call_gives_up_after_too_many_lost_races() {
    let (calls, mut server) = opened([]).await;
    server.always =
        Some(
            |statement| if statement.writes { Answer::changed(0, None) } else { Answer::rows(vec![row(11)]) },
        );
    assert_eq!(refused(&calls, &mut server, "changed the sequence in each").await, ErrorKind::Unavailable);
    assert_eq!(server.asked.len(), 399);
    let up = Change::new().next(50);
    let error = calls.set(&mut server, &name(), up).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(server.asked.len(), 799);
}

#[tokio::test]
async fn duplicate_key_without_a_row_is_a_conflict() {
    let missing = || [nothing(), says(1062)];
    let (calls, mut server) = opened((0..4).flat_map(|_| missing())).await;
    assert_eq!(refused(&calls, &mut server, "(1062)").await, ErrorKind::Conflict);
    server.answers = [says(1062), nothing(), says(1062), found([row(1)])].into();
    let error = calls.create(&mut server, &name(), Bounds::of::<u64>()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
}

#[tokio::test]
async fn page_cursor_is_the_last_row() {
    let broken = Row::new(vec![Value::Bytes(b"b\xff".into())]);
    let (calls, mut server) = opened([found([row(5), broken]), found([row(5)])]).await;
    let page = calls.list(&mut server, &Page::default().limit(2)).await.unwrap();
    assert_eq!((page.sequences.len(), page.unreadable.len()), (1, 1));
    assert_eq!(idmill_kit::paging::bytes(&page.next.unwrap()).unwrap(), b"b\xff");
    let page = calls.list(&mut server, &Page::default().limit(2)).await.unwrap();
    assert!(page.sequences.len() == 1 && page.next.is_none());
}

#[tokio::test]
async fn to_look_only_changes_nothing() {
    let mut server =
        Alone::new(opening().into_iter().enumerate().filter(|(at, _)| *at != 1).map(|(_, told)| told));
    let calls = open(Mode::ReadOnly, &mut server).await.unwrap();
    let (bounds, change) = (Bounds::of::<u64>(), Change::default());
    let SequenceInfo { identity, .. } = SequenceInfo::new(name(), bounds);
    let back = GiveBack::new(name(), identity, IdRange::new(1, 1).unwrap());
    let server = &mut server;
    let errors = [
        calls.reserve(server, &request(1)).await.unwrap_err(),
        calls.give_back(server, &back).await.unwrap_err(),
        calls.create(server, &name(), bounds).await.unwrap_err(),
        calls.set(server, &name(), change).await.unwrap_err(),
        calls.remove(server, &name(), None).await.unwrap_err(),
        calls.may_write().unwrap_err(),
    ];
    assert!(errors.iter().all(|error| error.kind() == ErrorKind::Denied), "{errors:?}");
    assert_eq!(server.asked.len(), 3);
}

#[tokio::test]
async fn a_table_that_is_not_idmill_s_is_refused() {
    let [database, durable, engine, ..] = opening();
    let before = [database, durable];
    let view = found([Row::new(vec![Value::Null])]);
    let other = layout(&[("name", "varchar"), ("next", "INT")]);
    let keyless = found([texts(&["name", "varbinary", ""])]);
    let answers = |more: Vec<Reply>| before.clone().into_iter().chain(more);
    for (mode, more, kind, hint) in [
        (Mode::Create, vec![found([texts(&["MyISAM"])])], ErrorKind::Unsupported, "ENGINE = InnoDB"),
        (Mode::Create, vec![view], ErrorKind::Unsupported, "NULL, as for a view"),
        (
            Mode::Create,
            vec![engine.clone(), other],
            ErrorKind::Conflict,
            "other columns: name varchar, next int;",
        ),
        (Mode::Create, vec![engine, keyless], ErrorKind::Conflict, "table=NAME"),
        (Mode::ReadWrite, vec![nothing()], ErrorKind::NotFound, "no table `t` at h:1"),
        (Mode::Create, vec![nothing(), changed(0, 0), nothing()], ErrorKind::Denied, "grant the user SELECT"),
        (Mode::Create, vec![nothing(), says(1142)], ErrorKind::Denied, "CREATE for `mode=rwc`"),
    ] {
        let error = open(mode, &mut Alone::new(answers(more))).await.unwrap_err();
        assert!(error.kind() == kind && error.to_string().contains(hint), "{error}");
    }
    let nowhere = found([Row::new(vec![Value::Null])]);
    let error = open(Mode::Create, &mut Alone::new([nowhere])).await.unwrap_err();
    assert!(error.kind() == ErrorKind::InvalidInput && error.to_string().contains("no database"), "{error}");
}

#[tokio::test]
async fn nondurable_server_is_rejected_for_bytes_and_integers() {
    let bytes = |[flush, binlog, sync]: [i64; 3]| {
        Row::new([flush, binlog, sync].map(|value| Value::Bytes(value.to_string().into())).into())
    };
    let integers = |values: [i64; 3]| Row::new(values.map(Value::Integer).into());
    for (values, lost) in [
        ([1, 0, 0], None),
        ([1, 1, 1], None),
        ([0, 0, 0], Some("innodb_flush_log_at_trx_commit is 0: set it to 1")),
        ([2, 1, 1], Some("innodb_flush_log_at_trx_commit is 2: set it to 1")),
        ([1, 1, 0], Some("sync_binlog is 0: set it to 1")),
        ([1, 1, 100], Some("sync_binlog is 100: set it to 1")),
    ] {
        for row in [bytes(values), integers(values)] {
            let outcome = must_be_durable(&mut Alone::new([found([row])])).await;
            match (outcome, lost) {
                (Ok(()), None) => {}
                (Err(Fault::Refused(error)), Some(lost)) => {
                    assert!(
                        error.kind() == ErrorKind::Unsupported && error.to_string().ends_with(lost),
                        "{error}"
                    );
                }
                other => panic!("{other:?}"),
            }
        }
    }
    for answer in [nothing(), found([texts(&["1", "OFF", "1"])])] {
        assert!(matches!(must_be_durable(&mut Alone::new([answer])).await, Err(Fault::Answer(_))));
    }
}

#[test]
fn the_server_gives_up_on_a_lock_before_the_client_does() {
    for (timeout, locks) in
        [(Duration::from_millis(1), 1), (Duration::from_secs(3), 1), (Duration::from_secs(10), 5)]
    {
        let expected =
            format!("SET autocommit = 1, innodb_lock_wait_timeout = {locks}, lock_wait_timeout = {locks}");
        assert_eq!(settings(timeout), expected);
    }
}

#[tokio::test]
async fn in_a_transaction_all_or_nothing_is_taken() {
    let ids = InTransaction::<u64, Draws, Within>::new("s").unwrap().table("t").unwrap();
    let mut server = Within::new([changed(1, 11), changed(0, 0), found([row(99)]), changed(1, 0)]);
    assert_eq!(ids.draw(&mut server, 1).await.unwrap(), IdRange::new(11, 1).unwrap());
    assert_eq!(ids.draw(&mut server, 2).await.unwrap(), IdRange::new(99, 2).unwrap());
    for (answers, kind, hint) in [
        (vec![changed(0, 0), found([row(99)])], ErrorKind::Exhausted, "2 left"),
        (
            vec![fails(Fault::Uncommitted)],
            ErrorKind::Conflict,
            "roll the transaction back and begin it again",
        ),
        (vec![fails(Fault::Silent(Duration::from_secs(1)))], ErrorKind::Unavailable, "no answer within 1s"),
        (vec![changed(0, 0), found([row(98)]), changed(0, 0)], ErrorKind::StoreViolation, "check triggers"),
        (vec![changed(0, 0), nothing(), says(1213)], ErrorKind::Unavailable, "begin it again"),
    ] {
        let error = ids.draw(&mut Within::new(answers), 3).await.unwrap_err();
        assert!(error.kind() == kind && error.to_string().contains(hint), "{error}");
        assert_eq!(error.sequence(), Some("s"));
    }
    let unseen = [changed(0, 0), nothing(), says(1062)];
    let mut server = Within::new(unseen.clone().into_iter().chain(unseen));
    assert_eq!(ids.draw(&mut server, 1).await.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(ids.draw(&mut server, 0).await.unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[tokio::test]
async fn a_record_is_written_once_or_its_outcome_is_unknown() {
    let there = || [found([texts(&["InnoDB"])]), layout(&[("name", "varbinary"), ("record", "varbinary")])];
    let kept = || found([texts(&["s", "a"])]);
    for (seen, answers, written) in [
        (None, vec![changed(1, 0)], Ok(true)),
        (None, vec![says(1062), kept()], Ok(false)),
        (None, vec![says(1062), nothing()], Err(ErrorKind::Conflict)),
        (None, vec![fails(Fault::Uncommitted)], Err(ErrorKind::UnknownOutcome)),
        (Some("a"), vec![changed(1, 0)], Ok(true)),
        (Some("a"), vec![changed(0, 0)], Ok(false)),
        (Some("b"), vec![kept()], Ok(false)),
        (Some("a"), vec![says(1213)], Err(ErrorKind::Unavailable)),
        (Some("a"), vec![fails(Fault::Silent(Duration::from_secs(1)))], Err(ErrorKind::UnknownOutcome)),
    ] {
        let (calls, mut server) = opened(there().into_iter().chain(answers)).await;
        let answer = calls.swap_record(&mut server, &name(), seen, "b").await;
        assert_eq!(answer.map_err(|error| error.kind()), written, "{seen:?}: {:?}", server.asked);
        assert!(server.answers.is_empty());
    }
}

#[tokio::test]
async fn row_of_another_server_is_adopted_once_if_unchanged() {
    let of = |was: &'static str| found([texts(&["s", "11", "1", "100", "7", "0", "1", was, "server 2"])]);
    let (calls, mut server) = opened([of("server 1")]).await;
    assert_eq!(refused(&calls, &mut server, "on server 1, not on server 2; ").await, ErrorKind::Conflict);
    // This process adopts the row, or another was faster; in both cases, the reserve is sent again.
    for adopted in [1, 0] {
        let opening = opening().into_iter().chain([of("server 1"), changed(adopted, 0), changed(1, 21)]);
        let mut server = Alone::new(opening);
        let table = Table::new("t").unwrap();
        let skips = Some("skip:10".parse().unwrap());
        let calls = Calls::open(&mut server, table, "h:1", Opening { failover: skips, ..Opening::default() })
            .await
            .unwrap();
        server.asked.clear();
        let grant = calls.reserve(&mut server, &request(10)).await.unwrap();
        assert_eq!(grant.range, IdRange::new(21, 10).unwrap());
        let adopts = &server.asked[1];
        assert!(adopts.contains("SET `next` = 21, ") && adopts.contains("`next` <=> 11 AND "), "{adopts}");
        assert!(adopts.ends_with(" AND `history` = x'7365727665722031'"), "{adopts}");
        assert!(
            server.asked[2]
                .ends_with(" AND (`history` IS NULL OR `history` = CONCAT('server ', @@server_id))")
        );
    }
    // The row was last written by this server, so it is not adopted.
    let (calls, mut server) = opened([of("server 2"), changed(1, 11)]).await;
    assert_eq!(calls.reserve(&mut server, &request(10)).await.unwrap().range, IdRange::new(11, 10).unwrap());
}

/// A user with `SUPER` writes on a server with `read_only`, so each statement has that condition.
#[tokio::test]
async fn no_write_is_sent_to_a_read_only_server() {
    let there = || [found([texts(&["InnoDB"])]), layout(&[("name", "varbinary"), ("record", "varbinary")])];
    let grants = [nothing(), changed(1, 0), changed(0, 0), changed(0, 0), changed(0, 0), found([row(11)])];
    let rest =
        [changed(0, 0), changed(0, 0)].into_iter().chain(there()).chain([changed(0, 0), changed(0, 0)]);
    let (calls, mut server) = opened(grants.into_iter().chain(rest)).await;
    let identity = calls.reserve(&mut server, &request(10)).await.unwrap().identity;
    server.read_only = true;
    let (bounds, back) = (Bounds::of::<u64>(), GiveBack::new(name(), identity, IdRange::new(1, 1).unwrap()));
    let errors = [
        calls.reserve(&mut server, &request(10)).await.unwrap_err(),
        calls.give_back(&mut server, &back).await.unwrap_err(),
        calls.create(&mut server, &name(), bounds).await.unwrap_err(),
        calls.set(&mut server, &name(), Change::new().next(50)).await.unwrap_err(),
        calls.remove(&mut server, &name(), None).await.unwrap_err(),
        calls.swap_record(&mut server, &name(), None, "b").await.unwrap_err(),
        calls.swap_record(&mut server, &name(), Some("a"), "b").await.unwrap_err(),
    ];
    assert!(errors.iter().all(|error| error.kind() == ErrorKind::Unavailable), "{errors:?}");
    assert!(errors.iter().all(|error| error.to_string().contains("`read_only` is set")), "{errors:?}");
    let writes = server.asked.iter().filter(|asked| !asked.starts_with("SELECT"));
    assert!(writes.clone().all(|asked| asked.contains(WRITABLE)), "{writes:?}");
    assert!(server.answers.is_empty() && server.discarded);
}
