//! One connection: reads commands, answers them in their order, and holds no more than a little of either.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use futures_util::poll;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::reply::{Answer, Replies};
use super::request::{Words, parse};
use super::session::{Failure, Session};
use crate::core::Core;
use crate::peer::Peer;

/// What an idle connection keeps of either buffer.
const KEPT: usize = 4 * 1024;
/// What is read at once.
const READ: usize = 16 * 1024;
/// Answers are written when there are so many, and nothing is read until they are.
const FULL: usize = 64 * 1024;
/// How long a client may take over the rest of a command, and over taking answers off our hands.
const PATIENCE: Duration = Duration::from_secs(60);

/// Serves one client until it leaves, or breaks the protocol, or the server ends.
pub(crate) async fn serve<S>(core: Arc<Core>, stream: S, peer: Peer, id: i64)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let ending = core.ending.clone();
    let mut connection = Connection {
        stream,
        read: BytesMut::new(),
        words: Words::default(),
        replies: Replies::new(),
        ids: 0,
        session: Session::new(core, Arc::new(peer), id),
    };
    if let Err(error) = connection.serve(&ending).await {
        tracing::debug!(id, lost = connection.ids, %error, "a connection broke");
    }
}

struct Connection<S> {
    stream: S,
    read: BytesMut,
    words: Words,
    replies: Replies,
    /// So many are in answers that were not written.
    ids: u64,
    session: Session,
}

/// However it ended: a client may also be cut off while it is answered.
impl<S> Drop for Connection<S> {
    fn drop(&mut self) {
        let lost = self.ids + self.session.drawn;
        if lost > 0 {
            metrics::counter!(crate::measures::UNREAD).increment(lost);
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    async fn serve(&mut self, ending: &CancellationToken) -> io::Result<()> {
        let mut ending = pin!(ending.cancelled());
        loop {
            self.answer_all().await?;
            if self.session.ends {
                return self.stream.shutdown().await;
            }
            self.rest();
            let begun = !self.read.is_empty();
            self.read.reserve(if begun { READ } else { KEPT });
            let read = self.stream.read_buf(&mut self.read);
            let read = async { if begun { timeout(PATIENCE, read).await? } else { read.await } };
            let read = tokio::select! {
                biased;
                () = &mut ending => return self.stream.shutdown().await,
                read = read => read?,
            };
            if read == 0 {
                return Ok(());
            }
            if let Err(refusal) = self.session.confirm() {
                self.replies.answer(&Failure::Refused(refusal).answer());
                self.session.ends = true;
            }
        }
    }

    /// Answers every command that is whole.
    async fn answer_all(&mut self) -> io::Result<()> {
        while !self.session.ends {
            match parse(&self.read, &mut self.words) {
                Ok(None) => break,
                Ok(Some(past)) => {
                    self.answer().await?;
                    self.read.advance(past);
                }
                Err(fault) => {
                    self.replies.answer(&Answer::error(fault.message()));
                    self.session.ends = true;
                }
            }
            if self.replies.bytes().len() >= FULL {
                self.write().await?;
            }
        }
        self.write().await
    }

    async fn answer(&mut self) -> io::Result<()> {
        let command = self.words.of(&self.read);
        if let Some(id) = self.session.incr(command) {
            self.ids += 1;
            self.replies.integer(id);
            return Ok(());
        }
        if command.len() == 0 {
            return Ok(());
        }
        // What was answered already is not kept from the client by what has to wait.
        let answer = {
            let mut answer = pin!(self.session.answer(command));
            match poll!(&mut answer) {
                std::task::Poll::Ready(answer) => answer,
                std::task::Poll::Pending => {
                    write(&mut self.stream, &mut self.replies, &mut self.ids).await?;
                    answer.await
                }
            }
        };
        self.ids += std::mem::take(&mut self.session.drawn);
        self.replies.version = self.session.version;
        self.replies.answer(&answer);
        Ok(())
    }

    async fn write(&mut self) -> io::Result<()> {
        write(&mut self.stream, &mut self.replies, &mut self.ids).await
    }

    /// Lets go of what only a busy connection needs.
    fn rest(&mut self) {
        if self.read.is_empty() && self.read.capacity() > READ {
            self.read = BytesMut::new();
        }
    }
}

async fn write<S: AsyncWrite + Unpin>(
    stream: &mut S,
    replies: &mut Replies,
    ids: &mut u64,
) -> io::Result<()> {
    if replies.bytes().is_empty() {
        return Ok(());
    }
    timeout(PATIENCE, async {
        stream.write_all(replies.bytes()).await?;
        stream.flush().await
    })
    .await??;
    replies.clear(KEPT);
    *ids = 0;
    Ok(())
}
