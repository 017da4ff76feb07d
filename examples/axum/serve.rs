//! The common parts of the three services: metrics, health, errors, and shutdown.

use std::env;
use std::error::Error;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use idmill::{Allocator, Health, Sequences, Status};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

pub(crate) type AnyError = Box<dyn Error + Send + Sync>;

/// The time limit for requests in progress after a signal to end.
const GRACE: Duration = Duration::from_secs(10);

/// The pages for monitoring.
pub(crate) fn watched(ids: Sequences, orders: Allocator<i64>, metrics: PrometheusHandle) -> Router {
    let page = async move || {
        ids.record_metrics(); // current values, not those of the last refill
        metrics.run_upkeep();
        metrics.render()
    };
    Router::new().route("/metrics", get(page)).route("/health", get(async move || health(&orders)))
}

/// While there are ids in memory, a failing store is no reason to take the service down.
fn health(orders: &Allocator<i64>) -> (StatusCode, String) {
    let health = orders.snapshot().health();
    let status = if health == Health::Empty { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    (status, format!("{health:?}\n"))
}

/// Serves until SIGTERM or Ctrl-C, and then until the requests in progress have been answered.
pub(crate) async fn until_told_to_end(app: Router) -> Result<(), AnyError> {
    let (told, told_too) = (told_to_end()?, told_to_end()?);
    let listener = TcpListener::bind(env::var("LISTEN").as_deref().unwrap_or("127.0.0.1:3000")).await?;
    println!("listening on {}", listener.local_addr()?);
    // A client that never finishes its request must not prevent the give-back of ids.
    let too_long = async {
        told_too.await;
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        served = axum::serve(listener, app).with_graceful_shutdown(told) => served?,
        () = too_long => eprintln!("requests still in progress {GRACE:?} after the signal are aborted"),
    }
    Ok(())
}

/// Listens for signals from the call on, not from the first poll of the future.
fn told_to_end() -> Result<impl Future<Output = ()>, AnyError> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// An error response.
pub(crate) struct Failure(pub(crate) StatusCode, pub(crate) &'static str);

/// The error itself is only logged: an idmill error contains the remedy.
impl<E: Into<AnyError>> From<E> for Failure {
    fn from(error: E) -> Self {
        let error = error.into();
        eprintln!("{error}");
        match error.downcast_ref().map(idmill::Error::status) {
            Some(Status::Permanent) => Self(StatusCode::INTERNAL_SERVER_ERROR, "a repeat would fail too\n"),
            Some(Status::Unknown) => Self(StatusCode::GATEWAY_TIMEOUT, "the outcome is unknown\n"),
            // The most likely error of the pool and the driver is an unreachable database.
            _ => Self(StatusCode::SERVICE_UNAVAILABLE, "try again\n"),
        }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        (self.0, self.1).into_response()
    }
}

/// The order does not exist.
pub(crate) const UNKNOWN: Failure = Failure(StatusCode::NOT_FOUND, "no such order\n");
/// An order has at most one invoice.
pub(crate) const BILLED: Failure = Failure(StatusCode::CONFLICT, "the order already has an invoice\n");

/// One number per line.
pub(crate) fn lines(numbers: &[i64]) -> String {
    numbers.iter().map(|number| number.to_string() + "\n").collect()
}

#[cfg(test)]
mod tests {
    use idmill::{Error, ErrorKind};

    use super::*;

    #[test]
    fn response_tells_clients_whether_to_repeat() {
        let failed = |kind| Failure::from(Error::from(kind)).0.as_u16();
        assert_eq!(failed(ErrorKind::Unavailable), 503);
        assert_eq!(failed(ErrorKind::Denied), 500);
        assert_eq!(failed(ErrorKind::Exhausted), 500);
        assert_eq!(failed(ErrorKind::UnknownOutcome), 504);
        assert_eq!(Failure::from("the pool timed out").0.as_u16(), 503);
    }
}
