//! Who asks.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use idmill::ErrorKind;

use super::problem::Problem;
use crate::access::{Caller, Refusal};
use crate::core::Core;

/// By the token in `Authorization: Bearer`; anybody, where no token is required.
impl FromRequestParts<Arc<Core>> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, core: &Arc<Core>) -> Result<Self, Problem> {
        if core.access.is_open() {
            return Ok(core.access.anybody()?);
        }
        let value = parts.headers.get(header::AUTHORIZATION).ok_or(Refusal::Nobody)?;
        let text = value.to_str().map_err(|_| Refusal::Wrong)?;
        let (scheme, secret) = text.split_once(' ').unwrap_or_default();
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(Refusal::Nobody.into());
        }
        Ok(core.access.caller(secret.trim())?)
    }
}

/// Refuses what a page of another site has a browser send: it could draw ids, unseen, from a server that only
/// this machine reaches.
pub(super) async fn of_the_same_site(request: Request, next: Next) -> Response {
    if is_foreign(request.headers()) {
        let detail = "a page of another site asked for this; services do not send `Origin`, and its own page is of the same";
        return Problem::new(StatusCode::FORBIDDEN, ErrorKind::Denied, detail).into_response();
    }
    next.run(request).await
}

fn is_foreign(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let Some(origin) = text(header::ORIGIN) else { return false };
    let origin: Option<Uri> = origin.parse().ok();
    let authority = origin.as_ref().and_then(Uri::authority).map(axum::http::uri::Authority::as_str);
    authority.is_none() || authority != text(header::HOST)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn another_origin_than_the_host_is_foreign() {
        let foreign = |origin: Option<&'static str>| {
            let mut headers = HeaderMap::from_iter([(header::HOST, HeaderValue::from_static("ids:8080"))]);
            headers.extend(origin.map(|origin| (header::ORIGIN, HeaderValue::from_static(origin))));
            is_foreign(&headers)
        };
        assert!(!foreign(None) && !foreign(Some("http://ids:8080")));
        assert!(foreign(Some("http://evil")) && foreign(Some("null")) && foreign(Some("http://ids")));
    }
}
