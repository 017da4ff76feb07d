//! Servers that send invalid replies.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use idmill::store::{Bounds, Capabilities, Durability, Grant, Identity, Reserve, SequenceInfo, Store};
use idmill::{ErrorKind, IdRange, Status};
use idmill_remote::RemoteStore;
use idmill_remote::protocol::{Answer, Ask, Outcome, Request, Said};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::common::{Running, name, open, request, reserve};

type Reply = Arc<dyn Fn(Request) -> Vec<u8> + Send + Sync>;

/// A fake server that replies as configured to every request of a connection except the first.
pub(crate) struct Stranger {
    pub(crate) address: SocketAddr,
    task: JoinHandle<()>,
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Stranger {
    pub(crate) async fn saying(reply: impl Fn(Request) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self::greeting(
            |number| {
                let can = Capabilities::new(Durability::Disk).shared(true).gives_back(true);
                answer(number, Said::Capabilities(can))
            },
            reply,
        )
        .await
    }

    async fn greeting(
        greeting: impl Fn(u64) -> Vec<u8> + Send + Sync + 'static,
        reply: impl Fn(Request) -> Vec<u8> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (greeting, reply) = (Arc::new(greeting), Arc::new(reply) as Reply);
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (greeting, reply) = (greeting.clone(), reply.clone());
                tokio::spawn(async move {
                    let mut stream = stream;
                    let Some(first) = asked(&mut stream).await else { return };
                    let _ = stream.write_all(&greeting(first.number)).await;
                    while let Some(request) = asked(&mut stream).await {
                        let _ = stream.write_all(&reply(request)).await;
                    }
                });
            }
        });
        Self { address, task }
    }

    async fn open(&self) -> RemoteStore {
        open(&[self.address], "timeout=20s").await.unwrap()
    }
}

