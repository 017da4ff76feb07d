//! A proxy between the store and the emulator. It reads each request, and handles it according to the plan
//! of the test.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// How the proxy handles a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Pass,
    /// Closes the connection before the emulator receives the request.
    CutBefore,
    /// Closes the connection after the emulator has replied, before the store receives the reply.
    CutAfter,
    /// Replies with this code and body, and does not forward the request.
    Answer(u16, &'static str),
    /// Lets the emulator execute the request, but replies with this code and body.
    AnswerAfter(u16, &'static str),
    /// Sends no reply, and does not forward the request.
    Hold,
}

/// A received request.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// The method, such as `lookup` or `commit`.
    pub(crate) method: String,
    /// Number of earlier requests with this method.
    pub(crate) nth: usize,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Seen {
    pub(crate) fn is(&self, method: &str, nth: usize) -> bool {
        self.method == method && self.nth == nth
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }
}

type Plan = Arc<dyn Fn(Seen) -> Pin<Box<dyn Future<Output = Fate> + Send>> + Send + Sync>;

pub(crate) struct Front {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    // The tasks of the proxy, which end when it is dropped.
    _serving: JoinSet<()>,
}

impl Front {
    /// Starts a proxy in front of `emulator`. `plan` determines how each request is handled, and can run
    /// other operations before it returns.
    pub(crate) async fn start<F>(
        emulator: SocketAddr,
        plan: impl Fn(Seen) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Fate> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (seen, plan): (_, Plan) = (Arc::default(), Arc::new(move |seen| Box::pin(plan(seen))));
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, emulator, Arc::clone(&seen), plan));
        Self { address, seen, _serving: serving }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().clone()
    }

    pub(crate) fn count(&self, method: &str) -> usize {
        self.seen.lock().iter().filter(|seen| seen.method == method).count()
    }
}

async fn serve(listener: TcpListener, emulator: SocketAddr, seen: Arc<Mutex<Vec<Seen>>>, plan: Plan) {
    let mut connections = JoinSet::new();
    loop {
        let (mut store, _) = listener.accept().await.unwrap();
        let (seen, plan) = (Arc::clone(&seen), Arc::clone(&plan));
        connections.spawn(async move {
            // Each connection serves one request, so that the store always sees a failure as a closed
            // connection.
            let Some(request) = read_request(&mut store, &seen).await else { return };
            let fate = plan(request.clone()).await;
            let reply = match fate {
                Fate::CutBefore => return,
                Fate::Hold => std::future::pending().await,
                Fate::Answer(number, body) => answer(number, body),
                Fate::Pass | Fate::CutAfter | Fate::AnswerAfter(..) => {
                    let Ok((head, body)) = ask(emulator, &request.head, &request.body).await else { return };
                    match fate {
                        Fate::CutAfter => return,
                        Fate::AnswerAfter(number, body) => answer(number, body),
                        _ => format!("{head}connection: close\r\n\r\n{body}").into_bytes(),
                    }
                }
            };
            let _ = store.write_all(&reply).await;
        });
    }
}

async fn read_request(store: &mut TcpStream, seen: &Mutex<Vec<Seen>>) -> Option<Seen> {
    let (head, body) = read_message(store).await.ok()?;
    let method = head.lines().next()?.split(' ').nth(1)?.rsplit(':').next()?.to_owned();
    let mut seen = seen.lock();
    let nth = seen.iter().filter(|earlier| earlier.method == method).count();
    seen.push(Seen { method, nth, head, body });
    seen.last().cloned()
}

/// Sends a request to the emulator on a separate connection. Returns the head and the body of the reply.
pub(crate) async fn ask(emulator: SocketAddr, head: &str, body: &str) -> std::io::Result<(String, String)> {
    let mut connection = TcpStream::connect(emulator).await?;
    connection.write_all(format!("{head}\r\n{body}").as_bytes()).await?;
    read_message(&mut connection).await
}

/// Reads the head, including its last line ending, and a body of the declared length.
async fn read_message(connection: &mut TcpStream) -> std::io::Result<(String, String)> {
    let mut bytes = Vec::new();
    let (mut head, mut end) = (String::new(), None);
    while end.is_none_or(|end| bytes.len() < end) {
        if connection.read_buf(&mut bytes).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        if let (None, Some(at)) = (end, bytes.windows(4).position(|window| window == b"\r\n\r\n")) {
            head = text(&bytes[..at + 2]);
            let length = header(&head, "content-length").and_then(|length| length.parse::<usize>().ok());
            end = Some(at + 4 + length.expect("both sides say how long a body is"));
        }
    }
    let body = text(&bytes[head.len() + 2..]);
    Ok((head, body))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("both sides speak UTF-8")
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then_some(value.trim())
    })
}

fn answer(number: u16, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {number} It\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}")
        .into_bytes()
}
