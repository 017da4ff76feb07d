//! `guard=URL` in the URL of any store: a witness beside it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use percent_encoding::utf8_percent_encode;
use tokio::sync::OnceCell;

use crate::error::{Error, ErrorKind, Operation, Result};
use crate::guard::{FileWitness, Guarded, Ledger, Ledgers, StoreWitness, Witness};
use crate::name::SequenceName;
use crate::store::kit::query::ESCAPED_VALUE;
use crate::store::kit::secrets;
use crate::store::{ColumnPath, Largest, Page, Schemes, Store, StoreFuture, StoreUrl, Target, WindowView};

/// The URL of a [witness](crate::guard), checked but not yet opened: `file:PATH`, for the processes of one
/// machine, or the URL of any store that keeps records.
///
/// ```
/// use idmill::guard::WitnessUrl;
///
/// let witness = WitnessUrl::parse("file:/var/lib/shop/ids.witness")?;
/// assert_eq!(witness.to_string(), "file:/var/lib/shop/ids.witness");
/// # Ok::<(), idmill::Error>(())
/// ```
///
/// A URL prints as one that reads back as the same, except for a password, which is hidden.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WitnessUrl(Place);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    File(PathBuf),
    Store(StoreUrl),
}

impl WitnessUrl {
    /// Reads a URL. Touches neither disk nor network.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for what is neither, and those of
    /// [`StoreUrl::parse`].
    pub fn parse(url: &str) -> Result<Self> {
        read(&Schemes::registered(), url).map_err(|error| error.during(Operation::Connect))
    }

    /// Opens the witness, and makes it if it does not exist.
    ///
    /// # Errors
    /// Those of [`FileWitness::open`], of [`StoreUrl::connect`], and of [`StoreWitness::new`].
    pub async fn open(&self) -> Result<Arc<dyn Witness>> {
        let opened = match &self.0 {
            Place::File(file) => in_a_file(file.clone(), FileWitness::open).await,
            Place::Store(url) => in_a_store(url).await,
        };
        opened.map_err(|error| self.not_opened(error))
    }

    /// Opens the witness if it exists, for looking at it: a mistyped path should not leave an empty one
    /// behind.
    ///
    /// # Errors
    /// As [`open`](Self::open); [`NotFound`](ErrorKind::NotFound) if it does not exist.
    pub async fn open_existing(&self) -> Result<Arc<dyn Witness>> {
        let opened = match &self.0 {
            Place::File(file) => in_a_file(file.clone(), FileWitness::open_existing).await,
            Place::Store(url) => in_a_store(&url.clone().existing()).await,
        };
        opened.map_err(|error| self.not_opened(error))
    }

    /// The statement that creates the table of the witness's records, for those who create tables by
    /// migrations of their own; `None` for a witness that has no table to create. Touches neither disk nor
    /// network.
    ///
    /// # Errors
    /// As [`StoreUrl::witness_ddl`].
    pub fn ddl(&self) -> Result<Option<String>> {
        match &self.0 {
            Place::File(_) => Ok(None),
            Place::Store(url) => url.witness_ddl(),
        }
    }

    fn not_opened(&self, error: Error) -> Error {
        let message = format!("the witness {self} could not be opened");
        Error::new(error.kind(), message).because(error).during(Operation::Connect)
    }

    fn is_remote(&self) -> bool {
        matches!(self.0, Place::Store(_))
    }
}

async fn in_a_file(
    file: PathBuf,
    open: impl FnOnce(PathBuf) -> Result<FileWitness> + Send + 'static,
) -> Result<Arc<dyn Witness>> {
    // It waits for the disk, and for others.
    let opening = tokio::task::spawn_blocking(move || open(file));
    let opened = opening.await.unwrap_or_else(|error| {
        Err(Error::new(ErrorKind::Unavailable, "the opening was cut off").because(error))
    });
    Ok(Arc::new(opened?))
}

