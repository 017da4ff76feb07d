//! Classifies the errors of the driver and the server by their effect on ids.
//!
//! A write that may have been applied is not resent ([`super::connection`]), so its error always describes a
//! single attempt. A failed write has an unknown outcome, unless it certainly was not applied or its reply is
//! invalid: a server may step down, shut down or time out after the write and before the reply.

use std::fmt;
use std::io;

use idmill::{Error, ErrorKind};
use idmill_kit::advised;
use mongodb::bson::{Bson, Document};
use mongodb::error::{
    Error as MongoError, ErrorKind as Mongo, NO_WRITES_PERFORMED, RETRYABLE_ERROR, SYSTEM_OVERLOADED_ERROR,
    TRANSIENT_TRANSACTION_ERROR,
};

pub(super) use idmill_kit::Asked;

/// The failure of a command.
pub(super) type Fault = idmill_kit::Fault<Rejection>;

/// An error of the server or the driver.
#[derive(Clone, Debug)]
pub(super) enum Rejection {
    /// An error of the driver, or the server's rejection of the whole command.
    Driver(MongoError),
    /// The server rejected the write, in a reply with `ok: 1`.
    Write { code: i32, message: String },
}

/// Returns whether the server reported a duplicate key.
pub(super) fn is_duplicate(fault: &Fault) -> bool {
    code(fault) == Some(DUPLICATE_KEY)
}

fn code(fault: &Fault) -> Option<i32> {
    match fault.server()? {
        Rejection::Driver(error) => match &*error.kind {
            Mongo::Command(command) => Some(command.code),
            _ => None,
        },
        Rejection::Write { code, .. } => Some(*code),
    }
}

/// The fault of a reply that does not fit the command.
pub(super) fn misfit(what: &str) -> Fault {
    Fault::Violation(Error::new(ErrorKind::StoreViolation, format!("the reply {what}")))
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Prints the kind, because the text of the error contains the server's reply as bytes.
            Self::Driver(error) => match &*error.kind {
                Mongo::ServerSelection { message, .. } => f.write_str(&unreachable(message)),
                kind => write!(f, "{kind}"),
            },
            Self::Write { code, message } => write!(f, "the write was rejected ({code}): {message}"),
        }
    }
}

impl From<MongoError> for Rejection {
    fn from(error: MongoError) -> Self {
        Self::Driver(error)
    }
}

/// Lists the servers that did not reply, with the reasons. The driver's own message has its topology in
/// debug format.
fn unreachable(message: &str) -> String {
    let servers = message.split("{ Address: ").skip(1).map(|server| {
        let address = server.split([',', ' ']).next().unwrap_or_default();
        let reason = server.split_once("Error: Kind: ").and_then(|(_, error)| error.split(", labels").next());
        reason.map_or_else(|| address.to_owned(), |reason| format!("{address} ({reason})"))
    });
    let servers: Vec<_> = servers.collect();
    if servers.is_empty() {
        // For example, the servers reply, but none has the required role.
        return message.split(" Topology:").next().unwrap_or(message).to_owned();
    }
    format!(
        "no usable server: {}; check the addresses, and set `tls=true` only if the servers use TLS",
        servers.join(", ")
    )
}

const DUPLICATE_KEY: i32 = 11000;

/// Returns the reply, or the fault if a reply with `ok: 1` reports a failed write.
pub(super) fn check_reply(reply: Document) -> Result<Document, Fault> {
    let refused = reply.get_array("writeErrors").ok().and_then(|errors| errors.first());
    if let Some((code, message)) = refused.and_then(Bson::as_document).map(complaint) {
        return Err(Rejection::Write { code, message }.into());
    }
    if let Ok((code, message)) = reply.get_document("writeConcernError").map(complaint) {
        // The write was applied, but not with the requested durability.
        return Err(Fault::lost(format!("the write was not confirmed by a majority ({code}): {message}")));
    }
    Ok(reply)
}

fn complaint(document: &Document) -> (i32, String) {
    let code = document.get_i32("code").unwrap_or_default();
    (code, document.get_str("errmsg").unwrap_or("no message").to_owned())
}

