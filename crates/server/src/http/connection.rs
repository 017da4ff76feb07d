//! One HTTP connection, and its timeouts.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use idmill::ErrorKind;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_io_timeout::TimeoutStream;
use tokio_util::io::InspectReader;
use tokio_util::sync::CancellationToken;

use super::health;
use super::problem::Problem;
use crate::counters;
use crate::peer::Peer;

/// Timeout for the next request, for the rest of a request, and for a client that does not read.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout for a client beyond the maximum number of connections.
const MOMENT: Duration = Duration::from_secs(5);
/// Buffer size for a request's head, and for unread answers.
const HELD: usize = 64 * 1024;

/// Serves one client until it disconnects or times out, or the server shuts down. A request that was read is
/// still answered.
pub(crate) async fn serve<S>(stream: S, peer: Peer, router: Router, ending: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (peer, router) = (Arc::new(peer), TowerToHyperService::new(router));
    let (reads, cuts) = (peer.clone(), peer.clone());
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(peer.clone());
        router.call(request)
    });
    let stream = InspectReader::new(stream, move |_: &[u8]| reads.came());
    let mut stream = Box::pin(TimeoutStream::new(stream));
    stream.as_mut().set_write_timeout_pinned(Some(TIMEOUT));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(TIMEOUT)
        .max_buf_size(HELD)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let outcome = tokio::select! {
        outcome = &mut connection => outcome,
        () = cuts.cut.notified() => return,
        () = ending.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = outcome {
        tracing::debug!(%error, "a connection broke");
    }
}

/// Answers one request of a client beyond the maximum: `/healthz` as usual, any other path with 503.
pub(crate) async fn refuse<S>(stream: S)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(async |request: hyper::Request<Incoming>| {
        Ok::<_, Infallible>(match request.uri().path() {
            health::ALIVE => health::alive().await.into_response(),
            _ => full().into_response(),
        })
    });
    let connection = http1::Builder::new()
        .keep_alive(false)
        .timer(TokioTimer::new())
        .max_buf_size(HELD)
        .serve_connection(TokioIo::new(stream), service);
    let _ = timeout(MOMENT, connection).await;
}

fn full() -> Problem {
    counters::refused("full");
    let detail =
        "the server has reached its maximum number of clients; retry, or keep fewer connections open";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, ErrorKind::Overloaded, detail)
}

/// Limits the time of a request, for example if its body does not arrive. By default, draws have a shorter
/// timeout.
pub(super) async fn in_time(answer: impl Future<Output = Response>) -> Response {
    timeout(TIMEOUT, answer).await.unwrap_or_else(|_| {
        let detail = "the request took more than 60 s; check whether it took effect before you retry, and \
                      send its body without a pause";
        Problem::new(StatusCode::REQUEST_TIMEOUT, ErrorKind::UnknownOutcome, detail).into_response()
    })
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::routing::get;
    use futures_util::stream;
    use tokio::io::AsyncWriteExt;

    use super::*;

    /// The answer is larger than the buffers between client and server.
    #[tokio::test(start_paused = true)]
    async fn client_that_does_not_read_is_disconnected() {
        let endless = || async {
            Body::from_stream(stream::repeat(Ok::<_, std::convert::Infallible>("x".repeat(1000))))
        };
        let router = Router::new().route("/", get(endless));
        let (mut client, server) = tokio::io::duplex(4096);
        client.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        let served =
            timeout(10 * TIMEOUT, serve(server, Peer::default(), router, CancellationToken::new())).await;
        assert!(served.is_ok(), "the client is still connected");
        drop(client);
    }
}
