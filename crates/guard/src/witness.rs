//! Storage for ledgers.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use futures_util::future::join_all;

use super::Ledger;
use idmill::SequenceName;
use idmill::store::{Cursor, Page, StoreFuture, Unreadable, page_of};
use idmill::{Error, ErrorKind, Result, Status};
use idmill_kit::chain;
use parking_lot::{Mutex, MutexGuard};

/// Stores the ledger of each sequence, durably and separately from the store. It records claims and never
/// grants an id.
pub trait Witness: Send + Sync + fmt::Debug {
    /// Reads the ledger of a sequence. Returns `None` if there is none.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable) if the witness is unreachable; a permanent kind if a retry
    /// cannot help.
    fn read<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<Option<Ledger>>>;

    /// Writes `wanted` if `seen` is still stored, or, for `None`, if nothing is stored. Returns whether it
    /// was written. After `true`, the ledger survives a crash of the machine.
    ///
    /// # Errors
    /// As [`read`](Self::read) if nothing was written; [`UnknownOutcome`](ErrorKind::UnknownOutcome) if it
    /// may have been.
    fn swap<'a>(
        &'a self,
        name: &'a SequenceName,
        seen: Option<&'a Ledger>,
        wanted: &'a Ledger,
    ) -> StoreFuture<'a, Result<bool>>;

    /// Reads the ledgers of several sequences in one call. The results are in the order of the names.
    ///
    /// # Errors
    /// As [`read`](Self::read), for each.
    fn read_many<'a>(&'a self, names: &'a [SequenceName]) -> StoreFuture<'a, Vec<Result<Option<Ledger>>>> {
        Box::pin(join_all(names.iter().map(|name| self.read(name))))
    }

    /// Makes several independent writes in one call. The results are in the order of the writes.
    ///
    /// # Errors
    /// As [`swap`](Self::swap), for each.
    fn swap_many<'a>(&'a self, writes: &'a [Write]) -> StoreFuture<'a, Vec<Result<bool>>> {
        let swap = |write: &'a Write| self.swap(&write.name, write.seen.as_ref(), &write.wanted);
        Box::pin(join_all(writes.iter().map(swap)))
    }

    /// Reads a page of ledgers, with the guarantees of [`Store::list`](idmill::store::Store::list).
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn list<'a>(&'a self, page: &'a Page) -> StoreFuture<'a, Result<Ledgers>>;
}

/// Implements [`Witness`] for an `Arc` of a witness.
impl<W: Witness + ?Sized> Witness for Arc<W> {
    fn read<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<Option<Ledger>>> {
        (**self).read(name)
    }

    fn swap<'a>(
        &'a self,
        name: &'a SequenceName,
        seen: Option<&'a Ledger>,
        wanted: &'a Ledger,
    ) -> StoreFuture<'a, Result<bool>> {
        (**self).swap(name, seen, wanted)
    }

    fn read_many<'a>(&'a self, names: &'a [SequenceName]) -> StoreFuture<'a, Vec<Result<Option<Ledger>>>> {
        (**self).read_many(names)
    }

    fn swap_many<'a>(&'a self, writes: &'a [Write]) -> StoreFuture<'a, Vec<Result<bool>>> {
        (**self).swap_many(writes)
    }

    fn list<'a>(&'a self, page: &'a Page) -> StoreFuture<'a, Result<Ledgers>> {
        (**self).list(page)
    }
}

/// One write of a [batch](Witness::swap_many).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Write {
    /// The sequence.
    pub name: SequenceName,
    /// The ledger that must still be stored; `None`: nothing.
    pub seen: Option<Ledger>,
    /// The ledger to store.
    pub wanted: Ledger,
}

impl Write {
    /// Creates a write that replaces `seen` with `wanted`.
    pub fn new(name: SequenceName, seen: Option<Ledger>, wanted: Ledger) -> Self {
        Self { name, seen, wanted }
    }
}

/// A page of a witness's ledgers.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Ledgers {
    /// Each sequence and its ledger.
    pub ledgers: Vec<(SequenceName, Ledger)>,
    /// Entries that cannot be parsed as a ledger.
    pub unreadable: Vec<Unreadable>,
    /// The start of the next page; `None` if this was the last.
    pub next: Option<Cursor>,
}

impl Ledgers {
    /// Returns the page after this one, which `page` requested; `None` if this was the last, or if the
    /// witness returned the cursor of the request again.
    pub fn page_after(&self, page: &Page) -> Option<Page> {
        let cursor = self.next.clone().filter(|cursor| page.after.as_ref() != Some(cursor))?;
        Some(page.clone().after(cursor))
    }

    /// Creates a page of these ledgers.
    pub(super) fn of(kept: &BTreeMap<SequenceName, Ledger>, page: &Page) -> Self {
        let (rows, next) = page_of(kept, page);
        let ledgers = rows.into_iter().map(|(name, ledger)| (name.clone(), ledger.clone())).collect();
        Self { ledgers, unreadable: Vec::new(), next }
    }
}

/// A witness in memory, for tests. Clones share one state.
#[derive(Clone, Debug, Default)]
pub struct MemoryWitness(Arc<Mutex<Memory>>);

#[derive(Clone, Debug, Default)]
struct Memory {
    ledgers: BTreeMap<SequenceName, Ledger>,
    read_only: bool,
    lose_replies: u32,
    fails_with: Option<ErrorKind>,
}

impl MemoryWitness {
    /// Creates an empty witness.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the witness unreachable from now on, or reachable again.
    pub fn set_away(&self, away: bool) {
        self.fail_with(away.then_some(ErrorKind::Unavailable));
    }