/// Returns the error kind of a failure.
pub(super) fn classify(fault: &Fault, asked: Asked) -> ErrorKind {
    // A read changes nothing, and a transaction takes effect only if it is committed, so neither has an
    // unknown outcome.
    fault.kind(asked, |rejection| match rejection {
        Rejection::Driver(error) => of_driver(error, asked),
        Rejection::Write { code, .. } => of_code(*code, asked),
    })
}

fn of_driver(error: &MongoError, asked: Asked) -> ErrorKind {
    // These labels mean that no write was begun. The server sets these labels, or the driver sets them if the
    // handshake of a new connection fails.
    let refused = error.contains_label(SYSTEM_OVERLOADED_ERROR) && error.contains_label(RETRYABLE_ERROR);
    let untouched = refused || error.contains_label(NO_WRITES_PERFORMED);
    match &*error.kind {
        Mongo::Command(_) | Mongo::Io(_) if untouched => ErrorKind::Unavailable,
        Mongo::Command(command) => of_code(command.code, asked),
        // No server could be selected, so the command was not sent.
        Mongo::ServerSelection { .. } | Mongo::DnsResolve { .. } => ErrorKind::Unavailable,
        Mongo::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused => ErrorKind::Unavailable,
        Mongo::Authentication { .. } => ErrorKind::Denied,
        Mongo::InvalidArgument { .. } | Mongo::InvalidTlsConfig { .. } => ErrorKind::InvalidInput,
        Mongo::Transaction { .. } | Mongo::SessionsNotSupported if asked == Asked::InTransaction => {
            ErrorKind::Unsupported
        }
        Mongo::IncompatibleServer { .. } => ErrorKind::Unsupported,
        Mongo::Shutdown => ErrorKind::Closed,
        Mongo::Bson(_) | Mongo::InvalidResponse { .. } => ErrorKind::StoreViolation,
        // `Io`: the connection broke, perhaps after the command was sent. `ConnectionPoolCleared`: the
        // driver's monitor detected a broken connection. The outcome is also unknown after errors that a
        // later version of the driver may add.
        _ => ErrorKind::UnknownOutcome,
    }
}

/// Classifies by MongoDB's list of error codes.
fn of_code(code: i32, asked: Asked) -> ErrorKind {
    match code {
        // Unauthorized, AuthenticationFailed.
        13 | 18 => ErrorKind::Denied,
        // NamespaceNotFound, InvalidNamespace.
        26 => ErrorKind::NotFound,
        73 => ErrorKind::InvalidInput,
        // IllegalOperation, CommandNotFound, OperationNotSupportedInTransaction, FailedToParse: servers
        // without transactions return these errors for a command with transaction fields.
        9 | 20 | 59 | 263 if asked == Asked::InTransaction => ErrorKind::Unsupported,
        // FailedToParse, CommandNotFound, CommandNotSupported, NotImplemented, APIStrictError.
        9 | 59 | 115 | 238 | 323 => ErrorKind::Unsupported,
        // In a transaction, a duplicate key means that another process created the sequence first; the server
        // has aborted the transaction. Outside a transaction, a unique index of the user rejected the
        // document.
        DUPLICATE_KEY if asked == Asked::InTransaction => ErrorKind::Unavailable,
        // 121 is DocumentValidationFailure: a validator of the user rejected the document.
        DUPLICATE_KEY | 121 => ErrorKind::Conflict,
        // TypeMismatch, and BadValue, which `$inc` returns on overflow. Documents of this store cause
        // neither.
        2 | 14 => ErrorKind::StoreViolation,
        // NotWritablePrimary, NotPrimaryNoSecondaryOk, LegacyNotPrimary and NotPrimaryOrSecondary are
        // returned before a write begins. After FailedToSatisfyReadPreference, a router did not forward the
        // command. After WriteConflict and LockTimeout, the write was rolled back.
        10107 | 13435 | 10058 | 13436 | 133 | 112 | 24 => ErrorKind::Unavailable,
        // Includes ShutdownInProgress (91), PrimarySteppedDown (189), InterruptedAtShutdown (11600),
        // InterruptedDueToReplStateChange (11602), Interrupted (11601), MaxTimeMSExpired (50),
        // ExceededTimeLimit (262), HostUnreachable (6) and NetworkTimeout (89) between a router and its
        // shard.
        _ => ErrorKind::UnknownOutcome,
    }
}

