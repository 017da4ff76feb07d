//! `memory:`, a new store in memory.

use std::fmt;
use std::sync::Arc;

use super::Target;
use crate::error::{Error, Result};
use crate::store::{MemoryStore, Store, StoreFuture};

#[derive(Debug)]
pub(super) struct Memory;

impl Memory {
    pub(super) fn parse(rest: &str) -> Result<Arc<dyn Target>> {
        if matches!(rest, "" | "//") {
            return Ok(Arc::new(Self));
        }
        Err(Error::invalid("`memory:` stands alone: it takes no path and no options"))
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("memory:")
    }
}

impl Target for Memory {
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
