//! Converts errors of diesel to those of `idmill-sql`.

use std::num::NonZeroU32;

use diesel::result::{DatabaseErrorKind, Error as DieselError, QueryResult};
use idmill::{Error, ErrorKind};
use idmill_sql::postgres::{LOCK_NOT_AVAILABLE, UNDEFINED_TABLE};
use idmill_sql::{EngineError, Fault};

/// Converts an error of a statement. diesel maps a few SQLSTATEs to kinds and does not expose the
/// others. An error without a kind or a known text becomes [`Fault::Broken`].
pub(super) fn fault_of(error: DieselError) -> Fault {
    let DieselError::DatabaseError(kind, information) = &error else { return Fault::broken(error) };
    let message = information.message().to_owned();
    match of_kind(*kind).or_else(|| of_unknown(*kind, &message)) {
        Some(code) => Fault::Engine(EngineError::new(code, message).because(error)),
        None => Fault::broken(error),
    }
}

/// The SQLSTATEs that diesel maps to these kinds.
fn of_kind(kind: DatabaseErrorKind) -> Option<&'static str> {
    Some(match kind {
        DatabaseErrorKind::UniqueViolation => "23505",
        DatabaseErrorKind::ForeignKeyViolation => "23503",
        DatabaseErrorKind::NotNullViolation => "23502",
        DatabaseErrorKind::CheckViolation => "23514",
        DatabaseErrorKind::RestrictViolation => "23001",
        DatabaseErrorKind::ExclusionViolation => "23P01",
        DatabaseErrorKind::SerializationFailure => "40001",
        DatabaseErrorKind::ReadOnlyTransaction => "25006",
        _ => return None,
    })
}

/// Recognizes the server's English messages. This is safe in a transaction: whatever the error was, the
/// server has aborted the transaction, and no ids were taken.
fn of_unknown(kind: DatabaseErrorKind, message: &str) -> Option<&'static str> {
    if matches!(kind, DatabaseErrorKind::ClosedConnection | DatabaseErrorKind::UnableToSendCommand) {
        return None;
    }
    let known = TEXTS.iter().find(|(begins, ends, _)| message.starts_with(begins) && message.ends_with(ends));
    known.map(|(_, _, code)| *code)
}

const TEXTS: &[(&str, &str, &str)] = &[
    ("relation \"", "\" does not exist", UNDEFINED_TABLE),
    ("schema \"", "\" does not exist", "3F000"),
    ("column ", " does not exist", "42703"),
    ("permission denied for ", "", "42501"),
    ("new row violates row-level security policy", "", "42501"),
    ("deadlock detected", "", "40P01"),
    ("canceling statement due to lock timeout", "", LOCK_NOT_AVAILABLE),
    ("canceling statement due to statement timeout", "", "57014"),
    ("canceling statement due to user request", "", "57014"),
    ("current transaction is aborted", "", "25P02"),
];

/// Checks that the connection is in a transaction, by the depth that diesel tracks.
///
/// # Errors
/// [`Fault::Refused`] if no transaction is open, or if diesel cannot report the depth.
pub(super) fn must_be_inside(depth: QueryResult<Option<NonZeroU32>>) -> Result<(), Fault> {
    match depth {
        Ok(Some(_)) => Ok(()),
        Ok(None) => {
            Err(Fault::outside("draw inside `conn.transaction(…)`, on the connection passed to its closure"))
        }
        Err(error) => {
            let message = "the transaction state is unknown after a failed COMMIT or ROLLBACK; close the \
                           connection and retry on another";
            Err(Fault::Refused(Error::new(ErrorKind::Unavailable, message).because(error)))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use idmill::ErrorKind::{Conflict, Denied, InvalidInput, NotFound, Unavailable};
    use idmill_sql::Asked;
    use idmill_sql::postgres::{classify, failed, leaves_connection};

    use super::*;

    fn said(kind: DatabaseErrorKind, message: &str) -> Fault {
        fault_of(DieselError::DatabaseError(kind, Box::new(message.to_owned())))
    }

    #[test]
    fn kinds_are_the_codes_that_diesel_made_them_of() {
        for (kind, code, means) in [
            (DatabaseErrorKind::UniqueViolation, "23505", Conflict),
            (DatabaseErrorKind::ForeignKeyViolation, "23503", Conflict),
            (DatabaseErrorKind::NotNullViolation, "23502", Conflict),
            (DatabaseErrorKind::CheckViolation, "23514", Conflict),
            (DatabaseErrorKind::RestrictViolation, "23001", Conflict),
            (DatabaseErrorKind::ExclusionViolation, "23P01", Conflict),
            (DatabaseErrorKind::SerializationFailure, "40001", Unavailable),
            (DatabaseErrorKind::ReadOnlyTransaction, "25006", Unavailable),
        ] {
            let fault = said(kind, "its words");
            assert_eq!(fault.code(), Some(code));
            assert_eq!(classify(&fault, Asked::InTransaction), means, "{code}");
            let error = failed(fault, Asked::InTransaction);
            assert!(error.to_string().contains(&format!("{code}: its words")), "{error}");
            assert!(error.source().is_some_and(|cause| cause.downcast_ref::<DieselError>().is_some()));
        }
    }

    #[test]
    fn errors_without_code_are_classified_by_text() {
        for (text, means) in [
            ("relation \"idmill_sequences\" does not exist", NotFound),
            ("schema \"billing\" does not exist", NotFound),
            ("column s.name does not exist", Conflict),
            ("column \"next\" of relation \"t\" does not exist", Conflict),
            ("permission denied for table idmill_sequences", Denied),
            ("deadlock detected", Unavailable),
            ("canceling statement due to lock timeout", Unavailable),
        ] {
            let fault = said(DatabaseErrorKind::Unknown, text);
            assert!(fault.code().is_some(), "{text}");
            assert_eq!(classify(&fault, Asked::InTransaction), means, "{text}");
        }
        for text in ["Relation »idmill_sequences« existiert nicht", "a trigger's words", ""] {
            let fault = said(DatabaseErrorKind::Unknown, text);
            assert_eq!(fault.code(), None, "{text}");
            assert_eq!(classify(&fault, Asked::InTransaction), Unavailable);
            assert!(!leaves_connection(&fault));
            assert!(failed(fault, Asked::InTransaction).to_string().contains(text));
        }
    }

    #[test]
    fn broken_connection_has_no_code_whatever_its_text() {
        for kind in [DatabaseErrorKind::ClosedConnection, DatabaseErrorKind::UnableToSendCommand] {
            let fault = said(kind, "deadlock detected");
            assert!(matches!(fault, Fault::Broken(_)), "{fault:?}");
            assert_eq!(classify(&fault, Asked::InTransaction), Unavailable);
        }
        assert!(matches!(fault_of(DieselError::NotFound), Fault::Broken(_)));
    }

    #[test]
    fn draw_outside_a_diesel_transaction_is_rejected() {
        assert!(must_be_inside(Ok(NonZeroU32::new(2))).is_ok());
        for (depth, means) in
            [(Ok(None), InvalidInput), (Err(DieselError::BrokenTransactionManager), Unavailable)]
        {
            let fault = must_be_inside(depth).unwrap_err();
            assert!(matches!(fault, Fault::Refused(error) if error.kind() == means));
        }
    }
}
