//! Rows that were last written in another history of their table: on another server, cluster or timeline.

use idmill::store::SequenceInfo;
use idmill::{Error, Result, SequenceName};
use idmill_kit::history::{Failover, Histories};

/// A row that was read to be written: the sequence, where it was written last, and where it is now.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) info: SequenceInfo,
    pub(crate) was: Option<String>,
    pub(crate) here: Option<String>,
}

impl Seen {
    /// Where it was written, and where it is now, if that is not the same.
    pub(crate) fn moved(&self) -> Option<Histories<'_>> {
        let (was, here) = (self.was.as_deref()?, self.here.as_deref()?);
        (was != here).then_some(Histories { was, here })
    }
}

/// A name, where it was written last, and where it is now, as the error of a reserve that is refused for it.
pub(crate) fn refusal([name, was, here]: [Option<&str>; 3]) -> Option<(SequenceName, Error)> {
    let name = SequenceName::new(name?).ok()?;
    let error = Histories { was: was?, here: here? }.refusal(&name);
    Some((name, error))
}

/// Goes on without a history, which the server does not tell for this reason: nothing is noticed then.
///
/// # Errors
/// The reason, if a refusal was asked for.
pub(crate) fn untold(failover: Option<Failover>, why: Error) -> Result<()> {
    match failover {
        Some(Failover::Allow) => Ok(()),
        Some(_) => Err(why),
        None => {
            tracing::warn!(cause = %why, "a failover to another server, or a restore, will not be noticed");
            Ok(())
        }
    }
}
