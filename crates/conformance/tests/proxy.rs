//! The proxy: its effects on connections, and connections that it leaves unchanged.

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use idmill_conformance::proxy::{Fault, Gate, Nonsense, nth};
use idmill_conformance::{Proxy, free_port};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;

/// Timeout of a hanging test.
const LONG: Duration = Duration::from_secs(60);
/// Long enough for data in flight to arrive.
const SHORT: Duration = Duration::from_millis(100);

/// An engine that echoes each byte incremented by one, and records all input.
struct Engine {
    address: SocketAddr,
    arrived: watch::Receiver<Vec<u8>>,
    /// Number of connections that have ended, as seen by the engine.
    ended: watch::Receiver<u64>,
}

impl Engine {
    async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (came, arrived) = watch::channel(Vec::new());
        let (over, ended) = watch::channel(0);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (came, over) = (came.clone(), over.clone());
                tokio::spawn(async move {
                    let mut piece = [0; 1024];
                    while let Ok(length @ 1..) = stream.read(&mut piece).await {
                        came.send_modify(|all| all.extend(&piece[..length]));
                        piece[..length].iter_mut().for_each(|byte| *byte += 1);
                        let _ = stream.write_all(&piece[..length]).await;
                    }
                    over.send_modify(|ended| *ended += 1);
                });
            }
        });
        Self { address, arrived, ended }
    }

    /// Waits until `all` has arrived, and checks that nothing follows.
    async fn has(&self, all: &str) {
        let mut arrived = self.arrived.clone();
        in_time(arrived.wait_for(|came| came.len() >= all.len())).await.unwrap();
        tokio::time::sleep(SHORT).await;
        assert_eq!(String::from_utf8_lossy(&self.arrived.borrow()), all);
    }

    async fn ended(&self, connections: u64) {
        in_time(self.ended.clone().wait_for(|ended| *ended >= connections)).await.unwrap();
    }
}

async fn in_time<T>(what: impl Future<Output = T>) -> T {
    timeout(LONG, what).await.expect("it comes")
}

async fn connect(proxy: &Proxy) -> TcpStream {
    TcpStream::connect(proxy.address()).await.unwrap()
}

/// Returns the answer to a request; empty if the connection ends.
async fn ask(stream: &mut TcpStream, request: &str) -> String {
    match stream.write_all(request.as_bytes()).await {
        Ok(()) => hear(stream).await,
        Err(_) => String::new(),
    }
}

async fn hear(stream: &mut TcpStream) -> String {
    let mut answer = [0; 1024];
    let length = in_time(stream.read(&mut answer)).await.unwrap_or(0);
    String::from_utf8_lossy(&answer[..length]).into_owned()
}

async fn is_silent(stream: &mut TcpStream) {
    let heard = timeout(SHORT, stream.read_u8()).await;
    assert!(heard.is_err(), "{heard:?}");
}

/// A message is its length in one byte, followed by that number of bytes.
fn framed(bytes: &[u8]) -> Option<usize> {
    bytes.first().map(|length| usize::from(*length) + 1)
}

#[tokio::test]
async fn each_fault_has_its_documented_effect() {
    let (engine, mut all) = (Engine::start().await, String::new());
    let proxy = Proxy::start(engine.address).await.unwrap();
    for (fault, arrives) in [(Fault::CutBefore, ""), (Fault::CutAfter, "abc"), (Fault::CutReply, "abc")] {
        let mut stream = connect(&proxy).await;
        assert_eq!(ask(&mut stream, "abc").await, "bcd");
        proxy.arm(fault.clone(), nth(1, |_| true));
        assert_eq!(ask(&mut stream, "abc").await, "bcd", "the first request passes");
        assert_eq!(proxy.disarm(), 0, "{fault:?}: the fault fired early");
        proxy.arm(fault.clone(), nth(0, |_| true));
        assert_eq!(ask(&mut stream, "abc").await, "", "{fault:?}");
        assert_eq!(proxy.disarm(), 1);
        all = all + "abcabc" + arrives;
        engine.has(&all).await;
    }
    assert_eq!(proxy.pieces(), 9);
}

