//! Sequences in a JSON file, `toy:PATH`. A store needs only this: its capabilities, a read, a list, a
//! conditional write, and its URLs.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use idmill::store::{Capabilities, Durability, Listing, Page, SequenceInfo, Store, StoreFuture, page_of};
use idmill::{Error, ErrorKind, Result, SequenceName};
use idmill_kit::{CompareAndSet, Resend, Scheme, Swapped, Swapping, Target, Versioned, query, refuse};

pub const SCHEMES: &[Scheme] = &[Scheme::store::<ToyStore>("toy", "toy:PATH")];

/// Opens the store at a URL such as `toy:PATH`, and its sequences, on the current tokio runtime.
///
/// # Errors
/// Those of [`idmill_kit::connect`].
pub async fn connect(url: &str) -> Result<idmill::Sequences> {
    idmill_kit::connect::<ToyStore>(url).await
}

/// The store, and its options too, because there is no connection to open.
#[derive(Clone, Debug)]
pub struct ToyStore {
    path: PathBuf,
    create: bool,
}

type Stored = BTreeMap<SequenceName, SequenceInfo>;

impl ToyStore {
    /// Runs blocking work on a thread where blocking is allowed.
    async fn run<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Path) -> Result<R> + Send + 'static,
    ) -> Result<R> {
        let path = self.path.clone();
        let done = tokio::task::spawn_blocking(move || work(&path)).await;
        done.map_err(|error| Error::new(ErrorKind::UnknownOutcome, "the blocking task panicked").because(error))?
    }
}

impl Store for ToyStore {
    idmill::store_calls!(|this| Swapping(this) =>
        capabilities reserve give_back create inspect list set remove);
}

impl CompareAndSet for ToyStore {
    /// This write is never sent again, so equal states of a sequence are interchangeable, and no version is
    /// needed. A store over a network needs a version that differs between any two writes.
    type Version = ();

    fn can(&self) -> Capabilities {
        Capabilities::new(Durability::Disk).shared(true).gives_back(true)
    }

    fn read<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<Option<Versioned<()>>>> {
        Box::pin(async move {
            let found = self.run(load).await?.remove(name);
            Ok(found.map(|info| Versioned { info, version: () }))
        })
    }

    // `Resend` is ignored, because this write is never sent again.
    fn swap<'a>(
        &'a self,
        name: &'a SequenceName,
        seen: Option<&'a Versioned<()>>,
        wanted: Option<&'a SequenceInfo>,
        _: Resend,
    ) -> StoreFuture<'a, Result<Swapped<()>>> {
        let (name, seen, wanted) = (name.clone(), seen.map(|seen| seen.info.clone()), wanted.cloned());
        Box::pin(self.run(move |path| {
            let lock = File::create(path.with_extension("lock")).map_err(certain)?;
            lock.lock().map_err(certain)?;
            let mut stored = load(path)?;
            if stored.get(&name) != seen.as_ref() {
                return Ok(Swapped::Now(stored.remove(&name).map(|info| Versioned { info, version: () })));
            }
            stored.remove(&name);
            stored.extend(wanted.map(|info| (name, info)));
            save(path, &stored).map(|()| Swapped::Done)
        }))
    }

    fn read_page<'a>(&'a self, page: &'a Page) -> StoreFuture<'a, Result<Listing>> {
        Box::pin(async move {
            let stored = self.run(load).await?;
            let (rows, next) = page_of(&stored, page);
            Ok(Listing::new(rows.into_iter().map(|(_, info)| info.clone()).collect(), next))
        })
    }
}

/// An error after which nothing was written.
fn certain(error: std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, error.to_string()).because(error)
}

fn load(path: &Path) -> Result<Stored> {
    match fs::read(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Stored::new()),
        text => serde_json::from_slice(&text.map_err(certain)?)
            .map_err(|error| Error::new(ErrorKind::StoreViolation, format!("the file is damaged: {error}"))),
    }
}

/// Syncs the new file before the rename, so that readers see the old or the new file, never a part.
fn save(path: &Path, stored: &Stored) -> Result<()> {
    let new = path.with_extension("new");
    let text = serde_json::to_vec_pretty(stored).map_err(|error| certain(error.into()))?;
    let written =
        File::create(&new).and_then(|mut file| file.write_all(&text).and_then(|()| file.sync_all()));
    written.map_err(certain)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let moved = fs::rename(&new, path).and_then(|()| File::open(parent)?.sync_all());
    moved.map_err(|error| Error::new(ErrorKind::UnknownOutcome, error.to_string()).because(error))
}

impl FromStr for ToyStore {
    type Err = Error;

    fn from_str(url: &str) -> Result<Self> {
        match query::after("toy", url)? {
            "" => Err(refuse("the path is missing; write `toy:PATH`")),
            path => Ok(Self { path: path.into(), create: true }),
        }
    }
}

impl fmt::Display for ToyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "toy:{}", self.path.display())
    }
}

impl Target for ToyStore {
    fn scheme(&self) -> &'static str {
        "toy"
    }

    fn existing(&self) -> Arc<dyn Target> {
        Arc::new(Self { create: false, ..self.clone() })
    }

    fn connect(&self) -> StoreFuture<'_, Result<Arc<dyn Store>>> {
        Box::pin(async move {
            if !self.create && !self.path.exists() {
                return Err(Error::new(
                    ErrorKind::NotFound,
                    format!("there is no file {}; correct the path", self.path.display()),
                ));
            }
            Ok(Arc::new(self.clone()) as Arc<dyn Store>)
        })
    }
}
