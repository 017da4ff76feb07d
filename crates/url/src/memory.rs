//! `memory:`, a new store in memory.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use idmill::store::MemoryStore;
use idmill::store::{Store, StoreFuture};
use idmill::{Error, Result};
use idmill_kit::Target;

#[derive(Debug)]
pub(crate) struct MemoryTarget;

impl FromStr for MemoryTarget {
    type Err = Error;

    fn from_str(url: &str) -> Result<Self> {
        if matches!(url, "memory:" | "memory://") {
            return Ok(Self);
        }
        Err(Error::invalid("`memory:` stands alone: it takes no path and no options"))
    }
}

impl fmt::Display for MemoryTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("memory:")
    }
}

impl Target for MemoryTarget {
    fn scheme(&self) -> &'static str {
        "memory"
    }

    fn existing(&self) -> Arc<dyn Target> {
        Arc::new(Self)
    }

    fn is_remote(&self) -> bool {
        false
    }

    fn connect(&self) -> StoreFuture<'_, Result<Arc<dyn Store>>> {
        Box::pin(async { Ok(Arc::new(MemoryStore::new()) as Arc<dyn Store>) })
    }
}
