//! `guard=URL` in the URL of any store: guards it with a witness.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use idmill::store::{Page, Store, StoreFuture};
use idmill::{Error, Operation, Result, SequenceName};
use idmill_guard::{Guarded, Ledger, Ledgers, Witness, Write, shortened};
use idmill_kit::Target;
use tokio::sync::OnceCell;

use crate::WitnessUrl;

/// Opens a store and, if it `creates`, its witness. Otherwise the witness is opened on first use: the store
/// can then be read while the witness is unreachable, and reading creates no witness.
pub(crate) async fn guarded(
    store: &dyn Target,
    witness: &WitnessUrl,
    creates: bool,
) -> Result<Arc<dyn Store>> {
    // Find the witness before the store is opened, so that an invalid witness leaves no new store behind.
    let found = if creates { witness.find().await? } else { None };
    let file = store.file();
    let (store, place) = (store.connect().await?, place(store));
    let opened = if creates { Some(witness.beside(found, &store, file).await?) } else { None };
    let witness = ByUrl { opened: OnceCell::new_with(opened), ..ByUrl::of(witness, &store, file) };
    Ok(Arc::new(Guarded::new(store, witness).at(&place)))
}

/// The options that select one of several stores in a database.
const SELECT: [&str; 5] = ["table", "schema", "sequences", "collection", "prefix"];

/// Returns the place of a store: the path of its file, or its URL without secrets, and the options that
/// select a part of the database.
pub(crate) fn place(store: &dyn Target) -> String {
    let url = store.to_string();
    let (begin, options) = url.split_once('?').unwrap_or((&url, ""));
    let selects = |option: &&str| SELECT.contains(&option.split('=').next().unwrap_or_default());
    let options: Vec<_> = options.split('&').filter(selects).collect();
    let file = store.file().map(|file| std::fs::canonicalize(file).unwrap_or_else(|_| file.to_owned()));
    let begin = file.map_or_else(|| begin.to_owned(), |file| file.display().to_string());
    let mark = if options.is_empty() { "" } else { "?" };
    shortened(&format!("{begin}{mark}{}", options.join("&")))
}

/// A witness that is opened on first use, and whose errors name its URL.
#[derive(Debug)]
struct ByUrl {
    url: WitnessUrl,
    /// The guarded store, and the file of that store.
    store: Arc<dyn Store>,
    file: Option<PathBuf>,
    opened: OnceCell<Arc<dyn Witness>>,
}

impl ByUrl {
    fn of(url: &WitnessUrl, store: &Arc<dyn Store>, file: Option<&Path>) -> Self {
        let file = file.map(Path::to_owned);
        Self { url: url.clone(), store: store.clone(), file, opened: OnceCell::new() }
    }

    async fn opened(&self) -> Result<&dyn Witness> {
        let open =
            || async { self.url.beside(self.url.find().await?, &self.store, self.file.as_deref()).await };
        Ok(&**self.opened.get_or_try_init(open).await?)
    }

    fn all_named<T>(&self, answers: Vec<Result<T>>) -> Vec<Result<T>> {
        answers.into_iter().map(|answer| answer.map_err(|error| self.named(error))).collect()
    }

    fn named(&self, error: Error) -> Error {
        if error.operation() == Some(Operation::Connect) {
            return error;
        }
        Error::new(error.kind(), self.url.to_string()).because(error)
    }
}

impl Witness for ByUrl {
    fn read<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<Option<Ledger>>> {
        Box::pin(async move { self.opened().await?.read(name).await.map_err(|error| self.named(error)) })
    }

