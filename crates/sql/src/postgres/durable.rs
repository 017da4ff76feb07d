//! Durability of commits: the settings of the server, and their check in each statement.

use idmill::{Error, ErrorKind, Result};
use idmill_kit::options::Word;

/// The guarantee that the server keeps commits through a crash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Keeps {
    /// `disk`: the settings `fsync` and `full_page_writes` must be on.
    #[default]
    Disk,
    /// `trust`: the settings are not checked. For throwaway test databases that run with `fsync=off`. In any
    /// other database with `fsync=off`, a crash of the machine can lead to duplicate ids.
    Trust,
}

impl Word for Keeps {
    const WORDS: &'static [(Self, &'static str, &'static str)] = &[
        (Self::Disk, "disk", "`fsync` and `full_page_writes` have to be on"),
        (
            Self::Trust,
            "trust",
            "not checked; only for throwaway test databases: with `fsync=off`, a machine crash can repeat \
             ids",
        ),
    ];
}

/// Sets `synchronous_commit` for this transaction, and returns its value and whether the server
/// syncs at all. `remote_apply` is kept, since it waits for more than the disk.
pub(super) const DURABLE: &str = "CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' \
     ELSE set_config('synchronous_commit', 'on', true) END || ' ' || current_setting('fsync') || ' ' \
     || current_setting('full_page_writes') AS durable";

/// The same settings, as a condition that is always true. The condition also sets the lock timeout from the
/// fourth parameter; [`SETTINGS`] reads the settings back.
pub(super) const SET: &str = "set_config('lock_timeout', $4, true) IS NOT NULL AND CASE current_setting('synchronous_commit') \
     WHEN 'remote_apply' THEN true ELSE set_config('synchronous_commit', 'on', true) IS NOT NULL END";
/// The `synchronous_commit` of this transaction, and whether the server syncs at all.
pub(super) const SETTINGS: &str = "current_setting('synchronous_commit') || ' ' || current_setting('fsync') || ' ' \
     || current_setting('full_page_writes')";

/// The position of [`WRITTEN`] in a written row, after the columns of the sequence.
pub(super) const DURABLE_AT: usize = 8;
/// Additional columns of a written row: its durability, and its transaction.
pub(super) const WRITTEN: &str = "session.durable, txid_current()::text AS xid";

/// Returns the id of the current transaction, as text. For a connection of the caller, which may be
/// in a transaction: see [`TRANSACTION_STATUS`].
pub const CURRENT_TRANSACTION: &str = "SELECT txid_current()::text AS xid";
/// Returns the status of the transaction with this id, as text: `committed`, or another value while it is
/// open. A write returns the id of its transaction in the column after
/// [`durable_at`](crate::Statement::durable_at). If that transaction is not committed after the answer, the
/// connection is in a transaction, and the write is [`Fault::Uncommitted`](crate::Fault::Uncommitted).
pub const TRANSACTION_STATUS: &str = "SELECT txid_status($1::text::bigint)";

/// Checks the durability that a written row reports in the column
/// [`durable_at`](crate::Statement::durable_at). Each row is checked, since settings can change
/// while the server runs, and behind a pooler or after a failover the next statement may run on
/// another server.
///
/// # Errors
/// [`Conflict`](ErrorKind::Conflict) if the server does not sync its writes;
/// [`StoreViolation`](ErrorKind::StoreViolation) if the commit did not wait for the disk. Use
/// neither the row nor its connection then.
pub fn must_be_durable(durable: &str, keeps: Keeps) -> Result<()> {
    let settings: Vec<_> = durable.split(' ').collect();
    match settings.as_slice() {
        ["on" | "remote_apply", ..] if keeps == Keeps::Trust => Ok(()),
        ["on" | "remote_apply", "on", "on"] => Ok(()),
        ["on" | "remote_apply", "on", writes] => Err(unsynced("full_page_writes", writes)),
        ["on" | "remote_apply", fsync, _] => Err(unsynced("fsync", fsync)),
        _ => {
            let message = format!(
                "the server wrote with {durable:?} instead of synchronous_commit `on`: a crash could lose \
                 it; the answer was rejected"
            );
            Err(Error::new(ErrorKind::StoreViolation, message))
        }
    }
}

fn unsynced(setting: &str, value: &str) -> Error {
    let message = format!(
        "{setting} = {value}: a crash can repeat ids; set {setting} = on, or for tests `durability=trust` \
         (`Keeps::Trust`)"
    );
    Error::new(ErrorKind::Conflict, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commit_that_a_crash_could_lose_is_rejected() {
        for (durable, disk, trust) in [
            ("on on on", None, None),
            ("remote_apply on on", None, None),
            ("on off on", Some(ErrorKind::Conflict), None),
            ("on on off", Some(ErrorKind::Conflict), None),
            ("off on on", Some(ErrorKind::StoreViolation), Some(ErrorKind::StoreViolation)),
            ("local on on", Some(ErrorKind::StoreViolation), Some(ErrorKind::StoreViolation)),
            ("", Some(ErrorKind::StoreViolation), Some(ErrorKind::StoreViolation)),
        ] {
            let kind = |keeps| must_be_durable(durable, keeps).err().map(|error| error.kind());
            assert_eq!((kind(Keeps::Disk), kind(Keeps::Trust)), (disk, trust), "{durable:?}");
        }
    }
}
