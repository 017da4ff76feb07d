//! A connection to memcached that all callers of a window share.
//!
//! Existing client crates are not suitable: they give a connection to one caller at a time, and most resend
//! a command when a connection breaks. This module pipelines the commands of all callers and never resends
//! a command. A dropped caller does not disturb the order of the replies, and a failure shows whether the
//! command was sent.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use idmill_kit::no_answer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};

use super::dial::{Dial, Stream};
use super::wire::{NOOP, Reply, parse};

/// Maximum number of exchanges that wait to be sent, and of exchanges that wait for replies. Further
/// callers wait.
const DEPTH: usize = 128;
/// Advice for a server that does not support the protocol.
const MODERN: &str = "use memcached 1.6, without a proxy";

/// The reason why there is no reply. Error replies are [`Reply`]s.
pub(super) type Fault = idmill_kit::Fault<Infallible>;

/// A connection. It is closed when it is dropped, after an error, or when a call that had at least half of
/// the timeout gets no reply.
#[derive(Debug)]
pub(super) struct Connection {
    /// Unique among the connections of the window.
    pub(super) number: u64,
    queue: mpsc::Sender<Exchange>,
    task: AbortHandle,
    timeout: Duration,
}

/// Commands that are sent together, their replies so far, and the caller that waits for them.
#[derive(Debug)]
struct Exchange {
    bytes: Vec<u8>,
    expected: usize,
    replies: Vec<Reply>,
    sent: bool,
    reason: Option<Arc<str>>,
    caller: Option<oneshot::Sender<Result<Vec<Reply>, Fault>>>,
}

impl Connection {
    /// Connects and checks that the server supports meta commands. No draw is sent before the server has
    /// replied once. Otherwise a hanging server would receive draws whose callers have timed out.
    pub(super) async fn open(
        dial: &dyn Dial,
        address: &str,
        number: u64,
        timeout: Duration,
    ) -> Result<Self, Arc<str>> {
        let opened = tokio::time::timeout(timeout, greet(dial, address)).await;
        let stream = opened.unwrap_or_else(|_| Err(no_answer(timeout).into()))?;
        let (queue, waiting) = mpsc::channel(DEPTH);
        let task = tokio::spawn(async move {
            let mut pipeline = Pipeline { stream, waiting, pending: VecDeque::new(), input: Vec::new() };
            let reason = pipeline.run().await;
            pipeline.fail(&reason).await;
        });
        Ok(Self { number, queue, task: task.abort_handle(), timeout })
    }

    pub(super) fn is_closed(&self) -> bool {
        self.queue.is_closed()
    }

    /// Sends commands together, once, and waits for their replies until the deadline. If the future is
    /// dropped, the commands may or may not be sent.
    pub(super) async fn exchange(
        &self,
        bytes: Vec<u8>,
        expected: usize,
        deadline: Instant,
    ) -> Result<Vec<Reply>, Fault> {
        let began = Instant::now();
        if began >= deadline {
            return Err(Fault::not_sent("the deadline of the call has passed"));
        }
        let (caller, mut reply) = oneshot::channel();
        let exchange = Exchange {
            bytes,
            expected,
            replies: Vec::new(),
            sent: false,
            reason: None,
            caller: Some(caller),
        };
        match timeout_at(deadline, self.queue.send(exchange)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return Err(Fault::not_sent("the connection is closed")),
            Err(_) => return Err(Fault::not_sent("too many commands are already waiting")),
        }
        if let Ok(answer) = timeout_at(deadline, &mut reply).await {
            return answer.unwrap_or_else(|_| Err(Fault::lost("the connection was abandoned")));
        }
        // If the call had to wait for the connection, little time was left for the reply. The connection
        // may be healthy, so it is kept.
        if began.elapsed() < self.timeout / 2 {
            return Err(Fault::silent(self.timeout));
        }
        // The connection is no longer usable. Aborting its task drops the pending exchanges, and each drop
        // sends a failure to its caller.
        self.task.abort();
        match reply.await {
            Ok(Err(Fault::NotSent(_))) => Err(Fault::not_sent(no_answer(self.timeout))),
            Ok(Ok(replies)) => Ok(replies),
            _ => Err(Fault::silent(self.timeout)),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let Some(caller) = self.caller.take() else { return };
        let reason = self.reason.take().unwrap_or_else(|| "the connection was abandoned".into());
        let fault = if self.sent { Fault::lost(&*reason) } else { Fault::not_sent(reason.to_string()) };
        // Fails if the caller was dropped.
        let _ = caller.send(Err(fault));
    }
}

async fn greet(dial: &dyn Dial, address: &str) -> Result<Box<dyn Stream>, Arc<str>> {
    let connected = async {
        let mut stream = dial.dial(address).await?;
        stream.write_all(NOOP).await?;
        let mut answer = [0; 4];
        stream.read_exact(&mut answer).await?;
        std::io::Result::Ok((stream, answer))
    };
    let (stream, answer) = connected.await.map_err(|error| Arc::from(error.to_string()))?;
    if matches!(parse(&answer), Ok(Some((Reply::Noop, _)))) {
        return Ok(stream);
    }
    Err(format!("the server does not support meta commands; {MODERN}").into())
}

/// State of the task that owns the socket.
struct Pipeline {
    stream: Box<dyn Stream>,
    waiting: mpsc::Receiver<Exchange>,
    /// Sent exchanges; replies arrive in this order.
    pending: VecDeque<Exchange>,
    input: Vec<u8>,
}

impl Pipeline {
    /// Runs until an error occurs or the connection is dropped. Returns the reason.
    async fn run(&mut self) -> Arc<str> {
        loop {
            let outcome = match self.next().await {
                Event::Send(exchange) => self.send(exchange).await,
                Event::Received => self.deliver(),
                Event::End(reason) => Err(reason),
            };
            if let Err(reason) = outcome {
                return reason;
            }
        }
    }

