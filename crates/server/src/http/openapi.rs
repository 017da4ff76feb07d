//! `/openapi.json`: what is served here, for programs. A test holds it against what really comes.

use axum::http::header;
use axum::response::{IntoResponse, Response};

const TEXT: &str = include_str!("openapi.json");

pub(super) async fn describe() -> Response {
    let text = TEXT.replacen("\"VERSION\"", concat!("\"", env!("CARGO_PKG_VERSION"), "\""), 1);
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}
