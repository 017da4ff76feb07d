//! A witness in a store.

use super::apart::is_mark;
use super::{Ledger, Ledgers, Witness, text};
use idmill::SequenceName;
use idmill::store::{Durability, Identity, Page, Store, StoreFuture, Unreadable};
use idmill::{Error, ErrorKind, Result};
use std::sync::Arc;

/// A witness in any store that keeps [records](idmill::store::Store::swap_record). The store must be on
/// another server than the guarded one, so that the two are never restored or promoted together. `guard=URL`
/// checks this if both name their server.
///
/// ```
/// # use idmill::store::Store;
/// # fn demo(etcd: impl Store + 'static, postgres: impl Store + 'static) -> idmill::Result<()> {
/// use idmill::Sequences;
/// use idmill_guard::{Guarded, StoreWitness};
/// use std::sync::Arc;
///
/// let ids = Sequences::new(Guarded::new(postgres, Arc::new(StoreWitness::new(etcd)?)))?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct StoreWitness(Arc<dyn Store>);

impl StoreWitness {
    /// Creates a witness that keeps its ledgers in this store.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) if the store does not keep records, or does not keep them
    /// across a crash of its machine.
    pub fn new(store: impl Store + 'static) -> Result<Self> {
        let can = store.capabilities();
        if !can.records {
            let message = "this store keeps no records, so it cannot be the witness of another store";
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        if can.durability < Durability::Disk {
            let message = "this store may lose claims when its machine crashes, so it cannot be a witness";
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        Ok(Self(Arc::new(store)))
    }

    /// Returns the store that keeps the ledgers.
    pub fn store(&self) -> &dyn Store {
        &*self.0
    }
}

fn read(name: &str, record: &str) -> Result<Ledger> {
    text::ledger_of(record).ok_or_else(|| {
        let message = format!("the witness's record of `{name}` is invalid: {record:?}; nothing was changed");
        Error::new(ErrorKind::StoreViolation, message)
    })
}

impl Witness for StoreWitness {
    fn read<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<Option<Ledger>>> {
        Box::pin(async move {
            let record = self.0.record(name).await?;
            record.map(|record| read(name, &record)).transpose()
        })
    }

    fn swap<'a>(
        &'a self,
        name: &'a SequenceName,
        seen: Option<&'a Ledger>,
        wanted: &'a Ledger,
    ) -> StoreFuture<'a, Result<bool>> {
        Box::pin(async move {
            let seen = seen.map(text::record);
            // A store that got no reply reads the record to see whether its write was applied, so the text
            // must be unique to this write. An incarnation is random enough to be unique across all
            // processes.
            let wanted = Ledger { stamp: Identity::fresh().incarnation, ..wanted.clone() };
            self.0.swap_record(name, seen.as_deref(), &text::record(&wanted)).await
        })
    }

