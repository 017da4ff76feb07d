//! Checks that a witness is separate from the guarded store, and whether it existed before.
//!
//! A witness in a store has a *mark*: a record with a random text, written when the witness is created. If
//! the store returns the text just written to the witness, both are the same place, even under different
//! names.

use std::path::Path;

use idmill::SequenceName;
use idmill::store::{Identity, Page, Pages, Store};
use idmill::{Error, ErrorKind, Result};

const MARK: &str = "idmill:witness";
/// The maximum number of probes while other processes write the mark.
const TRIES: usize = 8;

/// Returns whether the record of this name is the mark and not a ledger.
pub(super) fn is_mark(name: &SequenceName) -> bool {
    name.as_str() == MARK
}

fn name() -> SequenceName {
    SequenceName::new(MARK).expect("a valid name")
}

fn fresh() -> String {
    format!("witness {:016x}{:016x}", Identity::fresh().incarnation, Identity::fresh().incarnation)
}

/// Marks a witness that has no mark yet, and probes it.
///
/// # Errors
/// [`InvalidInput`](ErrorKind::InvalidInput) if store and witness are the same place; those of reading and
/// writing records.
pub async fn marked(store: &dyn Store, witness: &dyn Store) -> Result<()> {
    mark(witness).await?;
    probe(store, witness).await.map(drop)
}

async fn mark(witness: &dyn Store) -> Result<()> {
    // Another process may have written its mark first, which serves the same purpose.
    witness.swap_record(&name(), None, &fresh()).await.map(drop)
}

/// Returns whether the witness existed before: it is marked.
///
/// # Errors
/// [`InvalidInput`](ErrorKind::InvalidInput) if it is the guarded store itself; those of reading and writing
/// records.
pub async fn probe(store: &dyn Store, witness: &dyn Store) -> Result<bool> {
    let (name, mut written) = (name(), None);
    for _ in 0..TRIES {
        let Some(mark) = witness.record(&name).await? else { return Ok(false) };
        let shown = match store.record(&name).await {
            Err(error) if error.kind() == ErrorKind::Unsupported => return Ok(true),
            shown => shown.map_err(not_probed)?,
        };
        if shown.is_none() {
            return Ok(true);
        }
        if shown.as_ref() != Some(&mark) {
            // Read again: another process may have written between the two reads.
            if witness.record(&name).await?.as_ref() == Some(&mark) {
                return Ok(true);
            }
        } else if shown == written {
            return Err(is_itself());
        } else {
            // The store and the witness are the same place, or one is a copy. A new mark shows which is true.
            let new = fresh();
            if witness.swap_record(&name, Some(&mark), &new).await? {
                written = Some(new);
            }
        }
    }
    let message = format!("other processes changed the record `{MARK}` {TRIES} times; try again");
    Err(Error::new(ErrorKind::Unavailable, message))
}

/// Rejects a witness on the same server as the store.
///
/// # Errors
/// [`InvalidInput`](ErrorKind::InvalidInput) if the server is the same; those of [`Store::server`].
pub async fn not_the_server_of(store: &dyn Store, witness: &dyn Store) -> Result<()> {
    let Some(server) = witness.server().await? else { return Ok(()) };
    if store.server().await?.as_ref() != Some(&server) {
        return Ok(());
    }
    let message = format!(
        "the witness is on the store's server, {server}, so one restore reverts both; use another server, or \
         a file elsewhere"
    );
    Err(Error::invalid(message))
}

/// Returns what shows that the store was used before: a sequence with reserved ids, or one that cannot be
/// read. `None` if there is none.
///
/// # Errors
/// Those of [`Store::list`].
pub async fn used_before(store: &dyn Store) -> Result<Option<String>> {
    let mut pages = Pages::new(store, Page::default());
    while let Some(page) = pages.next().await? {
        if let Some(unreadable) = page.unreadable.into_iter().next() {
            return Ok(Some(format!("{:?} cannot be read", unreadable.name)));
        }
        let mut sequences = page.sequences.into_iter();
        if let Some(drawn) = sequences.find(|info| info.reached() > u128::from(info.bounds.start())) {
            return Ok(Some(format!("ids of {:?} were reserved", drawn.name.as_str())));
        }
    }
    Ok(None)
}

/// Returns whether both paths name the same file.
pub fn is_same_file(one: &Path, other: &Path) -> bool {
    let found = std::fs::canonicalize(one).ok();
    one == other || found.is_some() && found == std::fs::canonicalize(other).ok()
}

/// Returns the error for a witness that is the guarded store itself.
pub fn is_itself() -> Error {
    Error::invalid(
        "the witness is the store itself, so one restore reverts both; use another server, or a file on \
         another disk",
    )
}