/// Reads the next request. Returns `None` if the connection ends.
async fn asked(stream: &mut TcpStream) -> Option<Request> {
    let mut bytes = Vec::new();
    loop {
        let begin = bytes.iter().position(|byte| *byte == b'{');
        if let Some(request) = begin.and_then(|at| Request::decode(bytes[at..].strip_suffix(b"\r\n")?).ok()) {
            return Some(request);
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
}

pub(crate) fn bulk(bytes: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

fn answer(number: u64, said: Said) -> Vec<u8> {
    bulk(&Answer { number, said }.encode())
}

fn granted(number: u64, start: u64, len: u64, bounds: (u64, u64)) -> Vec<u8> {
    let identity = Identity { incarnation: 1, epoch: 0 };
    let (range, bounds) = (IdRange::new(start, len).unwrap(), Bounds::new(bounds.0, bounds.1).unwrap());
    answer(number, Said::Grants(vec![Outcome::Ok(Grant::new(range, identity, bounds))]))
}

/// A change must return an unknown outcome, and a read a transient error, without waiting or panicking.
#[tokio::test]
async fn malformed_answer_is_an_error() {
    let replies: [fn(u64) -> Vec<u8>; 13] = [
        |_| b"\x00\xff\x17garbage\r\n".to_vec(),
        |_| b"$5\r\nhello\r\n".to_vec(),
        |_| b"+OK\r\n".to_vec(),
        |_| b":1\r\n".to_vec(),
        |_| b"$-1\r\n".to_vec(),
        |_| b"*0\r\n".to_vec(),
        |_| b"-ERR something else\r\n".to_vec(),
        |number| bulk(format!("{{\"number\":{number},\"said\":{{\"grants\":[{{\"ok\":7}}]}}}}").as_bytes()),
        |number| answer(number, Said::Done(true)),
        |number| answer(number, Said::Grants(Vec::new())),
        |number| answer(number, Said::Sequences(Vec::new())),
        // These are the replies to a later and to an earlier request.
        |number| granted(number.wrapping_add(1), 1, 1, (1, 9)),
        |number| granted(number.wrapping_sub(1), 1, 1, (1, 9)),
    ];
    for (at, reply) in replies.into_iter().enumerate() {
        let stranger = Stranger::saying(move |request| reply(request.number)).await;
        let store = stranger.open().await;
        let error = reserve(&store, "s", 1).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnknownOutcome, "{at}: {error}");
        let error = store.inspect(&name("s")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{at}: {error}");
    }
}

/// An invalid grant is rejected, and none of its ids is handed out.
#[tokio::test]
async fn impossible_grant_is_rejected() {
    let grants: [fn(u64) -> Vec<u8>; 5] = [
        |number| granted(number, 95, 10, (1, 100)),
        |number| granted(number, 0, 10, (1, 100)),
        |number| granted(number, 1, 0, (1, 100)),
        |number| granted(number, 1, 11, (1, 100)),
        |number| granted(number, 51, 10, (1, u64::MAX)),
    ];
    for (at, grant) in grants.into_iter().enumerate() {
        let stranger = Stranger::saying(move |request| grant(request.number)).await;
        let store = stranger.open().await;
        let request = Reserve::new(name("s"), 10).ceiling(55);
        let error = store.reserve(&request).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StoreViolation, "{at}: {error}");
    }
    let stranger = Stranger::saying(|request| granted(request.number, 46, 10, (1, 100))).await;
    let request = Reserve::new(name("s"), 10).ceiling(55);
    assert!(stranger.open().await.reserve(&request).await.is_ok(), "a valid grant was rejected");
}

#[tokio::test]
async fn reply_about_another_sequence_is_rejected() {
    let identity = Identity { incarnation: 1, epoch: 0 };
    let info = SequenceInfo::stored(name("other"), Some(1), Bounds::new(1, 9).unwrap(), identity);
    let said = Said::Sequences(vec![Outcome::Ok(Some(info.clone()))]);
    let stranger = Stranger::saying(move |request| answer(request.number, said.clone())).await;
    let error = stranger.open().await.inspect(&name("s")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let changed = Said::Sequence(info);
    let stranger = Stranger::saying(move |request| answer(request.number, changed.clone())).await;
    let (store, bounds) = (stranger.open().await, Bounds::new(1, 9).unwrap());
    let error = store.create(&name("s"), bounds).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownOutcome, "{error}");
    assert!(store.create(&name("other"), bounds).await.is_ok());
}

/// Each entry of the request gets the error, because it is not known which entries the answer is about.
#[tokio::test]
async fn answer_with_another_number_of_entries_is_rejected() {
    let identity = Identity { incarnation: 1, epoch: 0 };
    let grant = Grant::new(IdRange::new(1, 1).unwrap(), identity, Bounds::new(1, 9).unwrap());
    let stranger = Stranger::saying(move |Request { number, ask }| match ask {
        Ask::Reserve(_) => answer(number, Said::Grants(vec![Outcome::Ok(grant); 2])),
        _ => answer(number, Said::Sequences(vec![Outcome::Ok(None); 2])),
    })
    .await;
    let store = stranger.open().await;
    for entries in 1..=3 {
        let granted = store.reserve_many(&vec![request("s", 1); entries]).await;
        let found = store.inspect_many(&vec![name("s"); entries]).await;
        assert_eq!((granted.len(), found.len()), (entries, entries));
        let unknown = |error: idmill::Error| error.kind() == ErrorKind::UnknownOutcome;
        assert!(granted.into_iter().all(|one| if entries == 2 {
            one.is_ok()
        } else {
            one.is_err_and(unknown)
        }));
        let unavailable = |error: idmill::Error| error.kind() == ErrorKind::Unavailable;
        assert!(found.into_iter().all(|one| if entries == 2 {
            one.is_ok()
        } else {
            one.is_err_and(unavailable)
        }));
    }
}

#[tokio::test]
async fn error_shows_the_start_of_an_unexpected_answer() {
    let record = || Said::Record(Some("x".repeat(1000)));
    let stranger = Stranger::saying(move |request| answer(request.number, record())).await;
    let error = reserve(&stranger.open().await, "s", 1).await.unwrap_err().to_string();
    let shown = format!("Record(Some(\"{}", "x".repeat(200 - 13));
    assert!(error.contains(&shown) && !error.contains(&format!("{shown}x")), "{error}");
}

/// The call after a transient error goes to the next server; after a permanent error, to the same server.
#[tokio::test]
async fn call_after_a_transient_error_uses_the_next_server() {
    let fault = |kind: ErrorKind| idmill_remote::protocol::WireError::of(&kind.into());
    let raw = |text: &'static str| -> Reply { Arc::new(move |_| text.as_bytes().to_vec()) };
    let said = |said: Said| -> Reply { Arc::new(move |request| answer(request.number, said.clone())) };
    let one = |kind| Said::Grants(vec![Outcome::Failed(fault(kind))]);
    for (reply, is_left) in [
        (raw("-TRYAGAIN the store is unavailable\r\n"), true),
        (raw("-NOPERM the token lacks the right `reserve`\r\n"), false),
        (said(Said::Failed(fault(ErrorKind::Unavailable))), true),
        (said(Said::Failed(fault(ErrorKind::UnknownOutcome))), true),
        (said(Said::Failed(fault(ErrorKind::Denied))), false),
        (said(one(ErrorKind::Unavailable)), true),
        (said(one(ErrorKind::Exhausted)), false),
    ] {
        let calls = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
        let server = async |at: usize| {
            let (reply, calls) = (reply.clone(), calls[at].clone());
            Stranger::saying(move |request| {
                calls.fetch_add(1, Ordering::Relaxed);
                reply(request)
            })
            .await
        };
        let (first, second) = (server(0).await, server(1).await);
        let store = open(&[first.address, second.address], "timeout=20s").await.unwrap();
        let mut seen = Vec::new();
        for _ in 0..6 {
            let error = reserve(&store, "s", 1).await.unwrap_err();
            seen.push(calls.each_ref().map(|calls| calls.load(Ordering::Relaxed)));
            assert_eq!(error.status() != Status::Permanent, is_left, "{error}");
        }
        let alternating = [[1, 0], [1, 1], [2, 1], [2, 2], [3, 2], [3, 3]];
        let staying = [[1, 0], [2, 0], [3, 0], [4, 0], [5, 0], [6, 0]];
        assert_eq!(seen, if is_left { alternating } else { staying });
    }
}

/// A connection attempt gets only a part of the timeout, so that the other servers get the rest.
#[tokio::test]
async fn server_that_accepts_and_is_silent_is_skipped() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = Running::over(idmill::store::MemoryStore::new()).await;
    let remote = open(&[silent.local_addr().unwrap(), server.address], "timeout=8s").await.unwrap();
    assert_eq!(reserve(&remote, "s", 3).await.unwrap().range.len(), 3);
}

/// The server has read the whole request before it rejects the request.
#[tokio::test]
async fn connection_is_kept_after_an_error_reply() {
    for reply in ["-NOPERM the token lacks the right `reserve`\r\n", "-TRYAGAIN the store is unavailable\r\n"]
    {
        let greeted = Arc::new(AtomicUsize::new(0));
        let counted = greeted.clone();
        let greeting = move |number| {
            counted.fetch_add(1, Ordering::Relaxed);
            answer(number, Said::Capabilities(Capabilities::new(Durability::Disk).shared(true)))
        };
        let stranger = Stranger::greeting(greeting, |_| reply.as_bytes().to_vec()).await;
        let store = stranger.open().await;
        for _ in 0..3 {
            assert!(reserve(&store, "s", 1).await.is_err());
        }
        assert_eq!(greeted.load(Ordering::Relaxed), 1, "{reply}");
    }
}

/// A version mismatch is reported in either direction, and no request is executed.
#[tokio::test]
async fn version_mismatch_is_reported() {
    let newer = Stranger::greeting(
        |_| b"-NOPROTO this server supports version 2 of IDMILL.STORE\r\n".to_vec(),
        |_| Vec::new(),
    )
    .await;
    let older =
        Stranger::greeting(|_| b"-ERR unknown command 'idmill.store'\r\n".to_vec(), |_| Vec::new()).await;
    for (server, says) in [(&newer, "version 2"), (&older, "version 1")] {
        let error = open(&[server.address], "timeout=20s").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains(says) && error.to_string().contains("IDMILL.STORE"), "{error}");
    }
    // During a rolling upgrade, the client uses the server with its own version.
    let server = Running::over(idmill::store::MemoryStore::new()).await;
    let remote = open(&[newer.address, older.address, server.address], "timeout=20s").await.unwrap();
    assert_eq!(remote.reserve(&request("s", 3)).await.unwrap().range.len(), 3);
}

/// Tests how a server handles a newer client, or another program.
#[tokio::test]
async fn server_rejects_unknown_requests() {
    let server = Running::over(idmill::store::MemoryStore::new()).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let remove = br#"{"number":1,"ask":{"remove":"s"}}"#;
    let more = br#"{"number":1,"ask":{"remove":"s"},"unless":"seen"}"#;
    for (version, request, says) in [
        ("2", &remove[..], "-NOPROTO this server supports version 1 of IDMILL.STORE"),
        ("", remove, "-NOPROTO"),
        ("1", more, "-ERR the request is not valid in version 1"),
        ("1", b"\xff", "-ERR the request is not valid in version 1"),
        ("1", remove, "$"),
    ] {
        let head = format!("*3\r\n$12\r\nIDMILL.STORE\r\n${}\r\n{version}\r\n", version.len());
        stream.write_all(&[head.as_bytes(), &bulk(request)].concat()).await.unwrap();
        let mut bytes = vec![0; 4096];
        let read = stream.read(&mut bytes).await.unwrap();
        let said = String::from_utf8_lossy(&bytes[..read]);
        assert!(said.starts_with(says), "{said}");
    }
}
