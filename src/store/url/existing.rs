//! `existing=true` in the URL of any store: it is opened and used without creating anything.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::name::SequenceName;
use crate::store::kit::options::{Word, words};
use crate::store::{ColumnPath, Existing, Largest, Store, StoreFuture, Target, WindowView, WitnessUrl};

/// As the option's value says.
pub(super) fn parse(store: Arc<dyn Target>, value: &str) -> Result<Arc<dyn Target>> {
    words::<bool>().check("existing", value)?;
    Ok(if value == true.word() { of(&*store) } else { store })
}

/// The store as it is, with nothing ever created.
pub(super) fn of(store: &dyn Target) -> Arc<dyn Target> {
    Arc::new(Found(store.existing()))
}

#[derive(Debug)]
struct Found(Arc<dyn Target>);

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let store = self.0.to_string();
        // Said once, of a store that is asked for it twice.
        if store.ends_with("existing=true") {
            return f.write_str(&store);
        }
        let separator = if store.contains('?') { '&' } else { '?' };
        write!(f, "{store}{separator}existing=true")
    }
}

impl Target for Found {
    fn scheme(&self) -> &'static str {
        self.0.scheme()
    }

    fn file(&self) -> Option<&Path> {
        self.0.file()
    }

    fn existing(&self) -> Arc<dyn Target> {
        Arc::new(Self(self.0.clone()))
    }

    fn is_remote(&self) -> bool {
        self.0.is_remote()
    }

    fn ddl(&self) -> Result<Option<String>> {
        self.0.ddl()
    }

    fn guard(&self) -> Option<&WitnessUrl> {
        self.0.guard()
    }

    fn largest<'a>(&'a self, column: &'a ColumnPath) -> StoreFuture<'a, Result<Largest>> {
        self.0.largest(column)
    }

    fn lookalikes(&self) -> StoreFuture<'_, Result<Option<String>>> {
        self.0.lookalikes()
    }

    fn refused(&self) -> StoreFuture<'_, Result<Vec<(SequenceName, Error)>>> {
        self.0.refused()
    }

    fn window(&self) -> Result<Option<Arc<dyn WindowView>>> {
        self.0.window()
    }

    fn witness_ddl(&self) -> Result<Option<String>> {
        self.0.witness_ddl()
    }

    fn connect(&self) -> StoreFuture<'_, Result<Arc<dyn Store>>> {
        Box::pin(async { Ok(Arc::new(Existing::of(self.0.connect().await?)) as Arc<dyn Store>) })
    }
}
