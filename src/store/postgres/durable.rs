//! Whether what was committed survives a crash: what is asked of the server, with
//! each statement, and of a table.

use tokio_postgres::Row;

use super::classify::{Asked, failed};
use super::session::Sessions;
use crate::error::{Error, ErrorKind, Result};
use crate::store::url::query::refuse;

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

impl Keeps {
    pub(super) fn parse(value: &str) -> Result<Self> {
        let known = [Self::Disk, Self::Trust].into_iter().find(|known| known.as_str() == value);
        known.ok_or_else(|| {
            refuse(format!(
                "durability={value:?} is unknown; there are disk (fsync has to be on) and trust (taken for granted)"
            ))
        })
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Disk => "disk",
            Self::Trust => "trust",
        }
    }
}

/// Sets what the commit of this transaction waits for, and says what that is now, and whether the server
/// syncs at all. A commit that waits for more than the disk is left to.
pub(super) const DURABLE: &str = "CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' \
     ELSE set_config('synchronous_commit', 'on', true) END || ' ' || current_setting('fsync') || ' ' \
     || current_setting('full_page_writes') AS durable";

/// What a statement that has written says besides: how durable that is, and in which transaction it was.
pub(super) const WRITTEN: &str = "session.durable, txid_current()::text AS xid";

/// Looks at `durable` in a row that has it. Settings can be changed while the server runs, and behind a
/// pooler, or after a failover, the next statement may run on another.
pub(super) fn check(row: &Row, keeps: Keeps) -> Result<()> {
    let durable: Option<String> = row.try_get("durable").unwrap_or_default();
    let durable = durable.unwrap_or_default();
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
         {setting} = on in postgresql.conf and reload it; or, for a database of tests that is thrown away, say durability=trust"
    );
    Error::new(ErrorKind::Conflict, message)
}

/// The server must write to the disk what it says it has.
pub(super) async fn must_sync(sessions: &Sessions) -> Result<()> {
    if sessions.keeps() == Keeps::Trust {
        return Ok(());
    }
    let sql = "SELECT current_setting('fsync'), current_setting('full_page_writes')";
    let rows = sessions.run(Asked::Read, sql, &[]).await.map_err(|fault| failed(fault, Asked::Read))?;
    let row =
        rows.first().ok_or_else(|| Error::new(ErrorKind::StoreViolation, "the server has no settings"))?;
    for (place, setting) in ["fsync", "full_page_writes"].into_iter().enumerate() {
        let value: &str = row.get(place);
        if value != "on" {
            return Err(unsynced(setting, value));
        }
    }
    Ok(())
}
