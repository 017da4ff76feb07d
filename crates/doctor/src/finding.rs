//! What a doctor finds, and what is to be done about it.

use idmill::Result;
use idmill::SequenceName;
use idmill::named;
use idmill::store::{Bounds, Identity, SequenceInfo, Store, not_found};

named! {
    /// How bad a finding is. What is worse is larger.
    #[derive(PartialOrd, Ord)]
    pub enum Severity, "severity" {
        /// Good to know.
        Info = "info",
        /// Will be an error some day, if nobody does anything.
        Warning = "warning",
        /// Ids will repeat, or none can be had, or it cannot be told.
        Error = "error",
    }
}

named! {
    /// What was found. Names are stable.
    #[derive(PartialOrd, Ord)]
    pub enum FindingKind, "kind of finding" {
        /// A column holds an id that is still to be handed out: it will repeat.
        InUse = "in_use",
        /// Ids were claimed at the witness, or put into the window, that the store has not reserved: it went back
        /// in time.
        WentBack = "went_back",
        /// The witness knows of a reset that the store does not.
        BehindReset = "behind_reset",
        /// The witness knows another sequence of this name: the store was emptied, or is another one.
        Replaced = "replaced",
        /// The witness, or whoever asked, knows a sequence that the store does not have.
        Missing = "missing",
        /// There is a witness, and ids were reserved that were not claimed: some process draws without the guard.
        Unguarded = "unguarded",
        /// A reset or removal was announced at the witness, and the store did not confirm it.
        Pending = "pending",
        /// The column has a default that gives new rows ids of its own.
        ColumnDefault = "column_default",
        /// A larger id of the column may be hidden from the reader.
        Incomplete = "incomplete",
        /// No id is left.
        Exhausted = "exhausted",
        /// At the rate seen, no id is left soon.
        EndsSoon = "ends_soon",
        /// The sequence goes on beyond the largest id that its type, or its column, holds.
        TooNarrow = "too_narrow",
        /// Something is stored that no version of this crate writes.
        Unreadable = "unreadable",
        /// The store forgets what it granted when its process, or its machine, ends.
        LosesWrites = "loses_writes",
        /// The store refuses to be opened as it is: its settings lose writes, its table is ambiguous or is not
        /// one of this crate's. Or it refuses each reserve of a sequence, after a failover or a restore.
        Refused = "refused",
        /// The database has something else under the store's name, from which others may draw.
        Ambiguous = "ambiguous",
        /// Something could not be looked at, and nothing is known of it.
        NotSeen = "not_seen",
    }
}

impl FindingKind {
    /// How bad it is.
    pub fn severity(self) -> Severity {
        match self {
            Self::Unguarded => Severity::Info,
            Self::EndsSoon
            | Self::TooNarrow
            | Self::Ambiguous
            | Self::ColumnDefault
            | Self::Incomplete
            | Self::Pending => Severity::Warning,
            _ => Severity::Error,
        }
    }
}

/// Something that is wrong, or will be.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// What it is.
    pub kind: FindingKind,
    /// How bad it is.
    pub severity: Severity,
    /// The sequence, or the name of what cannot be read as one; `None` if it is about the store.
    pub sequence: Option<String>,
    /// What was asked, such as "the largest id in sqlite:shop.db?column=orders.id".
    pub asked: String,
    /// What is there.
    pub found: String,
    /// What to do.
    pub remedy: Remedy,
}

impl Finding {
    /// A finding as bad as its kind.
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

/// What is to be done about a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Remedy {
    /// Raise the next id of a sequence. [`apply`] does it.
    Raise {
        /// The sequence.
        name: SequenceName,
        /// Which sequence of this name was looked at.
        identity: Identity,
        /// The next id to reserve; no larger than its max and one.
        next: u64,
    },
    /// Set the last id, and the next one where there is one to set. Somebody has to decide it.
    SetMax {
        /// The sequence.
        name: SequenceName,
        /// The next id, if that has to be raised as well.
        next: Option<u64>,
        /// The last id.
        max: u64,
    },
    /// Correct the store's URL, or restore the store; or, if it was emptied on purpose, tell the witness by
    /// removing the sequence through the guard, and create it again, in one step with its next id. Processes
    /// that retry may create it in between: then raise it. Somebody has to decide it.
    Recreate {
        /// The sequence.
        name: SequenceName,
        /// Its next id: above all that were claimed.
        next: u64,
        /// Its bounds; `None` if nothing tells them.
        bounds: Option<Bounds>,
    },
    /// Something that a person has to do, in a sentence.
    Advice(String),
}

impl Remedy {
    pub(super) fn advice(text: impl Into<String>) -> Self {
        Self::Advice(text.into())
    }
}

/// Carries a remedy out if it only raises a counter; returns the sequence as it is then, and `None` for any
/// other remedy, which needs a person.
///
/// # Errors
/// Those of [`raise`](idmill_kit::raise): nothing is changed if it is another sequence by now.
pub async fn apply(store: &dyn Store, remedy: &Remedy) -> Result<Option<SequenceInfo>> {
    let Remedy::Raise { name, identity, next } = remedy else { return Ok(None) };
    let mut seen = store.inspect(name).await?.ok_or_else(|| not_found(name))?;
    seen.identity = *identity;
    idmill_kit::raise(store, &seen, u128::from(*next)).await.map(Some)
}