#[tokio::test]
async fn invalid_reply_closes_the_connection() {
    let engine = Engine::start().await;
    let proxy = Proxy::start(engine.address).await.unwrap();
    for nonsense in [Nonsense::Noise, Nonsense::Half, Nonsense::Status(503), Nonsense::Flipped] {
        let mut stream = connect(&proxy).await;
        proxy.arm(Fault::Garble(nonsense), nth(0, |_| true));
        // The text is long enough that noise cannot be correct by chance.
        let answer = ask(&mut stream, "abcdefghijklmnop").await;
        assert!(!answer.is_empty() && answer != "bcdefghijklmnopq", "{nonsense:?}: {answer:?}");
        assert_eq!(ask(&mut stream, "abc").await, "", "the connection ends after the noise");
    }
}

#[tokio::test]
async fn held_messages_can_be_released_or_cut() {
    let engine = Engine::start().await;
    let proxy = Proxy::start(engine.address).await.unwrap();
    let (mut stream, mut other, gate) = (connect(&proxy).await, connect(&proxy).await, Gate::new());
    proxy.arm(Fault::Withhold(gate.clone()), nth(0, |_| true));
    stream.write_all(b"abc").await.unwrap();
    in_time(gate.caught()).await;
    engine.has("abc").await;
    is_silent(&mut stream).await;
    assert_eq!(ask(&mut other, "x").await, "y", "other connections are answered");
    assert!(timeout(SHORT, gate.passed()).await.is_err());
    gate.open();
    in_time(gate.passed()).await;
    assert_eq!(hear(&mut stream).await, "bcd");
    assert_eq!(ask(&mut stream, "abc").await, "bcd", "the connection works as before");
    let gate = Gate::new();
    proxy.arm(Fault::Withhold(gate.clone()), nth(0, |_| true));
    stream.write_all(b"abc").await.unwrap();
    in_time(gate.caught()).await;
    proxy.cut();
    assert_eq!(hear(&mut stream).await, "");
}

