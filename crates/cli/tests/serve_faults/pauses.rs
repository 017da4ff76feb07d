//! A server that is stopped for longer than all timeouts.

use std::time::Duration;

use idmill_testing::fleet::{Fleet, Http, Load, Pace, Recorder, Resp, Way};
use idmill_testing::{eventually, holds};
use tokio::time::sleep;

use crate::{next, started, with_orders};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paused_and_resumed_server_hands_out_no_duplicates() {
    let place = with_orders();
    let args = ["--max-age=1s", "--timeout=500ms"];
    let (recorder, fleet) = (Recorder::new(), Fleet::of([(); 3].map(|()| started(&place, &args))));
    let pace = Pace { timeout: Duration::from_millis(300), ..Pace::default() };
    let load = Load::start(&recorder, &fleet, &pace);
    for round in 0..3 {
        fleet.at(round, |server| server.pause());
        // The pause is longer than the maximum age, the server's timeout and the clients' timeout.
        sleep(Duration::from_millis(1500)).await;
        fleet.at(round, |server| server.resume());
        sleep(Duration::from_millis(300)).await;
    }
    let waits = load.end().await;
    assert!(waits.broken.load(std::sync::atomic::Ordering::Relaxed) > 0, "no client met a paused server");
    (0..3).for_each(|at| {
        fleet.take(at).end_in_order();
    });
    assert!(recorder.none_twice_and_in_order() > 1000);
    recorder.missing(next(&place));
}

/// Ids are revoked while the server is stopped. When the server continues, its memory is older than the
/// maximum age.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ids_revoked_during_a_pause_are_soon_dropped() {
    let place = with_orders();
    let server = started(&place, &["--max-age=1s"]);
    let recorder = Recorder::new();
    let mut connection = recorder.connection(server.number);
    let mut client = Resp::connect(server.resp).await.unwrap();
    for _ in 0..50 {
        client.draw(Way::Take(2000), "orders", &mut connection).await.unwrap().unwrap();
    }
    let (_, _, metrics) = Http::connect(server.http).await.unwrap().ask("GET /metrics").await.unwrap();
    let remaining =
        metrics.lines().find_map(|line| line.strip_prefix("idmill_remaining{sequence=\"orders\"} "));
    assert!(
        remaining.unwrap().parse::<f64>().unwrap() > 1000.0,
        "too few ids in memory for this test: {remaining:?}"
    );
    server.pause();
    // The server may have been paused while it held the lock of the file, so that `revoke` fails.
    eventually("the ids are revoked", async || {
        let ran = place.run(&["revoke", "orders"]);
        if ran.code != 0 {
            server.resume();
            sleep(Duration::from_millis(50)).await;
            server.pause();
        }
        holds(ran.code == 0, ran)
    })
    .await;
    sleep(Duration::from_secs(2)).await;
    let revoked = next(&place);
    server.resume();
    let mut old = 0;
    while recorder.largest() < revoked {
        client.draw(Way::Incr(1), "orders", &mut connection).await.unwrap().unwrap();
        old += u32::from(recorder.largest() < revoked);
        assert!(old < 1000, "revoked ids are still handed out");
        sleep(Duration::from_millis(20)).await;
    }
    recorder.none_twice_and_in_order();
    server.end_in_order();
}
