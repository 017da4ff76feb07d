//! The URL `memory:` of a new store in memory.

use std::fmt;
use std::str::FromStr;

use idmill::store::MemoryStore;
use idmill::{Error, Result};
use idmill_kit::Target;

#[derive(Clone, Debug)]
pub(crate) struct MemoryTarget;

impl FromStr for MemoryTarget {
    type Err = Error;

    fn from_str(url: &str) -> Result<Self> {
        if matches!(url, "memory:" | "memory://") {
            return Ok(Self);
        }
        Err(Error::invalid("`memory:` takes no path and no options; omit them"))
    }
}

impl fmt::Display for MemoryTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("memory:")
    }
}

impl Target for MemoryTarget {
    idmill_kit::target!(|memory| "memory" => open);

    fn is_remote(&self) -> bool {
        false
    }
}

async fn open(_: MemoryTarget) -> Result<MemoryStore> {
    Ok(MemoryStore::new())
}
