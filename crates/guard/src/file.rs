//! A witness in a file.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::text;
use super::{Ledger, Ledgers, Witness, Write};
use idmill::SequenceName;
use idmill::store::{Page, StoreFuture};
use idmill::{Error, ErrorKind, Result};

/// The timeout for the lock of the file.
const TIMEOUT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(2);

/// A witness in a file, for the processes of one machine.
///
/// Every write replaces the file: the new one is synced to disk before it is renamed. A lock on `FILE.lock`
/// excludes other processes. The cost of a write grows with the file, which has a few hundred bytes per
/// sequence. Choose a database for thousands of sequences, or for processes on several machines; a network
/// file system may not support locks.
///
/// Put the file on a different disk from the store, and exclude it from the store's backups. A witness that
/// is restored together with the store detects nothing.
///
/// A symbolic link is followed. A file with several hard links is rejected, because a write would leave the
/// old content under the other names.
#[derive(Clone, Debug)]
pub struct FileWitness(Arc<Place>);

#[derive(Debug)]
struct Place {
    file: PathBuf,
    lock: PathBuf,
    new: PathBuf,
}

impl FileWitness {
    /// Opens the file, and creates it if it does not exist. Blocks.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) if its directory does not exist; [`Denied`](ErrorKind::Denied) if
    /// access is denied; [`Conflict`](ErrorKind::Conflict) if the file has several hard links;
    /// [`StoreViolation`](ErrorKind::StoreViolation) if the file is damaged or is not an idmill witness;
    /// [`Unavailable`](ErrorKind::Unavailable) if other processes lock it for 10 s.
    pub fn open(file: impl Into<PathBuf>) -> Result<Self> {
        let place = Place::of(&file.into())?;
        let lock = place.lock()?;
        if !place.file.try_exists().map_err(|error| place.failed(&error))? {
            place.write(&BTreeMap::new())?;
        }
        place.check_links()?;
        place.read()?;
        drop(lock);
        Ok(Self(Arc::new(place)))
    }

    /// Opens the file for claims if it exists. Blocks.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn find(file: impl Into<PathBuf>) -> Result<Option<Self>> {
        let place = Place::of(&file.into())?;
        if !place.file.try_exists().map_err(|error| place.failed(&error))? {
            return Ok(None);
        }
        // Check now that claims can be written, not at the first reserve.
        drop(place.lock()?);
        place.check_links()?;
        place.read()?;
        Ok(Some(Self(Arc::new(place))))
    }

    /// Opens the file if it exists. Blocks. Reading requires no write permission for the file or its
    /// directory.
    ///
    /// # Errors
    /// As [`open`](Self::open); [`NotFound`](ErrorKind::NotFound) if it does not exist.
    pub fn open_existing(file: impl Into<PathBuf>) -> Result<Self> {
        let place = Place::of(&file.into())?;
        place.check_links()?;
        place.read()?;
        Ok(Self(Arc::new(place)))
    }

    /// Returns the path of the file, with symbolic links resolved.
    pub fn path(&self) -> &Path {
        &self.0.file
    }

    /// Reads all ledgers. The file is only ever replaced, so it is always complete. Reading takes no lock,
    /// because it must work without write permission.
    async fn ledgers(&self) -> Result<BTreeMap<SequenceName, Ledger>> {
        self.blocking(Place::read).await
    }

    /// Runs `work` on a thread that may block.
    async fn blocking<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Place) -> Result<R> + Send + 'static,
    ) -> Result<R> {
        let place = self.0.clone();
        let working = tokio::task::spawn_blocking(move || work(&place));
        working.await.unwrap_or_else(|error| {
            Err(Error::new(
                ErrorKind::UnknownOutcome,
                "the task that reads or writes the witness file failed",
            )
            .because(error))
        })
    }

    /// Applies each write if its condition holds. Returns which were applied.
    async fn written(&self, writes: Vec<Write>) -> Result<Vec<bool>> {
        self.blocking(move |place| {
            let _lock = place.lock()?;
            let mut ledgers = place.read()?;
            let mut written = Vec::with_capacity(writes.len());
            for Write { name, seen, wanted } in writes {
                let holds = ledgers.get(&name) == seen.as_ref();
                if holds {
                    ledgers.insert(name, wanted);
                }
                written.push(holds);
            }
            if written.contains(&true) {
                place.write(&ledgers)?;
            }
            Ok(written)
        })
        .await
    }
}

