//! Parses the URL of a witness and opens the witness.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use percent_encoding::percent_encode;

use crate::schemes::take_flag;
use crate::{Schemes, StoreUrl};
use idmill::store::Store;
use idmill::{Error, ErrorKind, Operation, Result};
use idmill_guard::{
    FileWitness, StoreWitness, Witness, is_itself, is_same_file, marked, not_the_server_of, probe,
    used_before,
};
use idmill_kit::options::Word as _;
use idmill_kit::query::ESCAPED;
use idmill_kit::{Target, query, secrets};

/// The option for a new witness.
const NEW: &str = "new";

/// The URL of a [witness](idmill_guard): validated, but not yet opened. It is `file:PATH`, for the processes
/// of one machine, or the URL of any store that keeps records. In a path, write `%3F` for a question mark and
/// `%25` for a percent sign.
///
/// A missing witness is created, unless ids of the store were already reserved. In that case the witness was
/// lost, its disk is not mounted, or the store had no guard before. For a new guard, `?new=true` creates the
/// witness; remove the option afterwards.
///
/// ```
/// use idmill_url::Schemes;
///
/// let witness = Schemes::default().witness("file:/var/lib/shop/ids.witness")?;
/// assert_eq!(witness.to_string(), "file:/var/lib/shop/ids.witness");
/// # Ok::<(), idmill::Error>(())
/// ```
///
/// `Display` prints a URL that parses to the same value, except for the password, which is hidden.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WitnessUrl {
    place: Place,
    /// Whether the witness may be created for a store that is in use.
    new: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    File(PathBuf),
    Store(Box<StoreUrl>),
}

/// An open witness.
pub(crate) struct Found {
    witness: Arc<dyn Witness>,
    /// The store that holds the witness; `None` for a file.
    kept_by: Option<Arc<dyn Store>>,
}

/// The mode for opening a witness.
#[derive(Clone, Copy, PartialEq)]
enum How {
    Create,
    /// Requires an existing witness, but no write permission.
    Look,
    /// Returns `None` if there is no witness.
    Find,
}

impl WitnessUrl {
    pub(crate) fn read(schemes: &Schemes, url: &str) -> Result<Self> {
        let url = secrets::trimmed(url)?;
        let (url, new) = take_flag(NEW, url)?;
        let place = match query::split_scheme(&url) {
            Some((scheme, file)) if scheme == "file" => Place::File(read_file(&url, file)?),
            _ => Place::Store(Box::new(schemes.parse(&url)?)),
        };
        Ok(Self { place, new })
    }

    /// Opens the witness, and creates it if it does not exist. There is no store to compare it with. So
    /// `open` detects neither a lost witness nor one that is the store itself; `guard=URL` in the URL of a
    /// store detects both.
    ///
    /// # Errors
    /// Those of [`FileWitness::open`], of [`StoreUrl::connect`], and of [`StoreWitness::new`].
    pub async fn open(&self) -> Result<Arc<dyn Witness>> {
        Ok(self.opened(How::Create).await?.witness)
    }

    /// Opens an existing witness for inspection. A mistyped path creates no empty witness.
    ///
    /// # Errors
    /// As [`open`](Self::open); [`NotFound`](ErrorKind::NotFound) if it does not exist.
    pub async fn open_existing(&self) -> Result<Arc<dyn Witness>> {
        Ok(self.opened(How::Look).await?.witness)
    }

    /// Opens an existing witness for inspection, and checks that it is separate from the store.
    pub(crate) async fn inspected(&self, store: &dyn Store, file: Option<&Path>) -> Result<Arc<dyn Witness>> {
        self.must_be_another_file(file)?;
        let found = self.opened(How::Look).await?;
        self.must_be_apart(&found, store, false).await?;
        Ok(found.witness)
    }

    /// Checks that the witness is separate from the store, and marks a new one. Returns whether the witness
    /// was used before.
    async fn must_be_apart(&self, found: &Found, store: &dyn Store, is_new: bool) -> Result<bool> {
        let checked = async {
            let Some(keeper) = &found.kept_by else { return Ok(true) };
            not_the_server_of(store, keeper).await?;
            if is_new { marked(store, keeper).await.map(|()| true) } else { probe(store, keeper).await }
        };
        checked.await.map_err(|error| self.not_opened(error))
    }

    fn must_be_another_file(&self, file: Option<&Path>) -> Result<()> {
        if file.is_some_and(|file| self.file().is_some_and(|own| is_same_file(own, file))) {
            return Err(self.not_opened(is_itself()));
        }
        Ok(())
    }

    /// Returns the statement that creates the table of the witness's records, for use in migrations; `None`
    /// if it has no such statement. Does no I/O.
    ///
    /// # Errors
    /// As [`StoreUrl::witness_ddl`].
    pub fn ddl(&self) -> Result<Option<String>> {
        match &self.place {
            Place::File(_) => Ok(None),
            Place::Store(url) => url.witness_ddl(),
        }
    }

