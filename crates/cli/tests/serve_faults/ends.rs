//! Servers that end under load, by SIGKILL and by SIGTERM.

use std::time::{Duration, Instant};

use idmill_testing::fleet::{Fleet, Load, Pace, Recorder, Resp, Totals, Way};
use idmill_testing::{eventually, holds};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::time::{sleep, timeout};

use crate::{next, started, with_orders};

/// After a kill, the other servers continue, and the clients of the killed server reconnect.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_killed_in_turn_hand_out_no_duplicates() {
    let place = with_orders();
    let (recorder, fleet) = (Recorder::new(), Fleet::of([(); 3].map(|()| started(&place, &[]))));
    let load = Load::start(&recorder, &fleet, &Pace::default());
    for round in 0..9 {
        let before = recorder.count();
        eventually("500 more ids are drawn", async || {
            holds(recorder.count() >= before + 500, recorder.count() - before)
        })
        .await;
        fleet.take(round % 3).kill();
        fleet.put(round % 3, started(&place, &[]));
    }
    load.end().await;
    (0..3).for_each(|at| {
        fleet.take(at).end_in_order();
    });
    assert!(recorder.none_twice_and_in_order() >= 4500);
    // The missing ids were in the memory of killed servers.
    assert!(recorder.missing(next(&place)) > 0);
}

/// Requests that were read are answered, and ids in memory are given back. Each other id is in one of the
/// server's counters.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_servers_account_for_every_id() {
    let place = with_orders();
    let (recorder, fleet) = (Recorder::new(), Fleet::of([(); 3].map(|()| started(&place, &[]))));
    let mut pace = Pace::default();
    // The pipeline is larger than a read, so that a part is unread when the server receives SIGTERM.
    pace.ways.push(Way::Incr(5000));
    let load = Load::start(&recorder, &fleet, &pace);
    let mut ended = Totals::default();
    for round in 0..9 {
        let before = recorder.count();
        eventually("3,000 more ids are drawn", async || {
            holds(recorder.count() >= before + 3000, recorder.count() - before)
        })
        .await;
        ended = ended.plus(fleet.take(round % 3).end_in_order());
        fleet.put(round % 3, started(&place, &[]));
    }
    load.end().await;
    (0..3).for_each(|at| ended = ended.plus(fleet.take(at).end_in_order()));
    let count = recorder.none_twice_and_in_order();
    assert_eq!(count, ended.had(), "clients did not receive every drawn id: {ended:?}");
    let (next, counted) = (next(&place), ended.gaps + ended.unread);
    let perhaps = counted..=counted + ended.unknown;
    assert!(perhaps.contains(&recorder.missing(next)), "{} of {ended:?}", recorder.missing(next));
    assert!(ended.given_back > 0, "{ended:?}");
}

/// The client does not read its answers until the shutdown timeout is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ids_in_unread_replies_are_counted() {
    let place = with_orders();
    let (server, recorder) = (started(&place, &["--shutdown-timeout=1s"]), Recorder::new());
    let mut connection = recorder.connection(server.number);
    let mut stream = Resp::connect(server.resp).await.unwrap().into_stream();
    let commands = "INCR orders\r\n".repeat(4096);
    while timeout(Duration::from_secs(2), stream.write_all(commands.as_bytes())).await.is_ok() {}
    let asked = Instant::now();
    let ended = server.end_in_order();
    let mut answers = BufReader::new(stream).lines();
    // Read the answers that arrived before the server disconnected. The last answer may be truncated.
    while let Ok(Some(answer)) = answers.next_line().await {
        if let Some(id) = answer.strip_prefix(':').and_then(|id| id.parse().ok()) {
            connection.given(id, id, asked);
        }
    }
    let had = recorder.none_twice_and_in_order();
    assert!(ended.unread > 0 && had + ended.unread <= ended.handed_out, "{had} of {ended:?}");
}

/// The client sends continuously but reads slowly, so it has not received all answers when the server ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_reader_gets_every_reply_at_shutdown() {
    let place = with_orders();
    let (server, recorder) = (started(&place, &[]), Recorder::new());
    let mut connection = recorder.connection(server.number);
    let (read, mut write) = Resp::connect(server.resp).await.unwrap().into_stream().into_split();
    let (asked, commands) = (Instant::now(), "INCR orders\r\n".repeat(4096));
    let writer = tokio::spawn(async move { while write.write_all(commands.as_bytes()).await.is_ok() {} });
    // Wait until the system's buffers are full.
    sleep(Duration::from_secs(1)).await;
    let ending = tokio::task::spawn_blocking(|| server.end_in_order());
    let mut answers = BufReader::new(read).lines();
    let mut count = 0;
    while let Some(answer) = answers.next_line().await.expect("the end, and no reset") {
        let id = answer.strip_prefix(':').and_then(|id| id.parse().ok()).expect("an id");
        connection.given(id, id, asked);
        count += 1;
        if count % 20_000 == 0 {
            sleep(Duration::from_millis(10)).await;
        }
    }
    writer.abort();
    let ended = ending.await.unwrap();
    assert_eq!(recorder.none_twice_and_in_order(), ended.had(), "{ended:?}");
    assert_eq!(ended.unread, 0, "{ended:?}");
    assert!(count > 4096, "only {count} replies were pending");
}