    /// Makes every call fail with this kind from now on, or succeed again.
    pub fn fail_with(&self, kind: Option<ErrorKind>) {
        self.0.lock().fails_with = kind;
    }

    /// Makes every write fail from now on, or succeed again.
    pub fn set_read_only(&self, read_only: bool) {
        self.0.lock().read_only = read_only;
    }

    /// Applies the next `writes` writes, but loses their replies.
    pub fn lose_replies(&self, writes: u32) {
        self.0.lock().lose_replies = writes;
    }

    /// Returns the ledger of a sequence.
    pub fn ledger(&self, name: &str) -> Option<Ledger> {
        self.0.lock().ledgers.get(name).cloned()
    }

    /// Replaces or removes the ledger of a sequence, as restoring the witness from a backup does.
    pub fn set_ledger(&self, name: &SequenceName, ledger: Option<Ledger>) {
        let ledgers = &mut self.0.lock().ledgers;
        match ledger {
            Some(ledger) => drop(ledgers.insert(name.clone(), ledger)),
            None => drop(ledgers.remove(name)),
        }
    }

    /// Returns the state, or an error while the witness is unreachable.
    fn there(&self) -> Result<MutexGuard<'_, Memory>> {
        let memory = self.0.lock();
        memory.fails_with.map_or(Ok(memory), |kind| Err(Error::new(kind, "the witness is unreachable")))
    }
}

impl Witness for MemoryWitness {
    fn read<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<Option<Ledger>>> {
        Box::pin(async move { Ok(self.there()?.ledgers.get(name).cloned()) })
    }

    fn swap<'a>(
        &'a self,
        name: &'a SequenceName,
        seen: Option<&'a Ledger>,
        wanted: &'a Ledger,
    ) -> StoreFuture<'a, Result<bool>> {
        Box::pin(async move {
            let mut memory = self.there()?;
            if memory.read_only {
                return Err(Error::new(ErrorKind::Denied, "the witness is read-only"));
            }
            let holds = memory.ledgers.get(name) == seen;
            if holds {
                memory.ledgers.insert(name.clone(), wanted.clone());
            }
            if memory.lose_replies > 0 {
                memory.lose_replies -= 1;
                return Err(Error::new(ErrorKind::UnknownOutcome, "the witness's reply was lost"));
            }
            Ok(holds)
        })
    }

    fn list<'a>(&'a self, page: &'a Page) -> StoreFuture<'a, Result<Ledgers>> {
        Box::pin(async move { Ok(Ledgers::of(&self.there()?.ledgers, page)) })
    }
}

/// Returns whether the store or the witness definitely changed nothing.
pub(super) fn is_certain(error: &Error) -> bool {
    !matches!(error.kind(), ErrorKind::UnknownOutcome | ErrorKind::Deadline | ErrorKind::StoreViolation)
}

/// Returns the error of a failed write to the witness. It does not concern the sequence or the store.
pub(super) fn of_the_witness(error: Error) -> Error {
    failed("failed", error, ErrorKind::UnknownOutcome)
}

/// Returns the error of a failed read of the witness, which changed nothing.
pub(super) fn not_read(error: Error) -> Error {
    failed("failed", error, ErrorKind::Unavailable)
}

/// Returns the error of a write that changed nothing.
pub(super) fn not_writable(error: Error) -> Error {
    failed("is not writable", error, ErrorKind::Unavailable)
}

/// `unknown` is the kind of an error after which the outcome is unknown.
#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn failed(what: &str, error: Error, unknown: ErrorKind) -> Error {
    let kind = match error.kind() {
        ErrorKind::UnknownOutcome | ErrorKind::Deadline => unknown,
        kind if kind.status() == Status::Permanent => ErrorKind::Witness,
        kind => kind,
    };
    Error::new(kind, format!("the witness that guards this store {what}: {}", chain(&error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_cursor_again_ends_the_listing() {
        let cursor = |text: &str| Some(Cursor::new(text));
        let after = |next, page: &Page| {
            let listed = Ledgers { next, ..Ledgers::default() };
            listed.page_after(page).map(|page| (page.prefix, page.limit, page.after))
        };
        let first = Page::of("o").limit(7);
        assert_eq!(after(None, &first), None);
        assert_eq!(after(cursor("a"), &first), Some(("o".to_owned(), 7, cursor("a"))));
        let second = first.after(cursor("a"));
        assert_eq!(after(cursor("a"), &second), None, "the listing would not end");
        assert_eq!(after(cursor("b"), &second), Some(("o".to_owned(), 7, cursor("b"))));
    }

    #[test]
    fn failure_of_the_witness_tells_what_is_certain() {
        use ErrorKind::{Deadline, Denied, NotFound, StoreViolation, Unavailable, UnknownOutcome, Witness};
        for (kind, read, written) in [
            (Unavailable, Unavailable, Unavailable),
            (UnknownOutcome, Unavailable, UnknownOutcome),
            (Deadline, Unavailable, UnknownOutcome),
            (Denied, Witness, Witness),
            (NotFound, Witness, Witness),
            (StoreViolation, Witness, Witness),
        ] {
            let error = || Error::new(kind, "no").because("a cause");
            assert_eq!(not_read(error()).kind(), read, "{kind}");
            assert_eq!(not_writable(error()).kind(), read, "{kind}");
            assert_eq!(of_the_witness(error()).kind(), written, "{kind}");
        }
        let error = || Error::new(Denied, "no").because("a cause");
        let text = "the witness that guards this store failed: no: a cause";
        assert_eq!(
            (not_read(error()).to_string(), of_the_witness(error()).to_string()),
            (text.into(), text.into())
        );
        let text = "the witness that guards this store is not writable: no: a cause";
        assert_eq!(not_writable(error()).to_string(), text);
    }
}
