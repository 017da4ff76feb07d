//! Classifies failures by their effect on ids.
//!
//! Errors of the store behind the server arrive with their kind and are not classified here. This module
//! classifies failures of the connection, errors of the server itself, and invalid replies.

use std::borrow::Cow;

use idmill::ErrorKind;
use idmill_tls::resp::Dialect;

use crate::protocol::{COMMAND, UNKNOWN_VERSION, VERSION};

pub(super) use idmill_kit::Asked;
pub(super) use idmill_tls::resp::Fault;

pub(super) const IDMILL: Dialect = Dialect {
    name: "idmill",
    of_code,
    remedy,
    stranger: "check that this is the Redis port of an idmill server, and whether it uses TLS (`idmills://`)",
};

/// Classifies an error reply. All codes except those of the last arm are returned before the server executes
/// any part of the request.
fn of_code(code: &str, detail: &str) -> ErrorKind {
    match code {
        "TRYAGAIN" => ErrorKind::Unavailable,
        "NOAUTH" | "WRONGPASS" | "NOPERM" => ErrorKind::Denied,
        UNKNOWN_VERSION => ErrorKind::Unsupported,
        "ERR" if detail.starts_with("max number of clients") => ErrorKind::Unavailable,
        // Another kind of server, or an older idmill without this command.
        "ERR" if detail.starts_with("unknown command") => ErrorKind::Unsupported,
        "ERR" if detail.starts_with("Protocol error") || detail.starts_with("the request") => {
            ErrorKind::InvalidInput
        }
        // The client sent a token to a server without tokens.
        "ERR" if detail.starts_with("this server has no tokens") => ErrorKind::Denied,
        _ => ErrorKind::UnknownOutcome,
    }
}

fn remedy(code: &str, kind: ErrorKind) -> Option<Cow<'static, str>> {
    Some(match (code, kind) {
        ("NOAUTH", _) => {
            "name a token with `idmill://:TOKEN@HOST`, `token_file=FILE` or `token_env=NAME`".into()
        }
        ("NOPERM", _) => "the token needs the right `reserve`; to create, set or remove sequences, it needs \
             `administer`"
            .into(),
        ("ERR", ErrorKind::Denied) => "remove the token".into(),
        (UNKNOWN_VERSION, _) => format!(
            "this client has version {VERSION} of {COMMAND}; use a client and a server of the same release"
        )
        .into(),
        ("ERR", ErrorKind::Unsupported) => {
            format!("check that this is an idmill server that supports version {VERSION} of {COMMAND}").into()
        }
        (_, ErrorKind::UnknownOutcome) => "the request may have been applied".into(),
        (_, ErrorKind::Unavailable) => "nothing was changed".into(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use idmill::ErrorKind::{Denied, InvalidInput, Unavailable, UnknownOutcome, Unsupported};

    use idmill_tls::resp::ErrorReply;

    use super::*;

    fn server(text: &str) -> Fault {
        let (code, detail) = text.split_once(' ').unwrap_or((text, ""));
        ErrorReply::new(code, Some(detail)).into()
    }

    /// Errors that the server returned in tests, and possible errors of other servers or proxies.
    fn said() -> Vec<(Fault, ErrorKind, &'static str)> {
        [
            ("TRYAGAIN the store is unavailable", Unavailable, "nothing was changed"),
            (
                "NOAUTH Authentication required: send AUTH with a token of this server",
                Denied,
                "token_file=FILE",
            ),
            ("WRONGPASS the token is unknown: it was mistyped or removed", Denied, "mistyped"),
            ("NOPERM the token lacks the right `reserve`", Denied, "needs the right `reserve`"),
            ("NOPROTO this server speaks version 2 of IDMILL.STORE", Unsupported, "has version 1"),
            ("ERR max number of clients reached", Unavailable, "nothing was changed"),
            ("ERR unknown command 'idmill.store'; idmill supports INCR", Unsupported, "supports version 1"),
            ("ERR this server has no tokens; send commands without AUTH", Denied, "remove the token"),
            ("ERR the request is not valid in version 1: expected value", InvalidInput, "version 1"),
            ("ERR Protocol error: invalid bulk length", InvalidInput, "bulk"),
            ("ERR upstream failure", UnknownOutcome, "may have been applied"),
            ("UNKNOWN the store did not answer", UnknownOutcome, "the request may have been applied"),
            ("NEWCODE of a later version", UnknownOutcome, "the request may have been applied"),
        ]
        .map(|(text, kind, remedy)| (server(text), kind, remedy))
        .to_vec()
    }

    #[test]
    fn failed_writes_are_classified_with_address_and_remedy() {
        let ours = [(Fault::lost("broken pipe"), UnknownOutcome, "broken pipe")];
        for (fault, kind, remedy) in said().into_iter().chain(ours) {
            let error = IDMILL.failed(&fault, Asked::Write, &"ids1:7380");
            assert_eq!((error.kind(), IDMILL.classify(&fault, Asked::Write)), (kind, kind), "{fault}");
            let text = error.to_string();
            assert!(text.contains(remedy) && text.contains("ids1:7380"), "{text}");
        }
    }

    #[test]
    fn failed_read_is_never_an_unknown_outcome() {
        for (fault, written, _) in said() {
            let kind = IDMILL.classify(&fault, Asked::Read);
            assert_eq!(kind, if written == UnknownOutcome { Unavailable } else { written }, "{fault}");
        }
    }
}
