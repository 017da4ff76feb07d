//! One Redis connection: reads commands, answers them in order, and bounds the read and the reply buffer.

use std::future::pending;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use futures_util::poll;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::reply::{Answer, Replies};
use super::request::{LONGEST, Words, parse};
use super::session::{CommandError, Queue, Session};
use crate::counters;
use crate::peer::Peer;
use crate::state::ServerState;

/// Least space per read; capacity of an idle output buffer.
const KEPT: usize = 4 * 1024;
/// Minimum space for a read of a partial command.
const READ: usize = 16 * 1024;
/// If the pending answers have this size, they are written before more commands are read.
const FULL: usize = 64 * 1024;
/// A client that sends nothing for this long counts as idle, with nothing in flight.
const QUIET: Duration = Duration::from_millis(200);
/// Timeout for the rest of a command, and for writing answers.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How long a command continues after the client has closed its side: a client may close it before it reads
/// the answers.
const GONE: Duration = Duration::from_secs(1);
/// Space for each read while an answer is awaited.
const AHEAD: usize = 512;
/// How long a client may stay connected without a valid token, if one is required.
const LOGIN: Duration = Duration::from_secs(10);

/// Serves one client until it disconnects or violates the protocol, or the server shuts down.
pub(crate) async fn serve<S>(state: Arc<ServerState>, stream: S, peer: Peer, id: i64)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let ending = state.ending.clone();
    let mut connection = Connection {
        io: Io { stream, ahead: BytesMut::new(), ahead_since: None, replies: Replies::new(), ids: 0 },
        read: BytesMut::new(),
        words: Words::default(),
        session: Session::new(state, Arc::new(peer), id),
    };
    if let Err(error) = connection.serve(&ending).await {
        tracing::debug!(id, lost = connection.io.ids, %error, "a connection broke");
    }
}

struct Connection<S> {
    io: Io<S>,
    read: BytesMut,
    words: Words,
    session: Session,
}

/// The client's stream, and the answers to be written to it.
struct Io<S> {
    stream: S,
    /// Bytes that arrived while an answer was awaited. They follow those in [`Connection::read`].
    ahead: BytesMut,
    /// When the first of them arrived.
    ahead_since: Option<Instant>,
    replies: Replies,
    /// Number of ids in answers that are not written yet.
    ids: u64,
}

