//! Errors as RFC 9457 problem details.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use idmill::{Error, ErrorKind, Status};
use serde::Serialize;

use crate::access::Refusal;
use crate::audit::Outcome;
use crate::counters;

/// An error response, with the kind and the status of the library's error.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Problem {
    #[serde(rename = "type")]
    of: String,
    title: &'static str,
    #[serde(serialize_with = "as_number")]
    status: StatusCode,
    detail: String,
    kind: ErrorKind,
    /// `transient`: retry the request. `permanent`: a retry fails too. `unknown`: the request may have
    /// taken effect.
    outcome: Status,
    /// The reason of a refusal, as a metric label.
    #[serde(skip)]
    refused: Option<&'static str>,
    /// The value of `Retry-After`, in seconds.
    #[serde(skip)]
    retry_after: u64,
    /// Whether the connection is closed after the response.
    #[serde(skip)]
    ends: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde requires a reference
fn as_number<S: serde::Serializer>(status: &StatusCode, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u16(status.as_u16())
}

impl Problem {
    /// Creates an error. The field `outcome` follows from `kind`.
    pub(super) fn new(status: StatusCode, kind: ErrorKind, detail: impl Into<String>) -> Self {
        let of = format!("urn:idmill:problem:{kind}");
        let title = status.canonical_reason().unwrap_or("Error");
        Self {
            of,
            title,
            status,
            detail: detail.into(),
            kind,
            outcome: kind.status(),
            refused: None,
            retry_after: 1,
            ends: false,
        }
    }