    fn list<'a>(&'a self, page: &'a Page) -> StoreFuture<'a, Result<Ledgers>> {
        Box::pin(async move {
            let records = self.0.list_records(page).await?;
            let mut ledgers =
                Ledgers { unreadable: records.unreadable, next: records.next, ..Ledgers::default() };
            for (name, record) in records.records.into_iter().filter(|(name, _)| !is_mark(name)) {
                match read(&name, &record) {
                    Ok(ledger) => ledgers.ledgers.push((name, ledger)),
                    Err(error) => ledgers.unreadable.push(Unreadable::new(name.as_str(), error)),
                }
            }
            Ok(ledgers)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Guarded;
    use idmill::store::{Bounds, MemoryStore, Records, Reserve};

    /// Reports the durability that a witness requires, for tests.
    #[derive(Clone, Debug)]
    struct Durable(MemoryStore);

    impl Store for Durable {
        fn capabilities(&self) -> idmill::store::Capabilities {
            let mut capabilities = self.0.capabilities();
            capabilities.durability = Durability::Disk;
            capabilities
        }

        idmill::store_calls!(|this| this.0 =>
            reserve create inspect list set remove record swap_record list_records);
    }

    #[tokio::test]
    async fn witness_in_another_store_prevents_duplicates() {
        let (store, other) = (MemoryStore::new(), Durable(MemoryStore::new()));
        let witness = Arc::new(StoreWitness::new(other.clone()).unwrap());
        let guarded = Guarded::new(store.clone(), witness.clone());
        let orders = Reserve::new(SequenceName::new("orders").unwrap(), 10).create(Bounds::of::<u64>());
        let first = guarded.reserve(&orders).await.unwrap();
        let backup = store.snapshot();
        guarded.reserve(&orders).await.unwrap();
        store.restore(&backup);
        assert_eq!(guarded.reserve(&orders).await.unwrap().range.start(), 21);
        let ledgers = witness.list(&Page::default()).await.unwrap().ledgers;
        assert_eq!(ledgers.len(), 1);
        assert_eq!((ledgers[0].1.identity, ledgers[0].1.top()), (first.identity, 31));
        // No sequence is created in the witness's store.
        assert_eq!(other.list_all().await.unwrap(), []);
    }

    /// Simulates a store that got no reply and reads the record to determine the outcome.
    #[derive(Clone, Debug)]
    struct Settling(Durable);

    impl Store for Settling {
        fn swap_record<'a>(
            &'a self,
            name: &'a SequenceName,
            seen: Option<&'a str>,
            wanted: &'a str,
        ) -> StoreFuture<'a, Result<bool>> {
            Box::pin(async move {
                let _ = self.0.swap_record(name, seen, wanted).await?;
                Ok(self.0.record(name).await?.as_deref() == Some(wanted))
            })
        }

        idmill::store_calls!(|this| this.0 =>
            capabilities reserve create inspect list set remove record list_records);
    }

    #[tokio::test]
    async fn equal_claim_of_another_process_is_not_confirmed() {
        let witness = StoreWitness::new(Settling(Durable(MemoryStore::new()))).unwrap();
        let name = SequenceName::new("orders").unwrap();
        // After a restore, two processes are granted the same range, and both read before either claims.
        let range = idmill::IdRange::new(1, 10).unwrap();
        let wanted = Ledger::claim(None, Identity::fresh(), range).unwrap();
        assert!(witness.swap(&name, None, &wanted).await.unwrap());
        assert!(!witness.swap(&name, None, &wanted).await.unwrap());
    }

    #[tokio::test]
    async fn invalid_ledger_is_rejected_by_name() {
        let other = Durable(MemoryStore::new());
        let witness = StoreWitness::new(other.clone()).unwrap();
        let name = SequenceName::new("orders").unwrap();
        assert!(other.swap_record(&name, None, "something else").await.unwrap());
        let error = witness.read(&name).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StoreViolation);
        assert!(
            error.to_string().contains("orders") && error.to_string().contains("something else"),
            "{error}"
        );
        assert_eq!(witness.list(&Page::default()).await.unwrap().unreadable.len(), 1);
    }

    #[test]
    fn nondurable_store_is_rejected_as_a_witness() {
        let error = StoreWitness::new(MemoryStore::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    }

    #[tokio::test]
    async fn ledgers_are_listed_page_by_page() {
        let other = Durable(MemoryStore::new());
        let witness = StoreWitness::new(other.clone()).unwrap();
        let range = idmill::IdRange::new(1, 10).unwrap();
        let wanted = Ledger::claim(None, Identity::fresh(), range).unwrap();
        for name in ["a", "b"] {
            assert!(witness.swap(&SequenceName::new(name).unwrap(), None, &wanted).await.unwrap());
        }
        let (mut page, mut names) = (Page::default().limit(1), Vec::new());
        while let Ok(listed) = witness.list(&page).await {
            names.extend(listed.ledgers.iter().map(|(name, _)| name.to_string()));
            let Some(next) = listed.page_after(&page) else { break };
            page = next;
        }
        assert_eq!(names, ["a", "b"]);
    }

    /// A store with a record that cannot be read.
    #[derive(Debug)]
    struct Damaged(Durable);

    impl Store for Damaged {
        fn list_records<'a>(&'a self, page: &'a Page) -> StoreFuture<'a, Result<Records>> {
            Box::pin(async {
                let mut records = self.0.list_records(page).await?;
                records.add("broken", Err(ErrorKind::StoreViolation.into()));
                Ok(records)
            })
        }

        idmill::store_calls!(|this| this.0 =>
            capabilities reserve create inspect list set remove record swap_record);
    }

    #[tokio::test]
    async fn unreadable_record_is_listed_as_such() {
        let witness = StoreWitness::new(Damaged(Durable(MemoryStore::new()))).unwrap();
        let listed = witness.list(&Page::default()).await.unwrap();
        let names: Vec<_> = listed.unreadable.iter().map(|unreadable| unreadable.name.as_str()).collect();
        assert_eq!((names, listed.ledgers.len()), (vec!["broken"], 0));
    }
}