impl Witness for FileWitness {
    fn read<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<Option<Ledger>>> {
        Box::pin(async move { Ok(self.ledgers().await?.remove(name)) })
    }

    fn swap<'a>(
        &'a self,
        name: &'a SequenceName,
        seen: Option<&'a Ledger>,
        wanted: &'a Ledger,
    ) -> StoreFuture<'a, Result<bool>> {
        let write = Write::new(name.clone(), seen.cloned(), wanted.clone());
        Box::pin(async move {
            let mut written = self.written(vec![write]).await?;
            Ok(written.pop().expect("one result per write"))
        })
    }

    fn read_many<'a>(&'a self, names: &'a [SequenceName]) -> StoreFuture<'a, Vec<Result<Option<Ledger>>>> {
        Box::pin(async move {
            match self.ledgers().await {
                Ok(mut ledgers) => names.iter().map(|name| Ok(ledgers.remove(name))).collect(),
                Err(error) => all_failed(names.len(), error),
            }
        })
    }

    /// Replaces the file once for all writes.
    fn swap_many<'a>(&'a self, writes: &'a [Write]) -> StoreFuture<'a, Vec<Result<bool>>> {
        Box::pin(async move {
            match self.written(writes.to_vec()).await {
                Ok(written) => written.into_iter().map(Ok).collect(),
                Err(error) => all_failed(writes.len(), error),
            }
        })
    }

    fn list<'a>(&'a self, page: &'a Page) -> StoreFuture<'a, Result<Ledgers>> {
        Box::pin(async move { Ok(Ledgers::of(&self.ledgers().await?, page)) })
    }
}

/// Returns the same failure for each call of a batch.
fn all_failed<T>(count: usize, error: Error) -> Vec<Result<T>> {
    let (kind, cause) = (error.kind(), Arc::new(error));
    let failed = || {
        Err(Error::new(kind, "the batch of requests to the witness file failed")
            .because_shared(cause.clone()))
    };
    std::iter::repeat_with(failed).take(count).collect()
}

impl Place {
    /// Resolves links, so that all names of a file share one lock and are replaced in the same place.
    fn of(file: &Path) -> Result<Self> {
        let file = resolved(file).map_err(|error| failed(file, &error))?;
        let beside = |ending: &str| {
            let mut name = file.clone().into_os_string();
            name.push(ending);
            PathBuf::from(name)
        };
        Ok(Self { lock: beside(".lock"), new: beside(".new"), file })
    }

    fn check_links(&self) -> Result<()> {
        match links(&self.file).map_err(|error| self.failed(&error))? {
            0 | 1 => Ok(()),
            links => {
                let file = self.file.display();
                let message = format!(
                    "{file} has {links} hard links, and a write reaches only one of them; remove the others"
                );
                Err(Error::new(ErrorKind::Conflict, message))
            }
        }
    }

