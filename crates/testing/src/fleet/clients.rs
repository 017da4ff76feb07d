//! Byte-level clients for the Redis protocol and HTTP, which record each id as soon as it arrives.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::recorder::Connection;

/// The timeout of an answer: a guard against hanging.
const LONG: Duration = Duration::from_secs(120);

/// How ids are requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// This number of `INCR` in one pipeline.
    Incr(usize),
    /// One `INCRBY`.
    IncrBy(u64),
    /// One `IDMILL.TAKE`.
    Take(u64),
    /// `POST …/ids?n=`.
    Ids(u64),
    /// The same, as ranges.
    Ranges(u64),
}

impl Way {
    pub fn is_http(self) -> bool {
        matches!(self, Self::Ids(_) | Self::Ranges(_))
    }
}

/// The server's error message.
#[derive(Debug)]
pub struct Refused(pub String);

fn odd(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

async fn connected(address: SocketAddr) -> io::Result<BufReader<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(BufReader::new(stream))
}

/// A client of the Redis protocol.
#[derive(Debug)]
pub struct Resp(BufReader<TcpStream>);

impl Resp {
    pub async fn connect(address: SocketAddr) -> io::Result<Self> {
        connected(address).await.map(Self)
    }

    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.0.get_mut().write_all(bytes.as_ref()).await
    }

    /// Reads a complete line.
    pub async fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        timeout(LONG, self.0.read_line(&mut line)).await??;
        let whole = line.strip_suffix("\r\n").map(ToOwned::to_owned);
        whole.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))
    }

    /// Sends a command. Returns the first line of the answer.
    pub async fn ask(&mut self, words: &str) -> io::Result<String> {
        self.send(format!("{words}\r\n")).await?;
        self.line().await
    }

    /// Returns the stream, for bytes that are no lines.
    pub fn stream(&mut self) -> &mut BufReader<TcpStream> {
        &mut self.0
    }

    /// Returns the stream, for clients with their own protocol.
    pub fn into_stream(self) -> TcpStream {
        self.0.into_inner()
    }

    /// Draws, and records each answer as it arrives.
    pub async fn draw(
        &mut self,
        way: Way,
        sequence: &str,
        connection: &mut Connection,
    ) -> io::Result<Result<(), Refused>> {
        let asked = Instant::now();
        match way {
            Way::Incr(times) => {
                self.send(format!("INCR {sequence}\r\n").repeat(times)).await?;
                self.integers(times, |id| connection.given(id, id, asked)).await
            }
            Way::IncrBy(n) => {
                self.send(format!("INCRBY {sequence} {n}\r\n")).await?;
                self.integers(1, |last| connection.given(last + 1 - n, last, asked)).await
            }
            Way::Take(n) => {
                self.send(format!("IDMILL.TAKE {sequence} {n}\r\n")).await?;
                let head = self.line().await?;
                let Some(count) = head.strip_prefix('*') else { return Ok(Err(Refused(head))) };
                let count = count.parse().map_err(|_| odd(&*head))?;
                let mut ends = Vec::new();
                let whole = self.integers(count, |end| ends.push(end)).await?;
                ends.chunks(2).for_each(|ends| connection.given(ends[0], ends[1], asked));
                Ok(whole)
            }
            Way::Ids(_) | Way::Ranges(_) => Err(odd("HTTP requests need the HTTP port")),
        }
    }

    /// Reads this number of integers. Returns the last answer that was not an integer.
    async fn integers(&mut self, times: usize, mut each: impl FnMut(u64)) -> io::Result<Result<(), Refused>> {
        let mut outcome = Ok(());
        for _ in 0..times {
            let line = self.line().await?;
            match line.strip_prefix(':').and_then(|digits| digits.parse().ok()) {
                Some(id) => each(id),
                None => outcome = Err(Refused(line)),
            }
        }
        Ok(outcome)
    }
}

/// An HTTP client that keeps its connection.
#[derive(Debug)]
pub struct Http(BufReader<TcpStream>);

impl Http {
    pub async fn connect(address: SocketAddr) -> io::Result<Self> {
        connected(address).await.map(Self)
    }

    /// Sends a request such as `GET /readyz`. Returns the status, the head and the body of the answer.
    pub async fn ask(&mut self, request: &str) -> io::Result<(u16, String, String)> {
        timeout(LONG, self.try_ask(request)).await?
    }

    async fn try_ask(&mut self, request: &str) -> io::Result<(u16, String, String)> {
        let bytes = format!("{request} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
        self.0.get_mut().write_all(bytes.as_bytes()).await?;
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if self.0.read_line(&mut head).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        head.make_ascii_lowercase();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length = length.and_then(|digits| digits.trim().parse().ok());
        let (Some(status), Some(length)) = (status, length) else { return Err(odd(head)) };
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).await?;
        Ok((status, head, String::from_utf8(body).map_err(|_| odd("no text"))?))
    }

    /// Returns the stream, for clients with their own protocol.
    pub fn into_stream(self) -> TcpStream {
        self.0.into_inner()
    }

    /// Like [`Resp::draw`].
    pub async fn draw(
        &mut self,
        way: Way,
        sequence: &str,
        connection: &mut Connection,
    ) -> io::Result<Result<(), Refused>> {
        let asked = Instant::now();
        let (n, form) = match way {
            Way::Ids(n) => (n, "ids"),
            Way::Ranges(n) => (n, "ranges"),
            _ => return Err(odd("Redis commands need the Redis port")),
        };
        let request = format!("POST /v1/sequences/{sequence}/ids?n={n}&form={form}");
        let (status, head, body) = self.ask(&request).await?;
        if status == 503 && !head.contains("retry-after: ") {
            return Err(odd(format!("503 without Retry-After: {head}")));
        }
        if status != 200 {
            return Ok(Err(Refused(format!("{status} {body}"))));
        }
        let (_, list) = body.split_once(":[").ok_or_else(|| odd(&*body))?;
        let numbers =
            list.split(|letter: char| !letter.is_ascii_digit()).filter_map(|word| word.parse().ok());
        let numbers: Vec<u64> = numbers.collect();
        if form == "ids" {
            runs(&numbers).for_each(|(first, last)| connection.given(first, last, asked));
        } else {
            numbers.chunks(2).for_each(|ends| connection.given(ends[0], ends[1], asked));
        }
        Ok(Ok(()))
    }
}

/// The runs of consecutive ids, as their first and last.
fn runs(ids: &[u64]) -> impl Iterator<Item = (u64, u64)> {
    ids.chunk_by(|id, next| id.checked_add(1) == Some(*next)).map(|run| (run[0], run[run.len() - 1]))
}
