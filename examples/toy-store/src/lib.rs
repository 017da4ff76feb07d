//! Sequences in a text file, `toy:PATH`: a line each. All that a store needs: what it can do, how it reads,
//! how it writes if nothing has changed, and what its URLs are.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use idmill::store::{
    Bounds, Capabilities, Cursor, Durability, Identity, Listing, Page, SequenceInfo, Store, StoreFuture,
};
use idmill::{Error, ErrorKind, Result, SequenceName};
use idmill_kit::Scheme;
use idmill_kit::Target;
use idmill_kit::{CompareAndSet, Resend, Seen, Swapped, Swapping, query, refuse};

pub const SCHEMES: &[Scheme] = &[Scheme::store::<ToyStore>("toy", "toy:PATH")];

/// Opens the store at a URL such as `toy:PATH`, and its sequences, on the current tokio runtime.
///
/// # Errors
/// Those of [`idmill_kit::connect`].
pub async fn connect(url: &str) -> Result<idmill::Sequences> {
    idmill_kit::connect::<ToyStore>(url).await
}

/// The store, and its options too: there is no connection to open.
#[derive(Clone, Debug)]
pub struct ToyStore {
    path: PathBuf,
    create: bool,
}

type Lines = BTreeMap<String, SequenceInfo>;

impl ToyStore {
    /// Runs what blocks its thread where that is allowed.
    async fn run<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Path) -> Result<R> + Send + 'static,
    ) -> Result<R> {
        let path = self.path.clone();
        let done = tokio::task::spawn_blocking(move || work(&path)).await;
        done.map_err(|error| Error::new(ErrorKind::UnknownOutcome, "it panicked").because(error))?
    }
}

impl Store for ToyStore {
    idmill::store_calls!(|this| Swapping(this) =>
        capabilities reserve give_back create inspect list set remove);
}

impl CompareAndSet for ToyStore {
    /// Two states of a sequence that are equal are the same to everybody.
    type Version = ();

    fn can(&self) -> Capabilities {
        Capabilities::new(Durability::Disk).shared(true).gives_back(true)
    }

    fn read<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<Option<Seen<()>>>> {
        Box::pin(async move {
            let found = self.run(load).await?.remove(name.as_str());
            Ok(found.map(|info| Seen { info, version: () }))
        })
    }

    // Sent once, whatever may be sent again.
    fn swap<'a>(
        &'a self,
        name: &'a SequenceName,
        seen: Option<&'a Seen<()>>,
        wanted: Option<&'a SequenceInfo>,
        _: Resend,
    ) -> StoreFuture<'a, Result<Swapped<()>>> {
        let (name, seen, wanted) = (name.to_string(), seen.map(|seen| seen.info.clone()), wanted.cloned());
        Box::pin(self.run(move |path| {
            let lock = File::create(path.with_extension("lock")).map_err(certain)?;
            lock.lock().map_err(certain)?;
            let mut lines = load(path)?;
            if lines.get(&name) != seen.as_ref() {
                return Ok(Swapped::Now(lines.remove(&name).map(|info| Seen { info, version: () })));
            }
            lines.remove(&name);
            lines.extend(wanted.map(|info| (name, info)));
            save(path, &lines).map(|()| Swapped::Done)
        }))
    }

    fn read_page<'a>(&'a self, page: &'a Page) -> StoreFuture<'a, Result<Listing>> {
        Box::pin(async move {
            let lines = self.run(load).await?;
            let after = page.after.as_ref().map_or("", Cursor::as_str);
            let mut left =
                lines.into_iter().filter(|(name, _)| name.starts_with(&page.prefix) && **name > *after);
            let mut listing = Listing::default();
            listing.sequences = left.by_ref().take(page.limit).map(|(_, info)| info).collect();
            let last = listing.sequences.last().map(|info| Cursor::new(info.name.as_str()));
            listing.next = left.next().and(last);
            Ok(listing)
        })
    }
}

/// Nothing was written.
fn certain(error: std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, error.to_string()).because(error)
}

fn load(path: &Path) -> Result<Lines> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        text => text.map_err(certain)?,
    };
    let wrong = |line: &str| Error::new(ErrorKind::StoreViolation, format!("this is no sequence: {line:?}"));
    text.lines().map(|line| parse(line).ok_or_else(|| wrong(line))).collect()
}

/// `next start max incarnation epoch name`, where a `next` beyond `max` says that all are reserved.
fn parse(line: &str) -> Option<(String, SequenceInfo)> {
    let mut words = line.splitn(6, ' ');
    let numbers: Vec<u128> = words.by_ref().take(5).map_while(|word| word.parse().ok()).collect();
    let [next, start, max, incarnation, epoch] = *numbers else { return None };
    let name = SequenceName::new(words.next()?).ok()?;
    let small = |number: u128| u64::try_from(number).ok();
    let mut info = SequenceInfo::new(name, Bounds::new(small(start)?, small(max)?).ok()?);
    info.next = small(next).filter(|next| *next <= info.bounds.max());
    info.identity = Identity { incarnation: small(incarnation)?, epoch: small(epoch)? };
    Some((info.name.to_string(), info))
}

/// On the disk before it is the file: whoever reads sees all of it or nothing.
fn save(path: &Path, lines: &Lines) -> Result<()> {
    let new = path.with_extension("new");
    let mut text = String::new();
    for info in lines.values() {
        let SequenceInfo { bounds, identity: Identity { incarnation, epoch }, .. } = info;
        let (next, start, max) = (info.reached(), bounds.start(), bounds.max());
        text += &format!("{next} {start} {max} {incarnation} {epoch} {}\n", info.name.as_str());
    }
    let written = File::create(&new)
        .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()));
    written.map_err(certain)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let moved = fs::rename(&new, path).and_then(|()| File::open(parent)?.sync_all());
    moved.map_err(|error| Error::new(ErrorKind::UnknownOutcome, error.to_string()).because(error))
}

impl FromStr for ToyStore {
    type Err = Error;

    fn from_str(url: &str) -> Result<Self> {
        match query::after("toy", url)? {
            "" => Err(refuse("a store of toys is written `toy:PATH`")),
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
                    format!("there is no file {}", self.path.display()),
                ));
            }
            Ok(Arc::new(self.clone()) as Arc<dyn Store>)
        })
    }
}