    /// Checks, only by the URLs, that the witness is not the store.
    pub(crate) fn must_differ(&self, store: &dyn Target) -> Result<()> {
        let is_same = match &self.place {
            Place::File(file) => store.file() == Some(file),
            Place::Store(url) => place(&url.to_string()) == place(&store.to_string()),
        };
        if is_same { Err(self.not_opened(is_itself())) } else { Ok(()) }
    }

    /// Opens the witness if it exists. Creates no witness.
    pub(crate) async fn find(&self) -> Result<Option<Found>> {
        self.sought(How::Find).await.map_err(|error| self.not_opened(error))
    }

    async fn opened(&self, how: How) -> Result<Found> {
        let opened = self.sought(how).await.map_err(|error| self.not_opened(error))?;
        Ok(opened.expect("opening creates the witness or fails"))
    }

    async fn sought(&self, how: How) -> Result<Option<Found>> {
        match &self.place {
            Place::File(file) => {
                let file = file.clone();
                // Opening waits for the disk and for a lock.
                let opening = tokio::task::spawn_blocking(move || match how {
                    How::Create => FileWitness::open(file).map(Some),
                    How::Look => FileWitness::open_existing(file).map(Some),
                    How::Find => FileWitness::find(file),
                });
                let opened = opening.await.unwrap_or_else(|error| {
                    Err(Error::new(ErrorKind::Unavailable, "the task that opens the file failed")
                        .because(error))
                });
                opened.map(|file| file.map(|file| Found { witness: Arc::new(file), kept_by: None }))
            }
            Place::Store(url) => match in_a_store(url, how).await {
                Err(error) if how == How::Find && error.kind() == ErrorKind::NotFound => Ok(None),
                opened => opened.map(Some),
            },
        }
    }

    /// Opens the witness of this store after [`find`](Self::find). `file` is the file of the store, if any.
    pub(crate) async fn beside(
        &self,
        found: Option<Found>,
        store: &dyn Store,
        file: Option<&Path>,
    ) -> Result<Arc<dyn Witness>> {
        self.must_be_another_file(file)?;
        if let Some(opened) = self.checked(found, store).await? {
            if self.new {
                tracing::warn!(
                    "the witness {self} exists; leave out `{NEW}=true`, which would create it again if it is lost"
                );
            }
            return Ok(opened);
        }
        let used = if self.new { None } else { used_before(store).await? };
        let Some(used) = used else { return self.made(store).await };
        // Another process may have created the witness before it drew.
        let opened = self.checked(self.find().await?, store).await?;
        opened.ok_or_else(|| self.missing(&used))
    }

    /// Returns the witness if it is separate from the store and was used before.
    async fn checked(&self, found: Option<Found>, store: &dyn Store) -> Result<Option<Arc<dyn Witness>>> {
        let Some(found) = found else { return Ok(None) };
        let existed = self.must_be_apart(&found, store, false).await?;
        Ok(existed.then_some(found.witness))
    }

    async fn made(&self, store: &dyn Store) -> Result<Arc<dyn Witness>> {
        tracing::warn!("the witness {self} does not exist, and is created");
        let found = self.opened(How::Create).await?;
        self.must_be_apart(&found, store, true).await?;
        Ok(found.witness)
    }

    fn missing(&self, used: &str) -> Error {
        let new = Self { new: true, ..self.clone() };
        let message = format!(
            "the witness {self} does not exist, but {used}; restore it, or for a new guard use `{new}`"
        );
        Error::new(ErrorKind::Witness, message).during(Operation::Connect)
    }

    fn not_opened(&self, error: Error) -> Error {
        let message = format!("cannot open the witness {self}");
        Error::new(error.kind(), message).because(error).during(Operation::Connect)
    }

    fn file(&self) -> Option<&Path> {
        match &self.place {
            Place::File(file) => Some(file),
            Place::Store(url) => url.file(),
        }
    }

    pub(crate) fn is_remote(&self) -> bool {
        matches!(self.place, Place::Store(_))
    }
}

impl Schemes {
    /// Parses the URL of a witness. Does no I/O.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) if it is neither a file nor a store; those of
    /// [`parse`](Self::parse).
    pub fn witness(&self, url: &str) -> Result<WitnessUrl> {
        WitnessUrl::read(self, url).map_err(|error| error.during(Operation::Connect))
    }
}

async fn in_a_store(url: &StoreUrl, how: How) -> Result<Found> {
    let url = if how == How::Create { url.clone() } else { url.clone().existing() };
    let store = url.connect().await?;
    Ok(Found { witness: Arc::new(StoreWitness::new(store.clone())?), kept_by: Some(store) })
}

