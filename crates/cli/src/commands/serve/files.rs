//! Whether files have changed.

use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::path::PathBuf;

/// Files and hashes of their contents. A new file can have the time and the size of the old one.
#[derive(Clone, Debug)]
pub(super) struct Files {
    paths: Vec<PathBuf>,
    hasher: RandomState,
    /// `None` for a file that cannot be read.
    seen: Vec<Option<u64>>,
}

impl Files {
    pub(super) fn of(paths: impl Iterator<Item = PathBuf>) -> Self {
        let mut files = Self { paths: paths.collect(), hasher: RandomState::new(), seen: Vec::new() };
        files.have_changed();
        files
    }

    /// Whether a content differs from that of the last call.
    pub(super) fn have_changed(&mut self) -> bool {
        let hash = |path| fs::read(path).ok().map(|content| self.hasher.hash_one(content));
        let now: Vec<_> = self.paths.iter().map(hash).collect();
        let changed = now != self.seen;
        self.seen = now;
        changed
    }
}