    pub(super) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, ErrorKind::InvalidInput, detail)
    }

    /// Closes the connection after this error.
    pub(super) fn last(mut self) -> Self {
        self.ends = true;
        self
    }

    /// Returns the outcome for the audit log: refused for a client error, failed for an error of the
    /// store.
    pub(super) fn outcome(&self) -> Outcome<'_> {
        if self.status.is_client_error() {
            Outcome::Refused(&self.detail)
        } else {
            Outcome::Failed(&self.detail)
        }
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let status = match error.kind() {
            ErrorKind::InvalidInput => StatusCode::BAD_REQUEST,
            ErrorKind::NotFound => StatusCode::NOT_FOUND,
            ErrorKind::AlreadyExists | ErrorKind::Conflict => StatusCode::CONFLICT,
            ErrorKind::Exhausted => StatusCode::GONE,
            ErrorKind::Unsupported => StatusCode::NOT_IMPLEMENTED,
            ErrorKind::UnknownOutcome => StatusCode::GATEWAY_TIMEOUT,
            ErrorKind::Denied | ErrorKind::StoreViolation | ErrorKind::Witness => StatusCode::BAD_GATEWAY,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self::new(status, error.kind(), error.to_string())
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let status = match refusal {
            Refusal::Nobody | Refusal::Wrong | Refusal::Ended => StatusCode::UNAUTHORIZED,
            _ if refusal.is_transient() => StatusCode::TOO_MANY_REQUESTS,
            _ => StatusCode::FORBIDDEN,
        };
        let (refused, retry_after) = (Some(refusal.reason()), refusal.retry_after());
        let kind = refusal.kind();
        Self { refused, retry_after, ..Self::new(status, kind, refusal.to_string()) }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        if let Some(reason) = self.refused {
            counters::refused(reason);
        }
        let mut response = (self.status, Json(&self)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        match self.status {
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => {
                headers.insert(header::RETRY_AFTER, self.retry_after.into());
            }
            StatusCode::UNAUTHORIZED => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            _ => {}
        }
        if self.ends {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::body::to_bytes;
    use idmill::ErrorKind::{
        AlreadyExists, Closed, Conflict, Deadline, Denied, Empty, Exhausted, InvalidInput, NotFound,
        Overloaded, StoreViolation, Unavailable, UnknownOutcome, Unsupported, Witness,
    };

    use super::*;
    use crate::access::Right;

    const STATUSES: [(ErrorKind, u16); 15] = [
        (InvalidInput, 400),
        (NotFound, 404),
        (AlreadyExists, 409),
        (Conflict, 409),
        (Exhausted, 410),
        (Unsupported, 501),
        (Denied, 502),
        (StoreViolation, 502),
        (Witness, 502),
        (Closed, 503),
        (Deadline, 503),
        (Empty, 503),
        (Overloaded, 503),
        (Unavailable, 503),
        (UnknownOutcome, 504),
    ];

    /// Returns the status, the headers `Retry-After`, `WWW-Authenticate` and `Connection`, and the body.
    async fn answered(problem: Problem) -> (u16, [Option<String>; 3], serde_json::Value) {
        let (head, body) = problem.into_response().into_parts();
        assert_eq!(head.headers[header::CONTENT_TYPE], "application/problem+json");
        let text = |name| head.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
        let headers = [header::RETRY_AFTER, header::WWW_AUTHENTICATE, header::CONNECTION].map(text);
        let body = serde_json::from_slice(&to_bytes(body, 4096).await.unwrap()).unwrap();
        (head.status.as_u16(), headers, body)
    }

    #[tokio::test]
    async fn each_kind_of_error_has_its_status_and_body() {
        assert!(ErrorKind::ALL.iter().all(|kind| STATUSES.iter().any(|(known, _)| known == kind)));
        for (kind, status) in STATUSES {
            let (told, headers, body) = answered(Error::new(kind, "the cause").into()).await;
            assert_eq!(told, status, "{kind}");
            let retry = (status == 503).then(|| "1".to_owned());
            assert_eq!(headers, [retry, None, None], "{kind}");
            let outcome = match kind {
                Empty | Overloaded | Deadline | Unavailable => "transient",
                UnknownOutcome => "unknown",
                _ => "permanent",
            };
            assert_eq!((&body["status"], &body["kind"]), (&status.into(), &kind.as_str().into()));
            assert_eq!((&body["outcome"], &body["detail"]), (&outcome.into(), &"the cause".into()));
            assert_eq!(body["type"], format!("urn:idmill:problem:{kind}"));
            assert_eq!(body["title"], StatusCode::from_u16(status).unwrap().canonical_reason().unwrap());
            assert_eq!(body.as_object().unwrap().len(), 6, "{body}");
        }
    }

    #[tokio::test]
    async fn each_refusal_has_its_status_and_headers() {
        let wait = Duration::from_secs(90);
        for (refusal, status, retry) in [
            (Refusal::Nobody, 401, None),
            (Refusal::Wrong, 401, None),
            (Refusal::Ended, 401, None),
            (Refusal::Right(Right::Draw), 403, None),
            (Refusal::Sequence, 403, None),
            (Refusal::Ids(10), 403, None),
            (Refusal::Burst(10), 403, None),
            (Refusal::NoneNew, 403, None),
            (Refusal::Rate(wait), 429, Some("90")),
            (Refusal::Created(wait), 429, Some("90")),
            (Refusal::Memory, 429, Some("1")),
            (Refusal::Connections(2), 429, Some("1")),
        ] {
            let (told, headers, body) = answered(refusal.into()).await;
            let authenticate = (status == 401).then(|| "Bearer".to_owned());
            assert_eq!((told, headers), (status, [retry.map(str::to_owned), authenticate, None]), "{body}");
            assert_eq!(
                (&body["detail"], &body["kind"]),
                (&refusal.to_string().into(), &refusal.kind().as_str().into())
            );
        }
        let (status, headers, _) = answered(Problem::from(Refusal::Wrong).last()).await;
        assert_eq!((status, headers[2].as_deref()), (401, Some("close")));
    }

    #[test]
    fn only_client_errors_are_refusals_in_the_audit() {
        let is_refused =
            |kind: ErrorKind| matches!(Problem::from(Error::from(kind)).outcome(), Outcome::Refused(_));
        for (kind, status) in STATUSES {
            assert_eq!(is_refused(kind), status < 500, "{kind}");
        }
    }
}
