//! `window=URL` in the URL of any store: a window in front of it.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use percent_encoding::utf8_percent_encode;

use crate::error::{Error, Result};
use crate::name::SequenceName;
use crate::store::kit::query::ESCAPED_VALUE;
use crate::store::kit::secrets;
use crate::store::{
    ColumnPath, Largest, Schemes, Store, StoreFuture, Target, WindowTarget, WindowView, WitnessUrl,
};

/// Puts the window that a URL names in front of a store.
pub(super) fn before(store: Arc<dyn Target>, schemes: &Schemes, url: &str) -> Result<Arc<dyn Target>> {
    let url = secrets::trimmed(url)?;
    let (scheme, rest) = url.split_once(':').unwrap_or_default();
    let scheme = scheme.to_ascii_lowercase();
    let window = schemes.window(&scheme)?(&format!("{scheme}:{rest}"))?;
    Ok(Arc::new(Windowed { store, window }))
}

#[derive(Debug)]
struct Windowed {
    store: Arc<dyn Target>,
    window: Arc<dyn WindowTarget>,
}

impl fmt::Display for Windowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let store = self.store.to_string();
        let separator = if store.contains('?') { '&' } else { '?' };
        // The address stays readable: errors name the store by its URL.
        let window = self.window.to_string();
        write!(f, "{store}{separator}window={}", utf8_percent_encode(&window, ESCAPED_VALUE))
    }
}

impl Target for Windowed {
    fn scheme(&self) -> &'static str {
        self.store.scheme()
    }

    fn file(&self) -> Option<&Path> {
        self.store.file()
    }

    fn existing(&self) -> Arc<dyn Target> {
        Arc::new(Self { store: self.store.existing(), window: self.window.clone() })
    }

    fn is_remote(&self) -> bool {
        self.store.is_remote()
    }

    fn ddl(&self) -> Result<Option<String>> {
        self.store.ddl()
    }

    fn guard(&self) -> Option<&WitnessUrl> {
        self.store.guard()
    }

    fn largest<'a>(&'a self, column: &'a ColumnPath) -> StoreFuture<'a, Result<Largest>> {
        self.store.largest(column)
    }

    fn lookalikes(&self) -> StoreFuture<'_, Result<Option<String>>> {
        self.store.lookalikes()
    }

    fn refused(&self) -> StoreFuture<'_, Result<Vec<(SequenceName, Error)>>> {
        self.store.refused()
    }

    fn window(&self) -> Result<Option<Arc<dyn WindowView>>> {
        self.window.view()
    }

    fn witness_ddl(&self) -> Result<Option<String>> {
        self.store.witness_ddl()
    }

    fn connect(&self) -> StoreFuture<'_, Result<Arc<dyn Store>>> {
        Box::pin(async { self.window.before(self.store.connect().await?) })
    }
}
