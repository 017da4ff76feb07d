//! Rows that were last written in another history of their table: on another server, cluster or
//! timeline.

use idmill::store::SequenceInfo;
use idmill::{Error, Result, SequenceName};
use idmill_kit::history::{Failover, Histories};

/// A row that was read before a write: the sequence, the history it was last written in, and the
/// current history.
#[derive(Clone, Debug)]
pub(crate) struct RowHistory {
    pub(crate) info: SequenceInfo,
    pub(crate) was: Option<String>,
    pub(crate) here: Option<String>,
}

impl RowHistory {
    /// Returns both histories if they differ.
    pub(crate) fn moved(&self) -> Option<Histories<'_>> {
        let (was, here) = (self.was.as_deref()?, self.here.as_deref()?);
        (was != here).then_some(Histories { was, here })
    }
}

/// Builds the error of a refused reserve from a name, the history the row was written in, and the
/// current one.
pub(crate) fn refusal([name, was, here]: [Option<&str>; 3]) -> Option<(SequenceName, Error)> {
    let name = SequenceName::new(name?).ok()?;
    let error = Histories { was: was?, here: here? }.refusal(&name);
    Some((name, error))
}

/// Continues without a history, which the server does not report because of `why`. Failovers and
/// restores are then not detected.
///
/// # Errors
/// `why`, if a policy other than [`Failover::Allow`] was requested.
pub(crate) fn untold(failover: Option<Failover>, why: Error) -> Result<()> {
    match failover {
        Some(Failover::Allow) => Ok(()),
        Some(_) => Err(why),
        None => {
            tracing::warn!(cause = %why, "failovers and restores of the server will not be detected");
            Ok(())
        }
    }
}
