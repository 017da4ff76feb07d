//! The caller of a request.

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::{FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, HeaderName, Method, StatusCode, Uri, header};

use idmill::ErrorKind;
use idmill::store::SequenceInfo;

use super::problem::Problem;
use crate::access::{Caller, Refusal, Right};
use crate::audit::{Act, Outcome};
use crate::peer::Peer;
use crate::state::ServerState;

/// Reads the token in `Authorization: Bearer`. If no token is required, every caller has all rights.
impl FromRequestParts<Arc<ServerState>> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &Arc<ServerState>) -> Result<Self, Problem> {
        if state.access.is_open() {
            return Ok(state.access.anybody()?);
        }
        let secret = secret(&parts.headers)?;
        let peer = peer(&parts.extensions);
        let caller = state.caller(secret, &peer).await.map_err(|(refusal, closes)| {
            let problem = Problem::from(refusal);
            if closes { problem.last() } else { problem }
        })?;
        state.pays(&caller, 1)?;
        Ok(caller)
    }
}

/// Returns the token in `Authorization: Bearer`.
fn secret(headers: &HeaderMap) -> Result<&str, Refusal> {
    let value = headers.get(header::AUTHORIZATION).ok_or(Refusal::Nobody)?;
    let text = value.to_str().map_err(|_| Refusal::Wrong)?;
    let (scheme, secret) = text.split_once(' ').unwrap_or_default();
    if scheme.eq_ignore_ascii_case("bearer") { Ok(secret.trim()) } else { Err(Refusal::Nobody) }
}

/// Returns the connection of the request.
pub(super) fn peer(extensions: &Extensions) -> Arc<Peer> {
    extensions.get::<Arc<Peer>>().cloned().unwrap_or_default()
}

/// The caller of an administrative request. A refused caller is kept too, because refusals are audited.
pub(super) struct Administrator {
    caller: Result<Caller, Problem>,
    /// The owner of the token, even if the token is over its limits.
    by: Option<Caller>,
    peer: Arc<Peer>,
}

impl FromRequestParts<Arc<ServerState>> for Administrator {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &Arc<ServerState>) -> Result<Self, Infallible> {
        let caller = Caller::from_request_parts(parts, state).await;
        let by = match &caller {
            Ok(caller) => Some(caller.clone()),
            Err(_) => secret(&parts.headers).and_then(|secret| state.access.caller(secret)).ok(),
        };
        Ok(Self { caller, by, peer: peer(&parts.extensions) })
    }
}

impl Administrator {
    pub(super) fn may(&self, sequence: &str) -> Result<(), Problem> {
        let caller = self.caller.as_ref().map_err(Clone::clone)?;
        Ok(caller.may(Right::Administer, sequence)?)
    }

    /// Writes the audit line of an act.
    pub(super) fn did(
        &self,
        state: &ServerState,
        did: &'static str,
        sequence: &str,
        outcome: Result<Option<&SequenceInfo>, &Problem>,
    ) {
        let act = Act { by: self.by.as_ref(), peer: &self.peer, did, sequence };
        state.audit.note(act, outcome.map_or_else(Problem::outcome, Outcome::Done));
    }
}

/// Headers that decide about access. A proxy in front of this server could check another value than this
/// server if a request had several.
const ONCE: [HeaderName; 5] = [
    header::AUTHORIZATION,
    header::ORIGIN,
    HeaderName::from_static("sec-fetch-site"),
    HeaderName::from_static("sec-fetch-mode"),
    HeaderName::from_static("sec-fetch-dest"),
];

/// Refuses requests with several headers of one of these names.
pub(super) fn repeated(headers: &HeaderMap) -> Option<Problem> {
    let name = ONCE.into_iter().find(|name| headers.get_all(name).iter().nth(1).is_some())?;
    Some(Problem::invalid(format!("the request has several `{name}` headers; send one")))
}

/// Refuses requests that a browser sends for a page of another site. Otherwise a page could draw ids from a
/// server that only this machine can reach, or detect that a sequence exists because an element with its URL
/// loads.
pub(super) fn refused(state: &ServerState, request: &Request) -> Option<Problem> {
    if !is_foreign(request.headers()) && !is_fetched(request) {
        return None;
    }
    note_foreign(state, request);
    let detail =
        "the request came from a page of another site; a service must not send `Origin` or `Sec-Fetch-Site`";
    Some(Problem::new(StatusCode::FORBIDDEN, ErrorKind::Denied, detail))
}

/// Writes an audit line if the refused request is a change.
fn note_foreign(state: &ServerState, request: &Request) {
    let Some(did) = act(request.method()) else { return };
    let path = request.uri().path();
    let sequence = path.rsplit('/').next().unwrap_or(path);
    let act = Act { by: None, peer: &peer(request.extensions()), did, sequence };
    state.audit.note(act, Outcome::Refused(&"the request came from a page of another site"));
}

/// Returns the administrative act of a method; `None` if the method changes nothing.
fn act(method: &Method) -> Option<&'static str> {
    match *method {
        Method::PUT => Some("create"),
        Method::PATCH => Some("change"),
        Method::DELETE => Some("remove"),
        _ => None,
    }
}

fn is_foreign(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let Some(origin) = text(header::ORIGIN) else { return false };
    let origin: Option<Uri> = origin.parse().ok();
    let authority = origin.as_ref().and_then(Uri::authority).map(axum::http::uri::Authority::as_str);
    authority.is_none() || authority != text(header::HOST)
}

/// Returns whether the browser reports a fetch by another site. Links to the page for operators are
/// allowed.
fn is_fetched(request: &Request) -> bool {
    let is = |name: &str, value: &str| request.headers().get(name).is_some_and(|found| found == value);
    let is_visit = request.method() == Method::GET
        && request.uri().path() == "/"
        && is("sec-fetch-mode", "navigate")
        && is("sec-fetch-dest", "document");
    !is_visit && (is("sec-fetch-site", "cross-site") || is("sec-fetch-site", "same-site"))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn changes_of_another_site_are_audited_by_their_method() {
        let acts = [Method::PUT, Method::PATCH, Method::DELETE, Method::POST, Method::GET]
            .map(|method| act(&method));
        assert_eq!(acts, [Some("create"), Some("change"), Some("remove"), None, None]);
    }

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