fn not_probed(error: Error) -> Error {
    let message = format!(
        "cannot read record `{MARK}` of the store, which may be the witness itself; allow the store's user \
         to read records"
    );
    Error::new(error.kind(), message).because(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use idmill::store::{Bounds, MemoryStore, Reserve, StoreFuture};

    #[tokio::test]
    async fn probe_same_store_is_refused() {
        let store = MemoryStore::new();
        assert!(!probe(&store, &store.clone()).await.unwrap(), "no mark yet");
        mark(&store).await.unwrap();
        let error = probe(&store, &store.clone()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("is the store itself"), "{error}");
    }

    #[tokio::test]
    async fn probe_copy_of_the_witness_is_accepted() {
        let witness = MemoryStore::new();
        mark(&witness).await.unwrap();
        let store = MemoryStore::new();
        assert!(probe(&store, &witness).await.unwrap());
        let copied = witness.record(&name()).await.unwrap().unwrap();
        store.swap_record(&name(), None, &copied).await.unwrap();
        assert!(probe(&store, &witness).await.unwrap());
        assert_ne!(witness.record(&name()).await.unwrap(), Some(copied), "a new mark told them apart");
        // Each store is the witness of the other.
        assert!(probe(&witness, &store).await.unwrap());
    }

    #[tokio::test]
    async fn mark_twice_keeps_the_first() {
        let witness = MemoryStore::new();
        mark(&witness).await.unwrap();
        let first = witness.record(&name()).await.unwrap();
        mark(&witness).await.unwrap();
        assert_eq!(witness.record(&name()).await.unwrap(), first);
    }

    #[tokio::test]
    async fn used_before_finds_the_sequence_that_was_used() {
        let store = MemoryStore::new();
        let [new, used] = ["new", "used"].map(|name| SequenceName::new(name).unwrap());
        for name in [&new, &used] {
            store.create(name, Bounds::new(5, 100).unwrap()).await.unwrap();
        }
        assert_eq!(used_before(&store).await.unwrap(), None);
        store.reserve(&Reserve::new(used, 1)).await.unwrap();
        let used = used_before(&store).await.unwrap().unwrap();
        assert!(used.contains("\"used\" were reserved"), "{used}");
    }

    /// A store on a server, whose records cannot be read.
    #[derive(Debug)]
    struct Unread {
        server: Option<&'static str>,
        kind: ErrorKind,
        inner: MemoryStore,
    }

    fn unread(server: Option<&'static str>, kind: ErrorKind) -> Unread {
        Unread { server, kind, inner: MemoryStore::new() }
    }

    impl Store for Unread {
        fn server(&self) -> StoreFuture<'_, Result<Option<String>>> {
            Box::pin(async { Ok(self.server.map(ToOwned::to_owned)) })
        }

        fn record<'a>(&'a self, _: &'a SequenceName) -> StoreFuture<'a, Result<Option<String>>> {
            Box::pin(async { Err(Error::new(self.kind, "no")) })
        }

        idmill::store_calls!(|this| this.inner => capabilities reserve create inspect list set remove);
    }

    #[tokio::test]
    async fn marked_witness_is_probed() {
        let (store, witness) = (MemoryStore::new(), MemoryStore::new());
        marked(&store, &witness).await.unwrap();
        assert!(probe(&store, &witness).await.unwrap(), "it has a mark now");
        let error = marked(&store, &store.clone()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }

    #[tokio::test]
    async fn only_a_store_without_records_is_surely_apart() {
        let witness = MemoryStore::new();
        mark(&witness).await.unwrap();
        assert!(probe(&unread(None, ErrorKind::Unsupported), &witness).await.unwrap());
        let error = probe(&unread(None, ErrorKind::Denied), &witness).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied);
        assert_eq!(
            error.to_string(),
            "cannot read record `idmill:witness` of the store, which may be the witness itself; allow the \
             store's user to read records"
        );
    }

    #[tokio::test]
    async fn witness_on_the_server_of_the_store_is_rejected() {
        let on = |server| unread(server, ErrorKind::Denied);
        for (store, witness) in
            [(None, None), (Some("db1"), None), (None, Some("db1")), (Some("db2"), Some("db1"))]
        {
            not_the_server_of(&on(store), &on(witness)).await.unwrap();
        }
        let error = not_the_server_of(&on(Some("db1")), &on(Some("db1"))).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert_eq!(
            error.to_string(),
            "the witness is on the store's server, db1, so one restore reverts both; use another server, or \
             a file elsewhere"
        );
    }

    #[test]
    fn names_of_one_file_are_the_same_file() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        for name in ["a", "b"] {
            std::fs::write(at(name), "").unwrap();
        }
        for (one, other, is_same) in [
            ("a", "a", true),
            ("a", "./a", true),
            ("a", "b", false),
            ("a", "missing", false),
            ("missing", "missing", true),
            ("missing", "absent", false),
        ] {
            assert_eq!(is_same_file(&at(one), &at(other)), is_same, "{one} {other}");
        }
    }
}
