//! The other end of a connection: its address, its certificate and its token.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use derive_more::Display;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::access::{Caller, ConnectionPermit, Refusal};
use crate::tls::{self, Stream};

/// Delay after the first wrong token. Each further wrong token doubles the delay.
const PAUSE: Duration = Duration::from_millis(100);
/// Number of wrong tokens after which a connection is closed.
const GUESSES: u32 = 5;

/// One connection.
#[derive(Debug, Default, Display)]
#[display("{}", address.map_or_else(|| "unknown".to_owned(), |address| address.to_string()))]
pub(crate) struct Peer {
    address: Option<SocketAddr>,
    /// The subject of the client's certificate.
    pub(crate) subject: Option<String>,
    guesses: AtomicU32,
    /// When bytes last arrived over HTTP; moved on by the time of successful draws.
    arrived: Mutex<Option<Instant>>,
    /// Notified to disconnect the client, even if it reads nothing.
    pub(crate) cut: Notify,
    /// Counts the connection towards the token that the client sent last.
    permit: Mutex<Option<ConnectionPermit>>,
}

impl Peer {
    pub(crate) fn of(stream: &Stream) -> Self {
        let (stream, shown) = match stream {
            Stream::Left(stream) => (stream, None),
            Stream::Right(stream) => (stream.get_ref().0, stream.get_ref().1.peer_certificates()),
        };
        let subject = shown.and_then(|chain| tls::subject(chain.first()?));
        Self { address: stream.peer_addr().ok(), subject, ..Self::default() }
    }

    /// Notes that bytes arrived.
    pub(crate) fn came(&self) {
        *self.arrived.lock() = Some(Instant::now());
    }

    /// Returns when the bytes of the current request arrived. Pipelined requests that arrived together share
    /// the time to wait for ids.
    pub(crate) fn arrived(&self) -> Instant {
        self.arrived.lock().unwrap_or_else(Instant::now)
    }

    /// Runs a wait of a draw. Only the time of failed waits counts, as over the Redis protocol.
    pub(crate) async fn waited<T, E>(&self, wait: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        let begun = Instant::now();
        let outcome = wait.await?;
        if let Some(at) = &mut *self.arrived.lock() {
            // Bytes may have arrived since.
            *at = (*at + begun.elapsed()).min(Instant::now());
        }
        Ok(outcome)
    }

    /// Counts the connection towards this token, and no longer towards the previous token.
    pub(crate) fn shows(&self, caller: &Caller) -> Result<(), Refusal> {
        caller.connects(&mut self.permit.lock())
    }

    /// Stops counting the connection towards a token, because the connection has no token any more.
    pub(crate) fn forgets(&self) {
        *self.permit.lock() = None;
    }

    /// Delays the answer to a wrong token. Returns whether the connection must be closed.
    ///
    /// Tokens are too long to guess. The delay protects the other clients from the load of many attempts.
    pub(crate) async fn guessed(&self) -> bool {
        // Relaxed: the requests of a connection are sequential.
        let before = self.guesses.fetch_add(1, Ordering::Relaxed).min(GUESSES - 1);
        sleep(PAUSE * 2_u32.pow(before)).await;
        before + 1 >= GUESSES
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    use super::*;
    use crate::access::Access;
    use crate::state::ServerState;
    use crate::{http, resp};

    /// Returns the time to the answer in milliseconds, and the first bytes of the answer.
    async fn asked(stream: &mut DuplexStream, text: &str) -> (u128, String) {
        let (before, mut answer) = (Instant::now(), vec![0; 4096]);
        stream.write_all(text.as_bytes()).await.unwrap();
        let len = stream.read(&mut answer).await.unwrap();
        (before.elapsed().as_millis(), String::from_utf8_lossy(&answer[..len]).into_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn wrong_tokens_delay_then_disconnect_a_redis_client() {
        let (mut client, served) = tokio::io::duplex(1 << 16);
        tokio::spawn(resp::serve(ServerState::of_memory(Access::by([])), served, Peer::default(), 1));
        for wait in [100, 200, 400, 800] {
            let (waited, answer) = asked(&mut client, "AUTH wrong\r\n").await;
            assert!(waited == wait && answer.starts_with("-WRONGPASS"), "{waited} ms: {answer}");
            // `RESET` and other commands do not shorten the delay.
            assert_eq!(asked(&mut client, "RESET\r\n").await, (0, "+RESET\r\n".to_owned()));
            assert!(asked(&mut client, "INCR s\r\n").await.1.starts_with("-NOAUTH"));
        }
        let (waited, answer) = asked(&mut client, "HELLO 3 AUTH default wrong\r\nPING\r\n").await;
        assert!(
            waited == 1600 && answer.starts_with("-WRONGPASS") && !answer.contains("PONG"),
            "{waited} ms: {answer}"
        );
        assert_eq!(client.read(&mut [0; 64]).await.unwrap(), 0, "the connection is open");
    }

    #[tokio::test(start_paused = true)]
    async fn wrong_tokens_slow_a_client_of_http_down_and_then_end_it() {
        let (mut client, served) = tokio::io::duplex(1 << 16);
        let state = ServerState::of_memory(Access::by([]));
        let (router, ending) =
            (http::router(state.clone(), http::Hosts::of(Vec::new(), None), None), state.ending.clone());
        tokio::spawn(http::serve(served, Peer::default(), router, ending));
        for (wait, last) in [(100, false), (200, false), (400, false), (800, false), (1600, true)] {
            let request = "GET /v1/sequences HTTP/1.1\r\nHost: ids\r\nAuthorization: Bearer wrong\r\n\r\n";
            let (waited, answer) = asked(&mut client, request).await;
            assert!(waited == wait && answer.starts_with("HTTP/1.1 401"), "{waited} ms: {answer}");
            assert_eq!(answer.contains("connection: close"), last, "{answer}");
        }
        assert_eq!(client.read(&mut [0; 64]).await.unwrap(), 0, "the connection is open");
    }

    #[tokio::test]
    async fn connection_without_a_token_frees_its_place() {
        let secret = crate::access::Secret::fresh().unwrap();
        let any = vec![crate::access::Pattern::any()];
        let mut token = crate::access::Token::new("shop", secret.hash(), crate::access::Rights::ALL, any);
        token.max_connections = Some(1);
        let access = Access::by([token]);
        let caller = access.caller(secret.reveal()).unwrap();
        let (one, other) = (Peer::default(), Peer::default());
        assert_eq!((one.shows(&caller), other.shows(&caller)), (Ok(()), Err(Refusal::Connections(1))));
        one.forgets();
        assert_eq!(other.shows(&caller), Ok(()));
    }
}