async fn in_a_store(url: &StoreUrl) -> Result<Arc<dyn Witness>> {
    Ok(Arc::new(StoreWitness::new(url.connect().await?)?))
}

fn read(schemes: &Schemes, url: &str) -> Result<WitnessUrl> {
    let url = secrets::trimmed(url)?;
    let Some(file) = strip_scheme(url) else { return Ok(WitnessUrl(Place::Store(schemes.parse(url)?))) };
    let path = match file.strip_prefix("//") {
        Some(path) if path.starts_with('/') => path,
        Some(_) => {
            let shown = secrets::redacted(url);
            let message =
                format!("{shown:?} names a host, and a witness's file is of this machine: write `file:PATH`");
            return Err(Error::invalid(message));
        }
        None => file,
    };
    if path.is_empty() || path.ends_with('/') {
        return Err(Error::invalid(format!(
            "{url:?} names no file: write `file:PATH`, of the witness's own file"
        )));
    }
    Ok(WitnessUrl(Place::File(PathBuf::from(path))))
}

fn strip_scheme(url: &str) -> Option<&str> {
    let (scheme, rest) = url.split_once(':')?;
    scheme.eq_ignore_ascii_case("file").then_some(rest)
}

impl fmt::Display for WitnessUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Place::File(file) => write!(f, "file:{}", file.display()),
            Place::Store(url) => url.fmt(f),
        }
    }
}

impl FromStr for WitnessUrl {
    type Err = Error;

    fn from_str(url: &str) -> Result<Self> {
        Self::parse(url)
    }
}

/// Guards a store by the witness that a URL names.
pub(super) fn beside(store: Arc<dyn Target>, schemes: &Schemes, url: &str) -> Result<Arc<dyn Target>> {
    by(store, read(schemes, url)?)
}

pub(super) fn by(store: Arc<dyn Target>, witness: WitnessUrl) -> Result<Arc<dyn Target>> {
    if store.guard().is_some() {
        return Err(Error::invalid(
            "the store is guarded already: give one witness, in its URL or beside it",
        ));
    }
    if is_in_the_store(&*store, &witness) {
        let message = format!(
            "the witness {witness} is the store itself: what is restored together notices nothing. Name another database, \
             or a file on another disk"
        );
        return Err(Error::invalid(message));
    }
    Ok(Arc::new(Guarding { store, witness, is_lazy: false }))
}

fn is_in_the_store(store: &dyn Target, witness: &WitnessUrl) -> bool {
    match &witness.0 {
        Place::File(file) => store.file() == Some(file),
        Place::Store(url) => place(&url.to_string()) == place(&store.to_string()),
    }
}

/// A URL without its options.
fn place(url: &str) -> &str {
    url.split_once('?').map_or(url, |(place, _)| place)
}

#[derive(Debug)]
struct Guarding {
    store: Arc<dyn Target>,
    witness: WitnessUrl,
    /// For looking at the store, which is possible while the witness is away, and makes none.
    is_lazy: bool,
}

impl fmt::Display for Guarding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let store = self.store.to_string();
        let separator = if store.contains('?') { '&' } else { '?' };
        let witness = self.witness.to_string();
        write!(f, "{store}{separator}guard={}", utf8_percent_encode(&witness, ESCAPED_VALUE))
    }
}

