//! A store whose sequences are replaced between a read and the next call.

use idmill::store::{Bounds, MemoryStore, SequenceInfo, Store, StoreFuture};
use idmill::{Result, SequenceName};

/// A store in which another process replaces the sequence after each read. A missing sequence is created.
#[derive(Clone, Debug, Default)]
pub struct Replaced(pub MemoryStore);

impl Store for Replaced {
    idmill::store_calls!(|this| this.0 => capabilities reserve create list set remove);

    fn inspect<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<Option<SequenceInfo>>> {
        Box::pin(async move {
            let found = self.0.inspect(name).await?;
            self.0.remove(name, None).await?;
            let bounds = found.as_ref().map_or_else(Bounds::of::<i64>, |found| found.bounds);
            self.0.create(name, bounds).await?;
            Ok(found)
        })
    }
}
