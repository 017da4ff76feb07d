//! Findings and their remedies.

use idmill::Result;
use idmill::SequenceName;
use idmill::store::{Bounds, Identity, SequenceInfo, Store, not_found};
use idmill::string_enum;

string_enum! {
    /// The severity of a finding. A worse severity is larger.
    #[derive(PartialOrd, Ord)]
    pub enum Severity, "severity" {
        /// Information only.
        Info = "info",
        /// A problem that will become an error if nothing is done.
        Warning = "warning",
        /// Ids will repeat or run out, or the check failed.
        Error = "error",
    }
}

string_enum! {
    /// The kind of a finding. Names are stable.
    #[derive(PartialOrd, Ord)]
    pub enum FindingKind, "kind of finding" {
        /// A column holds an id that the sequence has yet to hand out, so this id will be a duplicate.
        InUse = "in_use",
        /// The witness or the window has ids that the store has not reserved: the store went back in time.
        WentBack = "went_back",
        /// The witness has a reset that the store does not have.
        BehindReset = "behind_reset",
        /// The witness has another sequence of this name: the store was emptied, or is a different store.
        Replaced = "replaced",
        /// The store does not have a sequence that is in the witness or in the request.
        Missing = "missing",
        /// There is a witness, and ids were reserved or skipped without a claim, such as by a process without
        /// the guard.
        Unguarded = "unguarded",
        /// The sequence starts below the ids of a removed sequence of the same name.
        Recreated = "recreated",
        /// The ledger of this name was written for a store at another place.
        Shared = "shared",
        /// A reset or removal was announced at the witness, and the store did not confirm it.
        Pending = "pending",
        /// The column has a default that assigns other ids to new rows.
        ColumnDefault = "column_default",
        /// A larger id of the column may be hidden from the reader.
        Incomplete = "incomplete",
        /// No id is left.
        Exhausted = "exhausted",
        /// At the measured or configured rate, no id will be left soon.
        EndsSoon = "ends_soon",
        /// The sequence ends above the largest id that its type or column can hold.
        TooNarrow = "too_narrow",
        /// An entry cannot be read as a sequence or a ledger.
        Unreadable = "unreadable",
        /// The store loses its grants when its process or its machine stops.
        LosesWrites = "loses_writes",
        /// The store or the witness cannot be opened, for example because it loses writes, or its table is
        /// ambiguous or foreign. Also: the store rejects each reserve of a sequence after a failover or a
        /// restore.
        Refused = "refused",
        /// The database has another object with the store's name, which others may draw from.
        Ambiguous = "ambiguous",
        /// A check failed, so its result is unknown.
        NotSeen = "not_seen",
    }
}

impl FindingKind {
    /// Returns the default severity of this kind.
    pub fn severity(self) -> Severity {
        match self {
            Self::Unguarded => Severity::Info,
            Self::EndsSoon
            | Self::TooNarrow
            | Self::Ambiguous
            | Self::ColumnDefault
            | Self::Incomplete
            | Self::Recreated
            | Self::Shared
            | Self::Pending => Severity::Warning,
            _ => Severity::Error,
        }
    }
}

/// A present or future problem.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The kind of problem.
    pub kind: FindingKind,
    /// The severity.
    pub severity: Severity,
    /// The sequence, or the name of an unreadable entry; `None` if the finding is about the store.
    pub sequence: Option<String>,
    /// The check, such as "the largest id in sqlite:shop.db?column=orders.id".
    pub asked: String,
    /// The result of the check.
    pub found: String,
    /// The remedy.
    pub remedy: Remedy,
}

impl Finding {
    /// Creates a finding with the severity of its kind.
    pub(super) fn new(
        kind: FindingKind,
        sequence: impl Into<Option<String>>,
        asked: impl Into<String>,
        found: impl Into<String>,
        remedy: Remedy,
    ) -> Self {
        let (sequence, asked, found) = (sequence.into(), asked.into(), found.into());
        Self { kind, severity: kind.severity(), sequence, asked, found, remedy }
    }
}

/// The remedy for a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Remedy {
    /// Raise the next id of a sequence. [`apply`] applies this remedy.
    Raise {
        /// The sequence.
        name: SequenceName,
        /// The identity of the examined sequence.
        identity: Identity,
        /// The next id to reserve; at most one past the sequence's max.
        next: u64,
    },
    /// Set the last id, and the next id if it is given. Requires manual action.
    SetMax {
        /// The sequence.
        name: SequenceName,
        /// The next id, if it must be raised too.
        next: Option<u64>,
        /// The last id.
        max: u64,
    },
    /// Requires manual action. Correct the store's URL, or restore the store. If the store was emptied on
    /// purpose, remove the sequence through the guard, which updates the witness. Then create the sequence
    /// together with its next id, in one step. If a process that retries creates the sequence first, raise
    /// it instead.
    Recreate {
        /// The sequence.
        name: SequenceName,
        /// Its next id: above all claims.
        next: u64,
        /// Its bounds; `None` if unknown.
        bounds: Option<Bounds>,
    },
    /// A manual action, in a sentence.
    Advice(String),
}

impl Remedy {
    pub(super) fn advice(text: impl Into<String>) -> Self {
        Self::Advice(text.into())
    }
}

/// Applies a remedy that only raises a counter, and returns the raised sequence. Returns `None` for any
/// other remedy, which requires manual action.
///
/// # Errors
/// Those of [`raise`](idmill_kit::raise): nothing is changed if the sequence has another identity.
pub async fn apply(store: &dyn Store, remedy: &Remedy) -> Result<Option<SequenceInfo>> {
    let Remedy::Raise { name, identity, next } = remedy else { return Ok(None) };
    let mut seen = store.inspect(name).await?.ok_or_else(|| not_found(name))?;
    seen.identity = *identity;
    idmill_kit::raise(store, &seen, u128::from(*next)).await.map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_severity() {
        let of = |severity| {
            let kinds = FindingKind::ALL.iter().filter(|kind| kind.severity() == severity);
            kinds.map(|kind| kind.as_str()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(of(Severity::Info), "unguarded");
        assert_eq!(
            of(Severity::Warning),
            "recreated shared pending column_default incomplete ends_soon too_narrow ambiguous"
        );
        assert_eq!(
            of(Severity::Error),
            "in_use went_back behind_reset replaced missing exhausted unreadable loses_writes \
             refused not_seen"
        );
    }
}
