//! Every failure of the service becomes an error of the kind that docs/store.md states.

use http_store::{Failed, classify};
use idmill::ErrorKind::{self, Denied, NotFound, StoreViolation, Unavailable, UnknownOutcome};
use idmill_kit::{Address, Asked};
use reqwest::StatusCode;

/// The kinds of the error after a read and after a write.
fn kinds(failed: impl Fn() -> Failed) -> (ErrorKind, ErrorKind) {
    let address = Address::parse("127.0.0.1:80", None).unwrap();
    let kind = |asked| classify(asked, &address, failed()).kind();
    (kind(Asked::Read), kind(Asked::Write))
}

#[test]
fn statuses_have_the_right_kind() {
    let cases = [
        (400, Unavailable, UnknownOutcome),
        (401, Denied, Denied),
        (403, Denied, Denied),
        (404, NotFound, NotFound),
        (429, Unavailable, Unavailable),
        (500, Unavailable, UnknownOutcome),
        (502, Unavailable, UnknownOutcome),
        (503, Unavailable, UnknownOutcome),
        (504, Unavailable, UnknownOutcome),
    ];
    for (status, read, write) in cases {
        let status = StatusCode::from_u16(status).unwrap();
        assert_eq!(kinds(|| Failed::Status(status)), (read, write), "{status}");
    }
}

#[test]
fn unreadable_reply_to_a_write_is_a_violation() {
    assert_eq!(kinds(|| Failed::Unreadable("no ETag".to_owned())), (Unavailable, StoreViolation));
}

#[tokio::test]
async fn refused_connection_sent_nothing() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = reqwest::get(format!("http://{free}/")).await.unwrap_err();
    let address = Address::parse(&free.to_string(), None).unwrap();
    let error = classify(Asked::Write, &address, Failed::Lost(error));
    assert_eq!(error.kind(), Unavailable);
    assert!(error.to_string().contains(&free.to_string()), "{error}");
}