    fn lock(&self) -> Result<File> {
        let opened = OpenOptions::new().create(true).truncate(false).write(true).open(&self.lock);
        let lock = opened.map_err(|error| self.failed(&error))?;
        let begun = Instant::now();
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(lock),
                Err(TryLockError::WouldBlock) if begun.elapsed() < TIMEOUT => thread::sleep(PAUSE),
                Err(TryLockError::WouldBlock) => {
                    let message = format!(
                        "{} has been locked by another process for {TIMEOUT:?}; stop that process, or \
                         try again",
                        self.lock.display()
                    );
                    return Err(Error::new(ErrorKind::Unavailable, message));
                }
                Err(TryLockError::Error(error)) => return Err(self.failed(&error)),
            }
        }
    }

    fn read(&self) -> Result<BTreeMap<SequenceName, Ledger>> {
        let mut text = Vec::new();
        File::open(&self.file)
            .and_then(|mut file| file.read_to_end(&mut text))
            .map_err(|error| self.failed(&error))?;
        text::decode(&text).map_err(|fault| {
            let message = format!(
                "{} {fault}; nothing was changed; restore it: a new file would have no claims",
                self.file.display()
            );
            Error::new(ErrorKind::StoreViolation, message)
        })
    }

    fn write(&self, ledgers: &BTreeMap<SequenceName, Ledger>) -> Result<()> {
        let write = || {
            let mut new = File::create(&self.new)?;
            new.write_all(text::encode(ledgers).as_bytes())?;
            new.sync_all()
        };
        write().map_err(|error| self.failed(&error))?;
        let replace = || {
            std::fs::rename(&self.new, &self.file)?;
            self.sync_directory()
        };
        replace().map_err(|error| {
            let message = format!("{} may or may not have been replaced", self.file.display());
            Error::new(ErrorKind::UnknownOutcome, message).because(error)
        })
    }

    /// A rename is on disk once the directory is synced.
    fn sync_directory(&self) -> io::Result<()> {
        if cfg!(unix) {
            let parent = self.file.parent().filter(|parent| !parent.as_os_str().is_empty());
            File::open(parent.unwrap_or(Path::new(".")))?.sync_all()?;
        }
        Ok(())
    }

    fn failed(&self, error: &io::Error) -> Error {
        failed(&self.file, error)
    }
}

fn failed(file: &Path, error: &io::Error) -> Error {
    let (kind, advice) = match error.kind() {
        io::ErrorKind::NotFound => (
            ErrorKind::NotFound,
            "create its directory, or restore the file; a new file would have no claims",
        ),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            (ErrorKind::Denied, "make the file and its directory writable for this process")
        }
        _ => (ErrorKind::Unavailable, "nothing was claimed"),
    };
    Error::new(kind, format!("{}: {error}; {advice}", file.display()))
}

/// Resolves symbolic links. For a file that does not exist yet, resolves its directory.
fn resolved(file: &Path) -> io::Result<PathBuf> {
    match (std::fs::canonicalize(file), file.file_name()) {
        (Err(error), Some(name)) if error.kind() == io::ErrorKind::NotFound && !file.is_symlink() => {
            let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
            Ok(std::fs::canonicalize(parent.unwrap_or(Path::new(".")))?.join(name))
        }
        (found, _) => found,
    }
}

/// Returns the number of hard links of the file.
#[cfg(unix)]
fn links(file: &Path) -> io::Result<u64> {
    use std::os::unix::fs::MetadataExt as _;
    Ok(std::fs::metadata(file)?.nlink())
}