#[tokio::test]
async fn held_messages_arrive_in_order_when_released() {
    let engine = Engine::start().await;
    let proxy = Proxy::start(engine.address).await.unwrap();
    let (mut stream, gate) = (connect(&proxy).await, Gate::new());
    proxy.arm(Fault::Hold(gate.clone()), |request| request.contains(&b'b'));
    assert_eq!(ask(&mut stream, "a").await, "b");
    for (pieces, piece) in (2..).zip(["b", "c", "b"]) {
        stream.write_all(piece.as_bytes()).await.unwrap();
        in_time(async {
            while proxy.pieces() < pieces {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
    assert_eq!(proxy.disarm(), 2);
    engine.has("a").await;
    is_silent(&mut stream).await;
    gate.open();
    assert_eq!(hear(&mut stream).await, "cdc");
    assert_eq!(ask(&mut stream, "d").await, "e", "the connection works as before");
    engine.has("abcbd").await;
}

#[tokio::test]
async fn held_message_arrives_after_its_client_left() {
    for cut in [true, false] {
        let engine = Engine::start().await;
        let proxy = Proxy::start(engine.address).await.unwrap();
        let (mut stream, gate) = (connect(&proxy).await, Gate::new());
        proxy.arm(Fault::Hold(gate.clone()), nth(0, |_| true));
        stream.write_all(b"late").await.unwrap();
        in_time(gate.caught()).await;
        if cut {
            proxy.cut();
            assert_eq!(hear(&mut stream).await, "");
        }
        drop(stream);
        engine.has("").await;
        assert_eq!(*engine.ended.borrow(), 0, "the engine's connection stays open");
        gate.open();
        in_time(gate.passed()).await;
        engine.has("late").await;
        assert_eq!(*engine.ended.borrow(), 0, "also afterwards");
        drop(proxy);
        engine.ended(1).await;
    }
}

#[tokio::test]
async fn a_message_that_is_held_alone_is_overtaken() {
    let engine = Engine::start().await;
    let proxy = Proxy::builder(engine.address).frames(framed).start().await.unwrap();
    let (mut stream, first, second) = (connect(&proxy).await, Gate::new(), Gate::new());
    for (gate, letter) in [(&first, b'a'), (&second, b'b')] {
        proxy.arm(Fault::HoldAlone(gate.clone()), nth(0, move |request| request.contains(&letter)));
        stream.write_all(&[1, letter]).await.unwrap();
        in_time(gate.caught()).await;
    }
    stream.write_all(b"\x01c").await.unwrap();
    engine.has("\x01c").await;
    second.open();
    in_time(second.passed()).await;
    engine.has("\x01c\x01b").await;
    first.open();
    engine.has("\x01c\x01b\x01a").await;
}

#[tokio::test]
async fn messages_are_reassembled_from_any_fragments() {
    let engine = Engine::start().await;
    let seen = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let requests = seen.clone();
    let builder = Proxy::builder(engine.address).frames(framed).requests(move |piece| {
        requests.lock().push((piece.connection, piece.bytes.clone()));
        None
    });
    let proxy = builder.start().await.unwrap();
    let mut stream = connect(&proxy).await;
    for part in [&b"\x03a"[..], b"b", b"c\x01d\0\x02e"] {
        stream.write_all(part).await.unwrap();
        tokio::time::sleep(SHORT).await;
    }
    engine.has("\x03abc\x01d\0").await;
    let mut other = connect(&proxy).await;
    other.write_all(b"\x01x").await.unwrap();
    engine.has("\x03abc\x01d\0\x01x").await;
    stream.shutdown().await.unwrap();
    engine.has("\x03abc\x01d\0\x01x\x02e").await;
    let all: [(u64, &[u8]); 4] = [(0, b"\x03abc"), (0, b"\x01d"), (0, b"\0"), (1, b"\x01x")];
    assert!(seen.lock().iter().map(|(number, bytes)| (*number, &bytes[..])).eq(all), "{:?}", seen.lock());
    assert_eq!((proxy.pieces(), proxy.connections()), (4, 2), "but for the half");
}

#[tokio::test]
async fn hooks_can_rewrite_pieces_and_choose_a_fault() {
    let (engine, answers) = (Engine::start().await, Arc::new(AtomicU64::new(0)));
    let count = answers.clone();
    let builder = Proxy::builder(engine.address).requests(|piece| {
        let cut = piece.bytes.ends_with(b"!").then_some(Fault::CutAfter);
        piece.bytes.retain(|byte| *byte != b'!');
        cut
    });
    let builder = builder.answers(move |piece| {
        count.fetch_add(1, Ordering::Relaxed);
        piece.bytes.insert(0, b'>');
    });
    let proxy = builder.start().await.unwrap();
    let mut stream = connect(&proxy).await;
    assert_eq!(ask(&mut stream, "a!b").await, ">bc");
    // The armed condition is checked on the rewritten request, and only if the hook returned no fault.
    proxy.arm(Fault::CutBefore, |request| request.contains(&b'!') || request == b"z");
    assert_eq!(ask(&mut stream, "a!b").await, ">bc");
    assert_eq!(answers.load(Ordering::Relaxed), 2);
    assert_eq!(ask(&mut stream, "z!").await, "", "the hook returns a fault");
    assert_eq!(proxy.disarm(), 0);
    engine.has("ababz").await;
}

#[tokio::test]
async fn proxy_cuts_rejects_or_redirects_all_connections() {
    let (engine, other) = (Engine::start().await, Engine::start().await);
    let proxy = Proxy::start(engine.address).await.unwrap();
    let mut stream = connect(&proxy).await;
    assert_eq!(ask(&mut stream, "a").await, "b");
    proxy.cut();
    assert_eq!(hear(&mut stream).await, "");
    engine.ended(1).await;
    let mut stream = connect(&proxy).await;
    assert_eq!(ask(&mut stream, "b").await, "c", "later connections work");
    proxy.refuse(true);
    assert_eq!(hear(&mut stream).await, "");
    assert_eq!(ask(&mut connect(&proxy).await, "c").await, "");
    proxy.refuse(false);
    let mut stream = connect(&proxy).await;
    assert_eq!(ask(&mut stream, "d").await, "e");
    proxy.redirect(other.address);
    assert_eq!(hear(&mut stream).await, "");
    assert_eq!(ask(&mut connect(&proxy).await, "e").await, "f");
    engine.has("abd").await;
    other.has("e").await;
    assert_eq!(proxy.connections(), 4, "refused connections are not counted");
}

#[tokio::test]
async fn a_connection_that_is_only_being_made_is_cut_too() {
    let engine = Engine::start().await;
    let proxy = Proxy::start(engine.address).await.unwrap();
    let mut stream = connect(&proxy).await;
    // Wait only until the proxy has accepted the client, so that the proxy is still connecting to the engine.
    in_time(async {
        while proxy.connections() == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    proxy.refuse(true);
    assert_eq!(ask(&mut stream, "a").await, "");
    engine.has("").await;
}

#[tokio::test]
async fn connections_that_are_forgotten_are_silent_and_stay() {
    let engine = Engine::start().await;
    let proxy = Proxy::start(engine.address).await.unwrap();
    let mut stream = connect(&proxy).await;
    assert_eq!(ask(&mut stream, "a").await, "b");
    proxy.forget();
    let mut later = connect(&proxy).await;
    assert_eq!(ask(&mut later, "b").await, "c", "later connections work");
    stream.write_all(b"lost").await.unwrap();
    is_silent(&mut stream).await;
    engine.has("ab").await;
    assert_eq!(*engine.ended.borrow(), 0, "the engine's connection stays open");
    proxy.cut();
    assert_eq!(hear(&mut stream).await, "");
    engine.has("ab").await;
}

#[tokio::test]
async fn dropped_proxy_discards_held_messages() {
    let engine = Engine::start().await;
    let proxy = Proxy::start(engine.address).await.unwrap();
    let (mut plain, mut held, mut forgotten) =
        (connect(&proxy).await, connect(&proxy).await, connect(&proxy).await);
    assert_eq!(ask(&mut forgotten, "a").await, "b");
    proxy.forget();
    tokio::time::sleep(SHORT).await;
    for stream in [&mut plain, &mut held] {
        *stream = connect(&proxy).await;
        assert_eq!(ask(stream, "a").await, "b");
    }
    let gate = Gate::new();
    proxy.arm(Fault::Hold(gate.clone()), nth(0, |_| true));
    held.write_all(b"held").await.unwrap();
    in_time(gate.caught()).await;
    let address = proxy.address();
    drop(proxy);
    for stream in [&mut plain, &mut held, &mut forgotten] {
        assert_eq!(hear(stream).await, "");
    }
    engine.ended(3).await;
    gate.open();
    engine.has("aaa").await;
    let refused = async {
        while TcpStream::connect(address).await.is_ok() {
            tokio::time::sleep(SHORT).await;
        }
    };
    in_time(refused).await;
}

#[tokio::test]
async fn proxy_listens_at_the_given_address() {
    let engine = Engine::start().await;
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let proxy = Proxy::builder(engine.address).listen(address).start().await.unwrap();
    assert_eq!(proxy.address(), address);
    assert_eq!(ask(&mut connect(&proxy).await, "a").await, "b");
    let taken = Proxy::builder(engine.address).listen(address).start().await.unwrap_err();
    assert_eq!(taken.kind(), std::io::ErrorKind::AddrInUse);
}

#[tokio::test]
async fn without_an_engine_clients_are_cut_off() {
    let proxy = Proxy::start(([127, 0, 0, 1], free_port()).into()).await.unwrap();
    assert_eq!(ask(&mut connect(&proxy).await, "a").await, "");
}