/// Returns a URL without its options.
fn place(url: &str) -> &str {
    url.split_once('?').map_or(url, |(place, _)| place)
}

/// Parses the part of this URL after `file:`.
fn read_file(url: &str, file: &str) -> Result<PathBuf> {
    let shown = secrets::redacted(url);
    let path = match file.strip_prefix("//") {
        Some(path) if path.starts_with('/') => path,
        Some(_) => {
            let message = format!(
                "{shown:?} names a host, but a witness's file must be on this machine; write `file:PATH`"
            );
            return Err(Error::invalid(message));
        }
        None => file,
    };
    let (path, options) = path.split_once('?').unwrap_or((path, ""));
    if !options.is_empty() {
        let message = format!(
            "{shown:?} has an unknown option; use `{NEW}=true`, or write %3F for a `?` in the file's name"
        );
        return Err(Error::invalid(message));
    }
    if path.is_empty() || path.ends_with('/') {
        return Err(Error::invalid(format!("{url:?} does not name a file; write `file:PATH`")));
    }
    Ok(PathBuf::from(query::decoded(path)?))
}

impl fmt::Display for WitnessUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut url = match &self.place {
            Place::File(file) => {
                let path = percent_encode(file.as_os_str().as_encoded_bytes(), ESCAPED).to_string();
                // Two slashes at the beginning would start a host.
                let path = if path.starts_with("//") { path.replacen("//", "/%2F", 1) } else { path };
                format!("file:{path}")
            }
            Place::Store(url) => url.to_string(),
        };
        if self.new {
            query::append(&mut url, NEW, true.word());
        }
        f.write_str(&url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<StoreUrl> {
        Schemes::default().parse(url)
    }

    fn witness(url: &str) -> Result<WitnessUrl> {
        Schemes::default().witness(url)
    }

    #[test]
    fn witness_url_reads_the_same_in_both_options() {
        for (url, file) in [
            ("file:/my%20ids", "/my ids"),
            ("file:/a+b", "/a+b"),
            ("file:/100%", "/100%"),
            ("FILE:///w?new=false", "/w"),
            ("file:/w%3Fnew=true", "/w?new=true"),
        ] {
            let alone = witness(url).unwrap();
            assert_eq!(alone.place, Place::File(PathBuf::from(file)), "{url}");
            assert_eq!(witness(&alone.to_string()).unwrap(), alone);
            let store = parse("memory:").unwrap().guarded(alone.clone()).unwrap();
            assert_eq!(parse(&store.to_string()).unwrap().guard(), Some(&alone), "{store}");
        }
        for url in ["file:/my%20ids", "file:/a+b", "file:/w?new=true"] {
            let beside = parse(&format!("memory:?guard={url}")).unwrap();
            assert_eq!(beside.guard(), Some(&witness(url).unwrap()), "{url}");
        }
        let slashes = witness("file:/%2Fa/b").unwrap();
        assert_eq!(
            (&slashes.place, slashes.to_string().as_str()),
            (&Place::File("//a/b".into()), "file:/%2Fa/b")
        );
        assert_eq!(witness("file:///%2Fa/b").unwrap(), slashes);
        let new = witness("memory:?new=true").unwrap();
        assert_eq!((new.new, new.to_string().as_str()), (true, "memory:?new=true"));
    }

    #[test]
    fn witness_url_unknown_option_is_refused() {
        let unknown = |url| {
            format!(
                "{url:?} has an unknown option; use `new=true`, or write %3F for a `?` in the file's name"
            )
        };
        for (url, message) in [
            ("file:w?mode=rw", unknown("file:w?mode=rw")),
            ("file:w?new=true&mode=rw", unknown("file:w?mode=rw")),
            ("file:w?new=perhaps", "new=\"perhaps\" is unknown; use one of: true, false".to_owned()),
            ("file:w?new=true&new=true", "duplicate option `new`; keep only one".to_owned()),
        ] {
            let error = witness(url).unwrap_err();
            assert_eq!(
                (error.kind(), error.to_string()),
                (ErrorKind::InvalidInput, format!("connect: {message}"))
            );
        }
    }

    #[tokio::test]
    async fn looking_makes_no_witness_and_using_does() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("ids.witness");
        let url = witness(&format!("file:{}", file.display())).unwrap();
        let missing = url.open_existing().await.unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound, "{missing}");
        assert!(missing.to_string().contains("ids.witness"), "{missing}");
        assert!(!file.exists());
        url.open().await.unwrap();
        url.open_existing().await.unwrap();
    }

    #[tokio::test]
    async fn nondurable_witness_is_rejected_on_open() {
        let error = witness("memory:").unwrap().open().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("cannot open the witness memory:"), "{error}");
    }
}