/// Counts unread ids however the connection ends, even if the client is cut off during an answer.
impl<S> Drop for Connection<S> {
    fn drop(&mut self) {
        counters::unread(self.io.ids + self.session.drawn);
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    async fn serve(&mut self, ending: &CancellationToken) -> io::Result<()> {
        let mut ending = pin!(ending.cancelled());
        // The deadline for the rest of a command, or for the next command of a transaction. Only a complete
        // command extends the deadline.
        let mut due = None;
        // The deadline for a valid token. A wrong token or `RESET` does not extend the deadline.
        let mut login = None;
        loop {
            let came = self.read.len();
            self.answer_all().await?;
            if let Err(refusal) = self.session.hold(self.read.len().saturating_sub(READ)) {
                self.io.replies.answer(&CommandError::Refused(refusal).answer());
                self.session.ends = true;
                self.write().await?;
            }
            if self.session.ends {
                return self.io.stream.shutdown().await;
            }
            self.rest();
            let begun = !self.read.is_empty();
            let open = begun || self.session.queue.is_some();
            if !open || self.read.len() < came {
                due = None;
            }
            if open && due.is_none() {
                due = Some(Instant::now() + TIMEOUT);
            }
            if self.session.caller.is_some() {
                login = None;
            } else if *login.get_or_insert_with(|| Instant::now() + LOGIN) <= Instant::now() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.read.reserve(if begun && login.is_none() { READ } else { KEPT });
            let read = self.io.stream.read_buf(&mut self.read);
            let read = async {
                match [due, login].into_iter().flatten().min() {
                    Some(due) => timeout_at(due, read).await?,
                    None => read.await,
                }
            };
            let read = tokio::select! {
                biased;
                () = &mut ending => return self.leave().await,
                read = read => read?,
            };
            if read == 0 {
                return Ok(());
            }
            self.session.came(Instant::now());
            if let Err(refusal) = self.session.confirm() {
                self.io.replies.answer(&CommandError::Refused(refusal).answer());
                self.session.ends = true;
            }
        }
    }

    /// Shuts down the write side, and drains the read side. Closing a connection with unread bytes resets it,
    /// and answers in flight would be lost. A client that never stops sending is cut off after the shutdown
    /// timeout.
    async fn leave(&mut self) -> io::Result<()> {
        self.io.stream.shutdown().await?;
        loop {
            self.read.clear();
            self.read.reserve(READ);
            match timeout(QUIET, self.io.stream.read_buf(&mut self.read)).await {
                Ok(Ok(1..)) => {}
                _ => return Ok(()),
            }
        }
    }

    /// Answers every complete command.
    async fn answer_all(&mut self) -> io::Result<()> {
        while !self.session.ends {
            match parse(&self.read, &mut self.words, self.session.longest()) {
                Ok(None) => match self.io.ahead_since.take() {
                    None => break,
                    Some(since) => {
                        self.session.came(since);
                        self.read.unsplit(std::mem::take(&mut self.io.ahead));
                    }
                },
                Ok(Some(past)) => {
                    self.answer().await?;
                    self.read.advance(past);
                }
                Err(error) => {
                    self.io.replies.answer(&Answer::error(error.message()));
                    self.session.ends = true;
                }
            }
            if self.io.replies.bytes.len() >= FULL {
                self.write().await?;
            }
        }
        self.write().await
    }

    async fn answer(&mut self) -> io::Result<()> {
        let command = self.words.of(&self.read);
        if let Some(id) = self.session.incr(command) {
            self.io.ids += 1;
            self.io.replies.integer(id);
            return Ok(());
        }
        if command.len() == 0 {
            return Ok(());
        }
        match self.session.exec(command) {
            None => {
                let answer = Box::pin(self.session.answer(command));
                let answer = self.io.soon(answer).await?;
                self.note(&answer);
            }
            Some(Err(answer)) => self.note(&answer),
            Some(Ok(queue)) => self.carry_out(&queue).await?,
        }
        Ok(())
    }

    /// Answers each command as soon as it is executed, because all answers together may exceed the buffer
    /// of a client.
    async fn carry_out(&mut self, queue: &Queue) -> io::Result<()> {
        self.io.replies.list(queue.commands);
        let (mut words, mut rest) = (Words::default(), &queue.bytes[..]);
        // Parsing cannot fail, because each command was parsed when it was queued.
        while let Ok(Some(past)) = parse(rest, &mut words, LONGEST) {
            let outcome = Box::pin(self.session.outcome(words.of(rest)));
            rest = &rest[past..];
            let outcome = self.io.soon(outcome).await?;
            self.note(&outcome.unwrap_or_else(CommandError::answer));
            if self.io.replies.bytes.len() >= FULL {
                self.write().await?;
            }
        }
        Ok(())
    }

    fn note(&mut self, answer: &Answer) {
        self.io.ids += std::mem::take(&mut self.session.drawn);
        self.io.replies.version = self.session.version;
        self.io.replies.answer(answer);
    }

    async fn write(&mut self) -> io::Result<()> {
        if self.io.replies.bytes.is_empty() {
            return Ok(());
        }
        let begun = Instant::now();
        self.io.write().await?;
        self.session.used(begun);
        Ok(())
    }

    /// Frees memory that only a busy connection needs.
    fn rest(&mut self) {
        if self.read.is_empty() && self.read.capacity() > READ {
            self.read = BytesMut::new();
        }
        self.words.shrink();
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Io<S> {
    /// Awaits `answer`, but first writes the earlier answers if it has to wait. Fails if the client
    /// disconnects meanwhile: the store need not grant ids to it. `answer` is boxed to keep the connection's
    /// future small: most connections are idle.
    async fn soon<T>(&mut self, mut answer: Pin<Box<impl Future<Output = T>>>) -> io::Result<T> {
        if let Poll::Ready(answer) = poll!(&mut answer) {
            return Ok(answer);
        }
        self.write().await?;
        tokio::select! {
            biased;
            answer = answer => Ok(answer),
            () = Box::pin(self.gone()) => Err(io::ErrorKind::ConnectionAborted.into()),
        }
    }

    /// Completes [`GONE`] after the client has disconnected. Up to [`READ`] bytes that arrive are kept in
    /// `ahead`; a client that sends more is not watched.
    async fn gone(&mut self) {
        while self.ahead.len() < READ {
            self.ahead.reserve(AHEAD);
            if !matches!(self.stream.read_buf(&mut self.ahead).await, Ok(1..)) {
                return sleep(GONE).await;
            }
            self.ahead_since.get_or_insert_with(Instant::now);
        }
        pending::<()>().await;
    }

    async fn write(&mut self) -> io::Result<()> {
        if self.replies.bytes.is_empty() {
            return Ok(());
        }
        timeout(TIMEOUT, async {
            self.stream.write_all(&self.replies.bytes).await?;
            self.stream.flush().await
        })
        .await??;
        self.replies.clear(KEPT);
        self.ids = 0;
        Ok(())
    }
}