    fn swap<'a>(
        &'a self,
        name: &'a SequenceName,
        seen: Option<&'a Ledger>,
        wanted: &'a Ledger,
    ) -> StoreFuture<'a, Result<bool>> {
        Box::pin(async move {
            self.opened().await?.swap(name, seen, wanted).await.map_err(|error| self.named(error))
        })
    }

    fn read_many<'a>(&'a self, names: &'a [SequenceName]) -> StoreFuture<'a, Vec<Result<Option<Ledger>>>> {
        Box::pin(async move {
            match self.opened().await {
                Ok(witness) => self.all_named(witness.read_many(names).await),
                Err(error) => vec![Err(error); names.len()],
            }
        })
    }

    fn swap_many<'a>(&'a self, writes: &'a [Write]) -> StoreFuture<'a, Vec<Result<bool>>> {
        Box::pin(async move {
            match self.opened().await {
                Ok(witness) => self.all_named(witness.swap_many(writes).await),
                Err(error) => vec![Err(error); writes.len()],
            }
        })
    }

    fn list<'a>(&'a self, page: &'a Page) -> StoreFuture<'a, Result<Ledgers>> {
        Box::pin(async move { self.opened().await?.list(page).await.map_err(|error| self.named(error)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Schemes, StoreUrl};
    use idmill::ErrorKind;
    use idmill::store::{Bounds, MemoryStore, Reserve};
    use idmill_guard::MemoryWitness;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn parse(url: &str) -> Result<StoreUrl> {
        Schemes::default().parse(url)
    }

    /// Counts the batches that reach the witness.
    #[derive(Clone, Debug, Default)]
    struct Counted(MemoryWitness, Arc<AtomicUsize>);

    impl Witness for Counted {
        fn read<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<Option<Ledger>>> {
            self.0.read(name)
        }

        fn swap<'a>(
            &'a self,
            name: &'a SequenceName,
            seen: Option<&'a Ledger>,
            wanted: &'a Ledger,
        ) -> StoreFuture<'a, Result<bool>> {
            self.0.swap(name, seen, wanted)
        }

        fn read_many<'a>(
            &'a self,
            names: &'a [SequenceName],
        ) -> StoreFuture<'a, Vec<Result<Option<Ledger>>>> {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.read_many(names)
        }

        fn swap_many<'a>(&'a self, writes: &'a [Write]) -> StoreFuture<'a, Vec<Result<bool>>> {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.swap_many(writes)
        }

        fn list<'a>(&'a self, page: &'a Page) -> StoreFuture<'a, Result<Ledgers>> {
            self.0.list(page)
        }
    }

    /// A file is rewritten and synced once for a batch, not once for each name.
    #[tokio::test]
    async fn batch_reaches_a_lazy_witness_as_one() {
        let (counted, store) = (Counted::default(), Arc::new(MemoryStore::new()));
        let witness: Arc<dyn Witness> = Arc::new(counted.clone());
        let opened = OnceCell::new_with(Some(witness));
        let url = Schemes::default().witness("file:/w").unwrap();
        let lazy = ByUrl { opened, ..ByUrl::of(&url, &(store.clone() as Arc<dyn Store>), None) };
        let request = |name: &str| Reserve::new(name.parse().unwrap(), 1).create(Bounds::of::<u64>());
        let granted = Guarded::new(store, lazy).reserve_many(&["a", "b", "c"].map(request)).await;
        assert!(granted.iter().all(Result::is_ok), "{granted:?}");
        assert_eq!(counted.1.load(Ordering::Relaxed), 2, "one read and one write");
    }

    /// Fails each call.
    #[derive(Debug)]
    struct Broken;

    impl Witness for Broken {
        fn read<'a>(&'a self, _: &'a SequenceName) -> StoreFuture<'a, Result<Option<Ledger>>> {
            Box::pin(async { Err(Error::new(ErrorKind::Denied, "the disk is full")) })
        }

        fn swap<'a>(
            &'a self,
            _: &'a SequenceName,
            _: Option<&'a Ledger>,
            _: &'a Ledger,
        ) -> StoreFuture<'a, Result<bool>> {
            Box::pin(async { Err(Error::new(ErrorKind::Denied, "the disk is full")) })
        }

        fn list<'a>(&'a self, _: &'a Page) -> StoreFuture<'a, Result<Ledgers>> {
            Box::pin(async { Err(Error::new(ErrorKind::Denied, "the disk is full")) })
        }
    }

    /// Returns a ledger to write, from a witness in memory.
    async fn write(name: &SequenceName) -> Write {
        let witness = MemoryWitness::new();
        let request = Reserve::new(name.clone(), 1).create(Bounds::of::<u64>());
        Guarded::new(MemoryStore::new(), witness.clone()).reserve(&request).await.unwrap();
        Write::new(name.clone(), None, witness.read(name).await.unwrap().unwrap())
    }

    /// Returns the error of each call.
    async fn errors(witness: &ByUrl) -> Vec<Error> {
        let names = ["a", "b"].map(|name| name.parse().unwrap());
        let writes = [write(&names[0]).await, write(&names[1]).await];
        let mut errors = vec![
            witness.read(&names[0]).await.unwrap_err(),
            witness.swap(&names[0], None, &writes[0].wanted).await.unwrap_err(),
            witness.list(&Page::default()).await.unwrap_err(),
        ];
        errors.extend(witness.read_many(&names).await.into_iter().map(Result::unwrap_err));
        errors.extend(witness.swap_many(&writes).await.into_iter().map(Result::unwrap_err));
        errors
    }

    #[tokio::test]
    async fn error_of_a_witness_names_its_url() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let url = Schemes::default().witness("file:/no/such/directory/w").unwrap();
        let opened = OnceCell::new_with(Some(Arc::new(Broken) as Arc<dyn Witness>));
        let broken = errors(&ByUrl { opened, ..ByUrl::of(&url, &store, None) }).await;
        assert_eq!(broken.len(), 7, "one for each name of a batch");
        for error in broken {
            assert_eq!(
                (error.kind(), error.to_string().as_str()),
                (ErrorKind::Denied, "file:/no/such/directory/w")
            );
            assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "the disk is full");
        }
        // An error of opening already names the URL.
        let unopened = errors(&ByUrl::of(&url, &store, None)).await;
        assert_eq!(unopened.len(), 7);
        for error in unopened {
            let message = "connect: cannot open the witness file:/no/such/directory/w";
            assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::NotFound, message));
        }
    }

    fn refused(url: &str, remedy: &str) {
        let error = parse(url).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{url}: {error}");
        assert!(error.to_string().contains(remedy), "{url}: {error}");
    }

    #[test]
    fn a_guard_is_a_file_or_a_store_and_never_the_store_itself() {
        for url in ["memory:?guard=file:/w", "memory:?guard=file:///w", "memory:?guard=FILE:ids.witness"] {
            let read = parse(url).unwrap();
            assert_eq!(parse(&read.to_string()).unwrap(), read, "{url}");
        }
        assert_eq!(parse("memory:?guard=file:///w").unwrap().to_string(), "memory:?guard=file:/w");
        refused("memory:?guard=file:", "\"file:\" does not name a file; write `file:PATH`");
        refused("memory:?guard=file:/w/", "\"file:/w/\" does not name a file; write `file:PATH`");
        refused(
            "memory:?guard=file://host/w",
            "\"file://host/w\" names a host, but a witness's file must be on this machine; write `file:PATH`",
        );
        refused("memory:?guard=/w", "no scheme");
        refused("memory:?guard=memory:", "cannot open the witness memory:");
        refused("memory:?guard=file:/w&guard=file:/v", "duplicate option");
        let guarded = parse("memory:?guard=file:/w").unwrap();
        let twice = guarded.guarded(Schemes::default().witness("file:/v").unwrap()).unwrap_err();
        assert!(twice.to_string().contains("already has a guard"), "{twice}");
    }
}