impl Target for Guarding {
    fn scheme(&self) -> &'static str {
        self.store.scheme()
    }

    fn file(&self) -> Option<&Path> {
        self.store.file()
    }

    fn existing(&self) -> Arc<dyn Target> {
        Arc::new(Self { store: self.store.existing(), witness: self.witness.clone(), is_lazy: true })
    }

    fn is_remote(&self) -> bool {
        self.store.is_remote() || self.witness.is_remote()
    }

    fn ddl(&self) -> Result<Option<String>> {
        self.store.ddl()
    }

    fn lookalikes(&self) -> StoreFuture<'_, Result<Option<String>>> {
        self.store.lookalikes()
    }

    fn refused(&self) -> StoreFuture<'_, Result<Vec<(SequenceName, Error)>>> {
        self.store.refused()
    }

    fn window(&self) -> Result<Option<Arc<dyn WindowView>>> {
        self.store.window()
    }

    fn witness_ddl(&self) -> Result<Option<String>> {
        self.store.witness_ddl()
    }

    fn guard(&self) -> Option<&WitnessUrl> {
        Some(&self.witness)
    }

    fn largest<'a>(&'a self, column: &'a ColumnPath) -> StoreFuture<'a, Result<Largest>> {
        self.store.largest(column)
    }

    fn connect(&self) -> StoreFuture<'_, Result<Arc<dyn Store>>> {
        Box::pin(async {
            let witness: Arc<dyn Witness> = if self.is_lazy {
                Arc::new(Lazily { url: self.witness.clone(), opened: OnceCell::new() })
            } else {
                self.witness.open().await?
            };
            let store = self.store.connect().await?;
            Ok(Arc::new(Guarded::new(store, witness)) as Arc<dyn Store>)
        })
    }
}

/// A witness that is opened when it is first asked.
#[derive(Debug)]
struct Lazily {
    url: WitnessUrl,
    opened: OnceCell<Arc<dyn Witness>>,
}

impl Lazily {
    async fn opened(&self) -> Result<&dyn Witness> {
        Ok(&**self.opened.get_or_try_init(|| self.url.open()).await?)
    }
}

impl Witness for Lazily {
    fn read<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<Option<Ledger>>> {
        Box::pin(async move { self.opened().await?.read(name).await })
    }

    fn swap<'a>(
        &'a self,
        name: &'a SequenceName,
        seen: Option<&'a Ledger>,
        wanted: &'a Ledger,
    ) -> StoreFuture<'a, Result<bool>> {
        Box::pin(async move { self.opened().await?.swap(name, seen, wanted).await })
    }

    fn list<'a>(&'a self, page: &'a Page) -> StoreFuture<'a, Result<Ledgers>> {
        Box::pin(async move { self.opened().await?.list(page).await })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(url: &str, remedy: &str) {
        let error = StoreUrl::parse(url).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{url}: {error}");
        assert!(error.to_string().contains(remedy), "{url}: {error}");
    }

    #[test]
    fn a_guard_is_a_file_or_a_store_and_never_the_store_itself() {
        for url in ["memory:?guard=file:/w", "memory:?guard=file:///w", "memory:?guard=FILE:ids.witness"] {
            let read = StoreUrl::parse(url).unwrap();
            assert_eq!(StoreUrl::parse(&read.to_string()).unwrap(), read, "{url}");
        }
        assert_eq!(StoreUrl::parse("memory:?guard=file:///w").unwrap().to_string(), "memory:?guard=file:/w");
        refused("memory:?guard=file:", "names no file");
        refused("memory:?guard=file://host/w", "of this machine");
        refused("memory:?guard=/w", "no scheme");
        refused("memory:?guard=memory:", "is the store itself");
        refused("memory:?guard=file:/w&guard=file:/v", "given twice");
        let guarded = StoreUrl::parse("memory:?guard=file:/w").unwrap();
        let twice = guarded.guarded(WitnessUrl::parse("file:/v").unwrap()).unwrap_err();
        assert!(twice.to_string().contains("guarded already"), "{twice}");
    }

    #[tokio::test]
    async fn looking_makes_no_witness_and_using_does() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("ids.witness");
        let url = WitnessUrl::parse(&format!("file:{}", file.display())).unwrap();
        let missing = url.open_existing().await.unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound, "{missing}");
        assert!(missing.to_string().contains("ids.witness"), "{missing}");
        assert!(!file.exists());
        url.open().await.unwrap();
        url.open_existing().await.unwrap();
    }

    #[tokio::test]
    async fn what_keeps_no_witness_over_a_crash_is_refused_when_it_is_opened() {
        let error = WitnessUrl::parse("memory:").unwrap().open().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("the witness memory: could not be opened"), "{error}");
    }
}
