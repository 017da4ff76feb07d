//! One connection, and how long it may take.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use idmill::ErrorKind;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::problem::Problem;
use crate::peer::Peer;

/// How long a client may take over its next request, and over the rest of one.
const PATIENCE: Duration = Duration::from_secs(60);
/// What is held of a request's head, and of answers that are not read.
const HELD: usize = 64 * 1024;

/// Serves one client until it leaves, or takes too long, or the server ends: then it is answered first.
pub(crate) async fn serve<S>(stream: S, peer: Peer, router: Router, ending: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (peer, router) = (Arc::new(peer), TowerToHyperService::new(router));
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(peer.clone());
        router.call(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(HELD)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let outcome = tokio::select! {
        outcome = &mut connection => outcome,
        () = ending.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = outcome {
        tracing::debug!(%error, "a connection broke");
    }
}

/// A request whose rest does not come is given up; a draw has a patience of its own, which is shorter.
pub(super) async fn in_time(request: Request, next: Next) -> Response {
    timeout(PATIENCE, next.run(request)).await.unwrap_or_else(|_| {
        let detail = "the rest of the request did not come in time; send it at once";
        Problem::new(StatusCode::REQUEST_TIMEOUT, ErrorKind::Deadline, detail).into_response()
    })
}
