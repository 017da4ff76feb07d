//! Invalid bytes on every port, and the logs about them.

use std::fs;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use idmill_testing::certificate::certify;
use idmill_testing::fleet::{Fleet, Http, Load, Pace, Recorder, Resp, Server, answer_to, garbage};

use crate::{command, started, with_orders};

const SILENCE: Duration = Duration::from_millis(100);

/// Returns `IDMILL_GARBAGE_SEEDS` seeds from a random one on, or only `IDMILL_GARBAGE_SEED` if it is set.
fn seeds() -> Vec<u64> {
    let setting = |name| std::env::var(name).ok().map(|text: String| text.parse::<u64>().expect("a number"));
    if let Some(seed) = setting("IDMILL_GARBAGE_SEED") {
        return vec![seed];
    }
    let first = fastrand::u64(..u64::MAX / 2);
    (first..first + setting("IDMILL_GARBAGE_SEEDS").unwrap_or(150)).collect()
}

/// Asserts that further clients are served.
async fn is_well(resp: SocketAddr, http: SocketAddr) -> std::io::Result<()> {
    assert_eq!(Resp::connect(resp).await?.ask("PING").await?, "+PONG");
    assert_eq!(Http::connect(http).await?.ask("GET /healthz").await?.0, 200);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_does_not_disturb_other_clients() {
    let place = with_orders();
    let server = started(&place, &[]);
    let (resp, http) = (server.resp, server.http);
    let (recorder, fleet) = (Recorder::new(), Fleet::of([server]));
    let load = Load::start(&recorder, &fleet, &Pace { clients: 4, ..Pace::default() });
    let seeds = seeds();
    println!("seeds from {}", seeds[0]);
    for seed in seeds {
        let bytes = garbage(seed);
        tokio::join!(answer_to(resp, &bytes, SILENCE), answer_to(http, &bytes, SILENCE));
        let well = is_well(resp, http).await;
        assert!(well.is_ok(), "IDMILL_GARBAGE_SEED={seed}: {well:?}");
    }
    let waits = load.end().await;
    assert_eq!(waits.broken.load(Ordering::Relaxed), 0, "others were cut off");
    let drawn = recorder.none_twice_and_in_order();
    assert_eq!(fleet.take(0).end_in_order().had(), drawn, "garbage drew ids");
}

/// A plain client gets a TLS alert, and a TLS client gets an error of the plain protocol.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_and_tls_mismatch_is_answered_with_an_error() {
    let place = with_orders();
    let (certificate, key) = certify(place.path());
    let (plain, secure) =
        (started(&place, &[]), started(&place, &["--tls-cert", &certificate, "--tls-key", &key]));
    let long = Duration::from_secs(60);
    let hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n";
    for address in [secure.resp, secure.http] {
        for bytes in [&b"INCR orders\r\n"[..], b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"] {
            let answer = answer_to(address, bytes, long).await;
            assert_eq!(answer.first(), Some(&0x15), "an alert of TLS: {}", answer.escape_ascii());
        }
    }
    assert!(answer_to(plain.resp, hello, long).await.starts_with(b"-ERR unknown command"));
    assert!(answer_to(plain.http, hello, long).await.starts_with(b"HTTP/1.1 400"));
    for seed in seeds().into_iter().take(50) {
        let bytes = garbage(seed);
        tokio::join!(answer_to(secure.resp, &bytes, SILENCE), answer_to(secure.http, &bytes, SILENCE));
        let answer = answer_to(secure.resp, b"PING\r\n", long).await;
        assert_eq!(answer.first(), Some(&0x15), "IDMILL_GARBAGE_SEED={seed}");
    }
    assert_eq!((plain.end_in_order().handed_out, secure.end_in_order().handed_out), (0, 0));
}

/// The logs are at the most verbose level. Even a wrong token may be a secret of another system.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_contain_no_token() {
    let place = with_orders();
    let made = place.json(&["token", "shop", "--right", "draw", "--sequence", "*", "--json"]);
    let (token, wrong) = (made["token"].as_str().unwrap(), "hunter2-of-another-place");
    fs::write(place.path().join("tokens.toml"), made["entry"].as_str().unwrap()).unwrap();
    let mut command = command(&place, &["-vv", "--tokens", "tokens.toml"]);
    let server = Server::try_start(&mut command, &[token, wrong]).unwrap();
    let mut client = Resp::connect(server.resp).await.unwrap();
    assert!(client.ask(&format!("AUTH {wrong}")).await.unwrap().starts_with("-WRONGPASS"));
    assert!(client.ask(&format!("AUTTH {wrong}")).await.unwrap().starts_with("-ERR"));
    assert_eq!(client.ask(&format!("AUTH user {token}")).await.unwrap(), "+OK");
    assert_eq!(client.ask("INCR orders").await.unwrap(), ":1");
    let mut client = Http::connect(server.http).await.unwrap();
    for (secret, status) in [(wrong, 401), (token, 200)] {
        let request =
            format!("POST /v1/sequences/orders/ids HTTP/1.1\r\nAuthorization: Bearer {secret}\r\nX: y");
        assert_eq!(client.ask(&request).await.unwrap().0, status);
    }
    assert!(server.log().contains("\"level\":\"DEBUG\""), "no debug messages in the log: {}", server.log());
    assert_eq!(server.end_in_order().handed_out, 2);
}