/// Converts a failure, and adds advice.
pub(super) fn failed(fault: &Fault, asked: Asked) -> Error {
    let kind = classify(fault, asked);
    let error = advised(kind, fault, remedy(fault, kind, asked));
    match fault.server() {
        // The source is the error's kind, because the text of the whole error contains the reply as bytes.
        Some(Rejection::Driver(cause)) if !matches!(&*cause.kind, Mongo::ServerSelection { .. }) => {
            error.because((*cause.kind).clone())
        }
        _ => error,
    }
}

fn remedy(fault: &Fault, kind: ErrorKind, asked: Asked) -> Option<&'static str> {
    let driver = if let Some(Rejection::Driver(error)) = fault.server() { Some(error) } else { None };
    let is_transient = driver.is_some_and(|error| error.contains_label(TRANSIENT_TRANSACTION_ERROR));
    Some(match kind {
        ErrorKind::Unsupported if asked == Asked::InTransaction => {
            "the server does not support transactions; use a replica set or a sharded cluster of MongoDB"
        }
        ErrorKind::Unavailable if asked == Asked::InTransaction || is_transient => {
            "abort the transaction and begin it again"
        }
        ErrorKind::Unavailable if matches!(code(fault), Some(10107 | 13435 | 10058 | 13436)) => {
            "a primary is being elected, or `directConnection=true` names a server that is not the primary"
        }
        ErrorKind::Unavailable => "nothing was changed",
        ErrorKind::UnknownOutcome => "it may have been applied",
        ErrorKind::Denied => {
            "check the user, its password and authSource, and grant find, insert, update and remove on the \
             collection"
        }
        ErrorKind::Conflict => {
            "the collection has a rule that rejects the document; name another with `?collection=NAME`"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use idmill::ErrorKind::{
        Conflict, Denied, InvalidInput, NotFound, StoreViolation, Unavailable, UnknownOutcome, Unsupported,
    };
    use mongodb::bson::doc;
    use mongodb::error::CommandError;

    use super::*;

    /// Builds an error as the driver does from a reply of the server.
    fn command(code: i32, name: &str, message: &str) -> Fault {
        let reply = doc! { "ok": 0.0, "code": code, "codeName": name, "errmsg": message };
        let error: CommandError = mongodb::bson::deserialize_from_document(reply).unwrap();
        Rejection::from(MongoError::from(Mongo::Command(error))).into()
    }

    fn io(kind: io::ErrorKind) -> Fault {
        Rejection::from(MongoError::from(kind)).into()
    }

    fn reply(reply: Document) -> Fault {
        check_reply(reply).unwrap_err()
    }

    /// Errors of FerretDB and of the driver, when FerretDB was killed, disconnected or sent invalid
    /// commands.
    fn from_ferretdb() -> Vec<(Fault, ErrorKind)> {
        let duplicate = doc! {
            "n": 0, "ok": 1.0, "writeErrors": [{
                "index": 0, "code": 11000, "errmsg": "E11000 duplicate key error collection: idmill.t",
            }],
        };
        let overflow =
            "Failed to apply $inc operations to current value ((NumberLong)15) for document {_id: \"a\"}";
        vec![
            (reply(duplicate), Conflict),
            (command(2, "BadValue", overflow), StoreViolation),
            (command(73, "InvalidNamespace", "Invalid collection name: a$b"), InvalidInput),
            (command(59, "CommandNotFound", "no such command: 'frobnicate'"), Unsupported),
            (command(238, "NotImplemented", "Aggregation pipelines are not supported yet"), Unsupported),
            (
                command(1, "InternalError", "constraint failed: UNIQUE constraint failed (2067)"),
                UnknownOutcome,
            ),
            (command(18, "AuthenticationFailed", "Unsupported authentication mechanism"), Denied),
            (io(io::ErrorKind::UnexpectedEof), UnknownOutcome),
            (io(io::ErrorKind::ConnectionReset), UnknownOutcome),
            (io(io::ErrorKind::ConnectionRefused), Unavailable),
            (Fault::lost("no answer"), UnknownOutcome),
        ]
    }

    /// Errors that only a replica set or a router returns, from MongoDB's list of codes.
    fn from_documentation() -> Vec<(Fault, ErrorKind)> {
        let unconfirmed = |code: i32, name: &str| {
            let error =
                doc! { "code": code, "codeName": name, "errmsg": "waiting for replication timed out" };
            reply(doc! { "value": { "_id": "a" }, "ok": 1.0, "writeConcernError": error })
        };
        vec![
            (unconfirmed(64, "WriteConcernTimeout"), UnknownOutcome),
            (unconfirmed(100, "UnsatisfiableWriteConcern"), UnknownOutcome),
            // In a write concern error the outcome is unknown; a command rejected with this code is never
            // applied.
            (unconfirmed(10107, "NotWritablePrimary"), UnknownOutcome),
            (command(10107, "NotWritablePrimary", "not primary"), Unavailable),
            (command(13435, "NotPrimaryNoSecondaryOk", "not primary"), Unavailable),
            (command(13436, "NotPrimaryOrSecondary", "node is recovering"), Unavailable),
            (command(112, "WriteConflict", "this operation conflicted with another"), Unavailable),
            (command(189, "PrimarySteppedDown", "stepped down"), UnknownOutcome),
            (command(11602, "InterruptedDueToReplStateChange", "interrupted"), UnknownOutcome),
            (command(11600, "InterruptedAtShutdown", "interrupted at shutdown"), UnknownOutcome),
            (command(91, "ShutdownInProgress", "shutting down"), UnknownOutcome),
            (command(50, "MaxTimeMSExpired", "operation exceeded time limit"), UnknownOutcome),
            (command(6, "HostUnreachable", "shard cannot be reached"), UnknownOutcome),
            (command(13, "Unauthorized", "not authorized on idmill"), Denied),
            (command(26, "NamespaceNotFound", "ns not found"), NotFound),
            (command(121, "DocumentValidationFailure", "Document failed validation"), Conflict),
            (command(424_242, "", "of a later version"), UnknownOutcome),
        ]
    }

    #[test]
    fn failures_of_a_write_are_classified() {
        for (fault, kind) in from_ferretdb().into_iter().chain(from_documentation()) {
            assert_eq!(classify(&fault, Asked::Write), kind, "{fault}");
            let error = failed(&fault, Asked::Write);
            assert!(!error.to_string().contains("RawDocumentBuf"), "{error}");
        }
    }

    #[test]
    fn reads_and_transactions_have_no_unknown_outcome() {
        for asked in [Asked::Read, Asked::InTransaction] {
            for (fault, written) in from_ferretdb().into_iter().chain(from_documentation()) {
                let kind = classify(&fault, asked);
                assert_ne!(kind, UnknownOutcome, "{fault}");
                assert!(written != UnknownOutcome || kind == Unavailable, "{fault}: {kind:?}");
            }
        }
    }

    #[test]
    fn server_without_transactions_is_detected_by_its_errors() {
        let standalone = "Transaction numbers are only allowed on a replica set member or mongos";
        for fault in [
            command(9, "FailedToParse", "findAndModify: unknown field \"startTransaction\""),
            command(9, "FailedToParse", "findAndModify: unknown field \"autocommit\""),
            // A standalone MongoDB server returns this error.
            command(20, "IllegalOperation", standalone),
        ] {
            let error = failed(&fault, Asked::InTransaction);
            assert_eq!(error.kind(), Unsupported, "{fault}");
            assert!(error.to_string().contains("replica set"), "{error}");
        }
        let race = command(11000, "DuplicateKey", "E11000 duplicate key error");
        assert_eq!(failed(&race, Asked::InTransaction).kind(), Unavailable, "it can be begun again");
    }

    #[test]
    fn successful_reply_is_returned() {
        let well = doc! { "n": 1, "ok": 1.0 };
        assert_eq!(check_reply(well.clone()).unwrap(), well);
    }
}