    async fn next(&mut self) -> Event {
        let read = std::pin::pin!(self.stream.read_buf(&mut self.input));
        let full = self.pending.len() >= DEPTH;
        let waiting = &mut self.waiting;
        let send =
            std::pin::pin!(
                async move { if full { std::future::pending().await } else { waiting.recv().await } }
            );
        match select(read, send).await {
            Either::Left((Ok(0), _)) => Event::End("the server closed the connection".into()),
            Either::Left((Ok(_), _)) => Event::Received,
            Either::Left((Err(error), _)) => Event::End(error.to_string().into()),
            Either::Right((Some(exchange), _)) => Event::Send(exchange),
            Either::Right((None, _)) => Event::End("the connection is no longer used".into()),
        }
    }

    /// Sends an exchange, and the waiting ones up to `DEPTH`, in one write.
    async fn send(&mut self, exchange: Exchange) -> Result<(), Arc<str>> {
        let mut output = Vec::new();
        let mut next = Some(exchange);
        while let Some(mut exchange) = next {
            // Skip exchanges whose caller was dropped: the ids drawn for them would become a gap.
            if exchange.caller.as_ref().is_some_and(|caller| !caller.is_closed()) {
                output.append(&mut exchange.bytes);
                exchange.sent = true;
                self.pending.push_back(exchange);
            }
            next = if self.pending.len() < DEPTH { self.waiting.try_recv().ok() } else { None };
        }
        self.stream.write_all(&output).await.map_err(|error| error.to_string().into())
    }

    /// Delivers all complete replies in the input.
    fn deliver(&mut self) -> Result<(), Arc<str>> {
        let understood =
            |bytes: &[u8]| parse(bytes).map_err(|bad| Arc::from(format!("invalid memcached reply: {bad:?}")));
        while let Some((reply, len)) = understood(&self.input)? {
            self.input.drain(..len);
            let Some(mut exchange) = self.pending.pop_front() else {
                return Err("the server sent an unexpected reply".into());
            };
            // After an error reply, the server may have misread the commands that follow, so no later reply
            // is valid.
            let error = if let Reply::Error(text) = &reply { Some(explained(text)) } else { None };
            exchange.replies.push(reply);
            if exchange.replies.len() < exchange.expected && error.is_none() {
                self.pending.push_front(exchange);
            } else if let Some(caller) = exchange.caller.take() {
                // Fails if the caller was dropped: the drawn ids are then a gap.
                let _ = caller.send(Ok(std::mem::take(&mut exchange.replies)));
            }
            error.map_or(Ok(()), Err)?;
        }
        Ok(())
    }

    async fn fail(&mut self, reason: &Arc<str>) {
        self.waiting.close();
        while let Some(mut exchange) = self.waiting.recv().await {
            exchange.reason = Some(reason.clone());
        }
        for exchange in &mut self.pending {
            exchange.reason = Some(reason.clone());
        }
        self.pending.clear();
    }
}

enum Event {
    Send(Exchange),
    Received,
    End(Arc<str>),
}

/// Explains an error reply, because the protocol's two-letter codes are not readable.
fn explained(text: &str) -> Arc<str> {
    match text {
        "EN" | "NS" => format!("unexpected reply {text}; {MODERN}").into(),
        "ERROR" => format!("the server does not support the command; {MODERN}").into(),
        _ => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocol_codes_are_explained() {
        for text in ["EN", "NS", "ERROR"] {
            assert!(explained(text).contains("use memcached 1.6, without a proxy"), "{text}");
        }
        assert_eq!(
            &*explained("SERVER_ERROR out of memory storing object"),
            "SERVER_ERROR out of memory storing object"
        );
    }
}
