//! `guard=URL` in the URL of any store: a witness beside it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use percent_encoding::utf8_percent_encode;
use tokio::sync::OnceCell;

use super::WitnessUrl;
use crate::error::{Error, Result};
use crate::guard::{Guarded, Ledger, Ledgers, Witness};
use crate::name::SequenceName;
use crate::store::kit::query::ESCAPED_VALUE;
use crate::store::{ColumnPath, Largest, Page, Schemes, Store, StoreFuture, Target, WindowView};

/// Guards a store by the witness that a URL names.
pub(super) fn beside(store: Arc<dyn Target>, schemes: &Schemes, url: &str) -> Result<Arc<dyn Target>> {
    by(store, WitnessUrl::read(schemes, url)?)
}

pub(super) fn by(store: Arc<dyn Target>, witness: WitnessUrl) -> Result<Arc<dyn Target>> {
    if store.guard().is_some() {
        return Err(Error::invalid(
            "the store is guarded already: give one witness, in its URL or beside it",
        ));
    }
    witness.must_differ(&*store)?;
    Ok(Arc::new(Guarding { store, witness, is_lazy: false }))
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
            let file = self.store.file();
            let (store, witness): (_, Arc<dyn Witness>) = if self.is_lazy {
                let store = self.store.connect().await?;
                let (url, file) = (self.witness.clone(), file.map(ToOwned::to_owned));
                (store.clone(), Arc::new(Lazily { url, store, file, opened: OnceCell::new() }))
            } else {
                // First, so that a witness that cannot be opened leaves no new store behind.
                let found = self.witness.find().await?;
                let store = self.store.connect().await?;
                (store.clone(), self.witness.beside(found, &store, file).await?)
            };
            Ok(Arc::new(Guarded::new(store, witness)) as Arc<dyn Store>)
        })
    }
}

/// A witness that is opened when it is first asked.
#[derive(Debug)]
struct Lazily {
    url: WitnessUrl,
    /// The store that it guards, and the file of that store.
    store: Arc<dyn Store>,
    file: Option<PathBuf>,
    opened: OnceCell<Arc<dyn Witness>>,
}

impl Lazily {
    async fn opened(&self) -> Result<&dyn Witness> {
        let open =
            || async { self.url.beside(self.url.find().await?, &self.store, self.file.as_deref()).await };
        Ok(&**self.opened.get_or_try_init(open).await?)
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
    use crate::error::ErrorKind;
    use crate::store::StoreUrl;

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
        refused("memory:?guard=memory:", "the witness memory: could not be opened");
        refused("memory:?guard=file:/w&guard=file:/v", "given twice");
        let guarded = StoreUrl::parse("memory:?guard=file:/w").unwrap();
        let twice = guarded.guarded(WitnessUrl::parse("file:/v").unwrap()).unwrap_err();
        assert!(twice.to_string().contains("guarded already"), "{twice}");
    }
}
