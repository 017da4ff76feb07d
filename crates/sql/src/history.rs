//! Rows that were last written in another history of their table: on another server, cluster or
//! timeline.

use idmill::store::SequenceInfo;
use idmill::{Error, Result, SequenceName};
use idmill_kit::history::{Failover, Histories};

/// How statements check the server's history, and the policy if a row was written in another history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct History {
    /// The current history as an SQL expression; `None` if it is not checked.
    pub(crate) here: Option<&'static str>,
    pub(crate) failover: Failover,
}

impl History {
    /// The history with this expression. A missing or denied function would end a transaction of the caller,
    /// so [`Failover::Allow`] calls no function.
    pub(crate) fn new(here: &'static str, failover: Failover) -> Self {
        Self { here: Some(here).filter(|_| failover != Failover::Allow), failover }
    }

    /// Returns the history if the server reports it. Otherwise continues without a history because of `why`:
    /// failovers and restores are then not detected.
    ///
    /// # Errors
    /// `why`, if a policy other than [`Failover::Allow`] was requested.
    pub(crate) fn told(here: Result<&'static str>, failover: Option<Failover>) -> Result<Self> {
        match (here, failover) {
            (Ok(here), _) => Ok(Self { here: Some(here), failover: failover.unwrap_or_default() }),
            (Err(why), Some(Failover::Refuse | Failover::Skip(_))) => Err(why),
            (Err(why), policy) => {
                if policy.is_none() {
                    tracing::warn!(cause = %why, "failovers and restores of the server will not be detected");
                }
                Ok(Self { here: None, failover: Failover::Allow })
            }
        }
    }

    /// The assignment of the current history, to append to other assignments.
    pub(crate) fn sets(self) -> String {
        self.here.map(|here| format!(", history = {here}")).unwrap_or_default()
    }

    /// The assignment in a `set` with a new `next`; NULL if the current history is unknown.
    pub(crate) fn sets_anew(self) -> String {
        format!(", history = {}", self.value())
    }

    /// The value of `history` in a new row.
    pub(crate) fn value(self) -> &'static str {
        self.here.unwrap_or("NULL")
    }

    /// The condition that the row was written in the current history, to append to other conditions. `column`
    /// is the column of the history.
    pub(crate) fn holds(self, column: &str) -> String {
        let holds = |here| format!(" AND ({column} IS NULL OR {column} = {here})");
        self.here.map(holds).unwrap_or_default()
    }
}

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
