//! What errors say about the ids.
//!
//! Every script writes last and with one command, so that a refusal of the server's own, known by its code, means that nothing was
//! changed. What is not known by its code may come from a proxy, or after the write: that is unknown.

use std::fmt;
use std::time::Duration;

use crate::error::{Error, ErrorKind};
use crate::sync::Arc;

/// What a script would have done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// Nothing: no error leaves anything unknown.
    Read,
    /// A change.
    Write,
}

/// How a call can fail.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// There was no connection to send it on.
    NotSent(Error),
    /// The server's own words.
    Server { code: String, detail: String },
    /// The connection broke after it was sent, or may have been.
    Lost(Arc<str>),
    /// No answer in time.
    Silent(Duration),
    /// An answer that is not one to this question. Nothing of it is believed.
    Garbled(String),
    /// Done, and known to fewer replicas than were asked for.
    Unreplicated { known: i64, wanted: u32 },
}

impl Fault {
    pub(crate) fn server(code: &str, detail: Option<&str>) -> Self {
        Self::Server { code: code.to_owned(), detail: detail.unwrap_or_default().to_owned() }
    }

    /// Whether the server does not know the script: then it did nothing.
    pub(crate) fn is_no_script(&self) -> bool {
        matches!(self, Self::Server { code, .. } if code == "NOSCRIPT")
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSent(error) => error.fmt(f),
            Self::Server { code, detail } => write!(f, "{code} {detail}"),
            Self::Lost(reason) => write!(f, "the connection was lost: {reason}"),
            Self::Silent(timeout) => write!(f, "no answer within {timeout:?}"),
            Self::Garbled(what) => write!(f, "the answer is not one to what was asked: {what}"),
            Self::Unreplicated { known, wanted } => write!(f, "{known} of {wanted} replicas know of it"),
        }
    }
}

/// What a failure means.
pub(crate) fn classify(fault: &Fault, asked: Asked) -> ErrorKind {
    let kind = match fault {
        Fault::NotSent(error) => error.kind(),
        Fault::Server { code, detail } => of_code(code, detail),
        Fault::Lost(_) | Fault::Silent(_) | Fault::Garbled(_) | Fault::Unreplicated { .. } => {
            ErrorKind::UnknownOutcome
        }
    };
    if kind == ErrorKind::UnknownOutcome && asked == Asked::Read { ErrorKind::Unavailable } else { kind }
}

fn of_code(code: &str, detail: &str) -> ErrorKind {
    match code {
        // Said before a command runs, or by the one write of a script.
        "LOADING" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" | "READONLY" | "BUSY" | "OOM" | "MISCONF"
        | "NOREPLICAS" | "NOSCRIPT" => ErrorKind::Unavailable,
        "MOVED" | "ASK" | "CROSSSLOT" => ErrorKind::Unsupported,
        "NOAUTH" | "WRONGPASS" | "NOPERM" => ErrorKind::Denied,
        // Of a key that is ours by its name.
        "WRONGTYPE" => ErrorKind::Conflict,
        "ERR" if detail.starts_with("unknown command") => ErrorKind::Unsupported,
        "ERR" if detail.starts_with("max number of clients") => ErrorKind::Unavailable,
        // Among them UNBLOCKED, which a WAIT ends with when the server becomes a replica: after the write.
        _ => ErrorKind::UnknownOutcome,
    }
}

/// A failure as this crate's error; `address` is the server's.
pub(crate) fn failed(fault: &Fault, asked: Asked, address: &str) -> Error {
    if let Fault::NotSent(error) = fault {
        return error.clone();
    }
    let kind = classify(fault, asked);
    match remedy(fault, kind) {
        Some(remedy) => Error::new(kind, format!("redis at {address}: {fault}; {remedy}")),
        None => Error::new(kind, format!("redis at {address}: {fault}")),
    }
}

fn remedy(fault: &Fault, kind: ErrorKind) -> Option<&'static str> {
    let code = if let Fault::Server { code, .. } = fault { code.as_str() } else { "" };
    Some(match (code, kind) {
        ("READONLY", _) => "it is a replica: name the master",
        ("OOM", _) => "it is full: raise its maxmemory",
        ("MISCONF", _) => "it cannot write to its disk",
        ("MOVED" | "ASK", _) => "it is one node of a cluster: name the node that has the slot of the prefix",
        ("WRONGTYPE", _) => "the key is somebody else's: choose another prefix",
        (_, ErrorKind::Denied) => {
            "check user and password; the user needs EVALSHA, SCRIPT, INFO, CONFIG GET and WAIT, and to read and write hashes and \
             sets under the prefix"
        }
        (_, ErrorKind::UnknownOutcome) => "it may have been applied or not",
        (_, ErrorKind::Unavailable) => "nothing was changed",
        _ => return None,
    })
}
