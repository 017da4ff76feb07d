//! A witness in a file.

mod errors;
mod lock;
mod owner;
mod place;
mod queue;
mod replace;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Ledger, Ledgers, Witness, Write};
use idmill::SequenceName;
use idmill::store::{Page, StoreFuture};
use idmill::{Error, ErrorKind, Result};
use place::Place;
use queue::Queue;

/// A witness in a file, for the processes of one machine.
///
/// Every write replaces the file: the new one is synced to disk before it is renamed. It keeps the owner,
/// group and mode. A lock on the file (on `FILE.lock`, except on Unix) excludes other processes; a write
/// waits up to 2 s for it. Concurrent writes of clones of one value share one replacement.
///
/// The cost of a write grows with the file, which has about 100 bytes per sequence, and may have 64 MiB.
/// Choose a database for thousands of sequences, or for processes on several machines; a network file system
/// may not support locks.
///
/// Put the file on a different disk from the store, and exclude it from the store's backups. A witness that
/// is restored together with the store detects nothing.
///
/// A symbolic link is followed. A file with several hard links is rejected, because a write would leave the
/// old content under the other names.
#[derive(Clone, Debug)]
pub struct FileWitness(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    place: Place,
    queue: Queue,
}

impl FileWitness {
    /// Opens the file, and creates it if it does not exist. Blocks.
    ///
    /// # Errors
    /// - [`NotFound`](ErrorKind::NotFound) if its directory does not exist.
    /// - [`Denied`](ErrorKind::Denied) if access is denied, or this user cannot keep the owner of the file.
    /// - [`Conflict`](ErrorKind::Conflict) if the file has several hard links or is a mount point.
    /// - [`InvalidInput`](ErrorKind::InvalidInput) if it is not a regular file.
    /// - [`StoreViolation`](ErrorKind::StoreViolation) if it is damaged or is not an idmill witness.
    /// - [`Unavailable`](ErrorKind::Unavailable) if other processes lock it for 2 s.
    pub fn open(file: impl Into<PathBuf>) -> Result<Self> {
        let place = Place::of(&file.into())?;
        if !place.exists()? {
            place.create()?;
        }
        place.prepare()?;
        Ok(Self::at(place))
    }

    /// Opens the file for claims if it exists. Blocks.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn find(file: impl Into<PathBuf>) -> Result<Option<Self>> {
        let place = Place::of(&file.into())?;
        if !place.exists()? {
            return Ok(None);
        }
        place.prepare()?;
        Ok(Some(Self::at(place)))
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
        Ok(Self::at(place))
    }

    fn at(place: Place) -> Self {
        Self(Arc::new(Shared { place, queue: Queue::default() }))
    }

    /// Returns the path of the file, with symbolic links resolved.
    pub fn path(&self) -> &Path {
        &self.0.place.file
    }

    /// Reads all ledgers. Takes no lock, because reading must work without write permission.
    async fn ledgers(&self) -> Result<BTreeMap<SequenceName, Ledger>> {
        self.blocking(ErrorKind::Unavailable, |shared| shared.place.read()).await
    }

    /// Runs `work` on a thread that may block. If it does not end, the error has the kind `lost`.
    async fn blocking<R: Send + 'static>(
        &self,
        lost: ErrorKind,
        work: impl FnOnce(&Shared) -> Result<R> + Send + 'static,
    ) -> Result<R> {
        let shared = self.0.clone();
        let working = tokio::task::spawn_blocking(move || work(&shared));
        working.await.unwrap_or_else(|error| {
            Err(Error::new(lost, "the task that reads or writes the witness file failed").because(error))
        })
    }

    /// Applies each write if its condition holds. Returns which were applied.
    async fn written(&self, writes: Vec<Write>) -> Result<Vec<bool>> {
        let written = self.0.queue.add(writes);
        let lost = ErrorKind::UnknownOutcome;
        self.blocking(lost, move |shared| shared.queue.result(written, &shared.place)).await
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

#[cfg(test)]
mod tests;