#[cfg(not(unix))]
fn links(file: &Path) -> io::Result<u64> {
    std::fs::metadata(file).map(|_| 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use idmill::IdRange;
    use idmill::store::Identity;

    const ORDERS: Identity = Identity { incarnation: 7, epoch: 0 };

    fn name(name: &str) -> SequenceName {
        SequenceName::new(name).unwrap()
    }

    fn ledger(seen: Option<&Ledger>, start: u64) -> Ledger {
        Ledger::claim(seen, ORDERS, IdRange::new(start, 10).unwrap()).unwrap()
    }

    #[tokio::test]
    async fn claims_are_visible_to_the_next_process() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("ids.witness");
        let witness = FileWitness::open(&file).unwrap();
        let first = ledger(None, 1);
        assert_eq!(witness.read(&name("orders")).await.unwrap(), None);
        assert!(witness.swap(&name("orders"), None, &first).await.unwrap());
        assert!(!witness.swap(&name("orders"), None, &first).await.unwrap());
        let second = ledger(Some(&first), 31);
        assert!(witness.swap(&name("orders"), Some(&first), &second).await.unwrap());
        assert!(witness.swap(&name("a b%\u{e9}"), None, &first).await.unwrap());

        let another = FileWitness::open(&file).unwrap();
        assert_eq!(another.read(&name("orders")).await.unwrap(), Some(second));
        assert_eq!(another.read(&name("a b%\u{e9}")).await.unwrap(), Some(first));
    }

    #[tokio::test]
    async fn many_at_once_lose_no_claim() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("ids.witness");
        let claim = |witness: FileWitness, start: u64| async move {
            loop {
                let seen = witness.read(&name("orders")).await.unwrap();
                let wanted = ledger(seen.as_ref(), start);
                if witness.swap(&name("orders"), seen.as_ref(), &wanted).await.unwrap() {
                    return;
                }
            }
        };
        FileWitness::open(&file).unwrap();
        claim(FileWitness::open(&file).unwrap(), 1).await;
        let claims = (0..6).map(|n| tokio::spawn(claim(FileWitness::open(&file).unwrap(), 11 + n * 10)));
        for claimed in claims.collect::<Vec<_>>() {
            claimed.await.unwrap();
        }
        let whole = FileWitness::open(&file).unwrap().read(&name("orders")).await.unwrap().unwrap();
        assert_eq!((whole.floor, whole.claims.len(), whole.version), (71, 0, 6));
    }

    #[tokio::test]
    async fn damaged_or_missing_file_is_rejected_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("ids.witness");
        let witness = FileWitness::open(&file).unwrap();
        assert!(witness.swap(&name("orders"), None, &ledger(None, 1)).await.unwrap());
        let whole = std::fs::read_to_string(&file).unwrap();
        for damaged in [whole.replace("orders", "ordres"), whole[..whole.len() / 2].to_owned(), String::new()]
        {
            std::fs::write(&file, &damaged).unwrap();
            for error in
                [FileWitness::open(&file).unwrap_err(), witness.read(&name("orders")).await.unwrap_err()]
            {
                assert_eq!(error.kind(), ErrorKind::StoreViolation, "{damaged:?}: {error}");
                assert!(error.to_string().contains("ids.witness"), "{error}");
            }
        }
        std::fs::remove_file(&file).unwrap();
        assert!(FileWitness::find(&file).unwrap().is_none());
        let gone = witness.swap(&name("orders"), None, &ledger(None, 1)).await.unwrap_err();
        assert_eq!(gone.kind(), ErrorKind::NotFound, "{gone}");
        let nowhere = FileWitness::open(directory.path().join("no/ids.witness")).unwrap_err();
        assert_eq!(nowhere.kind(), ErrorKind::NotFound, "{nowhere}");
    }

    #[tokio::test]
    async fn reading_needs_no_right_to_write() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("ids.witness");
        let first = ledger(None, 1);
        let witness = FileWitness::open(&file).unwrap();
        assert!(witness.swap(&name("orders"), None, &first).await.unwrap());
        // A directory cannot be opened for writing, even by root: this simulates a read-only mount.
        std::fs::remove_file(directory.path().join("ids.witness.lock")).unwrap();
        std::fs::create_dir(directory.path().join("ids.witness.lock")).unwrap();
        let looking = FileWitness::open_existing(&file).unwrap();
        assert_eq!(looking.read(&name("orders")).await.unwrap(), Some(first.clone()));
        assert_eq!(looking.list(&Page::default()).await.unwrap().ledgers.len(), 1);
        assert_eq!(looking.read_many(&[name("orders")]).await[0].as_ref().unwrap(), &Some(first.clone()));
        looking.swap(&name("orders"), Some(&first), &ledger(Some(&first), 31)).await.unwrap_err();
        FileWitness::find(file).unwrap_err();
    }

    #[cfg(unix)]
    #[test]
    fn open_of_a_link_leads_to_its_file() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::create_dir(at("other")).unwrap();
        std::os::unix::fs::symlink("other/w", at("link")).unwrap();
        let nowhere = FileWitness::open(at("link")).unwrap_err();
        assert_eq!(nowhere.kind(), ErrorKind::NotFound, "its disk may not be mounted: {nowhere}");
        let file = FileWitness::open(at("other/w")).unwrap();
        assert_eq!(FileWitness::open(at("link")).unwrap().path(), file.path());
        std::fs::hard_link(at("other/w"), at("w")).unwrap();
        for name in ["w", "link", "other/w"] {
            assert_eq!(FileWitness::open(at(name)).unwrap_err().kind(), ErrorKind::Conflict, "{name}");
        }
    }
}
