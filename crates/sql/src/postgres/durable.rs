//! Whether what was committed survives a crash: what is asked of the server, with
//! each statement, and of a table.

use idmill::{Error, ErrorKind, Result};
use idmill_kit::options::Word;

/// What makes sure that the server keeps what it committed, through a crash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Keeps {
    /// `disk`: its settings `fsync` and `full_page_writes`, which have to be on.
    #[default]
    Disk,
    /// `trust`: its owner. For databases of tests, which are thrown away and run with `fsync=off`. Wherever
    /// else they are off, a crash of the machine repeats ids.
    Trust,
}

impl Word for Keeps {
    const WORDS: &'static [(Self, &'static str, &'static str)] = &[
        (Self::Disk, "disk", "`fsync` and `full_page_writes` have to be on"),
        (
            Self::Trust,
            "trust",
            "taken for granted, for throwaway test databases that run with `fsync=off`; elsewhere, a machine crash then repeats ids",
        ),
    ];
}

/// Sets what the commit of this transaction waits for, and says what that is now, and whether the server
/// syncs at all. A commit that waits for more than the disk is left to.
pub(super) const DURABLE: &str = "CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' \
     ELSE set_config('synchronous_commit', 'on', true) END || ' ' || current_setting('fsync') || ' ' \
     || current_setting('full_page_writes') AS durable";

/// The same as a condition, which is met, with the lock timeout of the fourth parameter; [`SETTINGS`] reads
/// back what it was set to.
pub(super) const SET: &str = "set_config('lock_timeout', $4, true) IS NOT NULL AND CASE current_setting('synchronous_commit') \
     WHEN 'remote_apply' THEN true ELSE set_config('synchronous_commit', 'on', true) IS NOT NULL END";
/// The setting that the commit of this transaction follows, and whether the server syncs at all.
pub(super) const SETTINGS: &str = "current_setting('synchronous_commit') || ' ' || current_setting('fsync') || ' ' \
     || current_setting('full_page_writes')";

/// Where [`WRITTEN`] begins in a row that was written, behind what is read of each.
pub(super) const DURABLE_AT: usize = 8;
/// What a statement that has written says besides: how durable that is, and in which transaction it was.
pub(super) const WRITTEN: &str = "session.durable, txid_current()::text AS xid";

/// Says in which transaction it runs: a row with that number, as text. For a connection that the caller has,
/// and on which a transaction may be open: see [`TRANSACTION_STATUS`].
pub const CURRENT_TRANSACTION: &str = "SELECT txid_current()::text AS xid";
/// Says of a transaction of this number, a text, what became of it: a row with `committed`, or else it is not
/// over. A write says its own behind the column [`durable_at`](crate::Statement::durable_at). Where that is not committed once it was answered, the
/// connection is in a transaction, and the write is [`Fault::Uncommitted`](crate::Fault::Uncommitted).
pub const TRANSACTION_STATUS: &str = "SELECT txid_status($1::text::bigint)";

/// Looks at what a row that was written says in the column [`durable_at`](crate::Statement::durable_at). Settings can be changed while the
/// server runs, and behind a pooler, or after a failover, the next statement may run on another.
///
/// # Errors
/// [`Conflict`](ErrorKind::Conflict) if the server does not sync what it writes;
/// [`StoreViolation`](ErrorKind::StoreViolation) if its commit did not wait for the disk. Nothing of the row
/// may be used then, and the connection that it came from neither.
pub fn must_be_durable(durable: &str, keeps: Keeps) -> Result<()> {
    let settings: Vec<_> = durable.split(' ').collect();
    match settings.as_slice() {
        ["on" | "remote_apply", ..] if keeps == Keeps::Trust => Ok(()),
        ["on" | "remote_apply", "on", "on"] => Ok(()),
        ["on" | "remote_apply", "on", writes] => Err(unsynced("full_page_writes", writes)),
        ["on" | "remote_apply", fsync, _] => Err(unsynced("fsync", fsync)),
        _ => {
            let message = format!(
                "the server ran with synchronous_commit {durable:?} although it was told `on`: a crash could take back what it \
                 confirmed; nothing of it is used"
            );
            Err(Error::new(ErrorKind::StoreViolation, message))
        }
    }
}

fn unsynced(setting: &str, value: &str) -> Error {
    let message = format!(
        "the server has {setting} = {value}: after a crash it would hand out ids again, so nothing is used that it confirms; set \
         {setting} = on in postgresql.conf and reload it; or, for a throwaway test database, set durability=trust, or keeps(Keeps::Trust) in code"
    );
    Error::new(ErrorKind::Conflict, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_crash_would_take_back_is_refused() {
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
