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
