//! Opening many sequences at once.

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};

use super::{SequenceBuilder, Sequences};
use crate::allocator::Allocator;
use crate::error::{Operation, Result};
use crate::id::Id;

/// The most sequences that are read in one call of the store.
const READ_AT_ONCE: usize = 256;

/// The number of sequences that are created concurrently.
const CREATED_AT_ONCE: usize = 16;

impl Sequences {
    /// Opens many sequences, such as one per tenant, with the same settings. Reads up to 256 of them in one
    /// call of the store, if the store can do that. Returns the allocators in the order of the names.
    ///
    /// ```
    /// # async fn demo(ids: idmill::Sequences) -> idmill::Result<()> {
    /// let tenants = ["orders-a", "orders-b"];
    /// let orders = ids.open_all::<u64>(tenants, |orders| orders.max_buffered(100)).await?;
    /// # let _ = orders; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of opening one [`SequenceBuilder`]; the first one ends the call. Some missing sequences may have
    /// been created then.
    pub async fn open_all<T: Id>(
        &self,
        names: impl IntoIterator<Item = impl AsRef<str>>,
        settings: impl Fn(SequenceBuilder<T>) -> SequenceBuilder<T>,
    ) -> Result<Vec<Allocator<T>>> {
        let mut builders = names.into_iter().map(|name| settings(self.sequence(name)));
        let mut opened = Vec::new();
        loop {
            let some: Vec<_> = builders.by_ref().take(READ_AT_ONCE).collect();
            if some.is_empty() {
                return Ok(opened);
            }
            opened.extend(self.open_some(some).await?);
        }
    }

    async fn open_some<T: Id>(&self, builders: Vec<SequenceBuilder<T>>) -> Result<Vec<Allocator<T>>> {
        let names = builders.iter().map(SequenceBuilder::name).collect::<Result<Vec<_>>>()?;
        let held: Vec<_> = names.iter().map(|name| self.shared.held(name)).collect();
        let limit = builders.iter().map(SequenceBuilder::limit).max().unwrap_or_default();
        let store = self.store().clone();
        let found = self.shared.ask_store(limit, async move { Ok(store.inspect_many(&names).await) });
        let found = found.await.map_err(|error| error.during(Operation::Configure))?;
        let opening = builders.into_iter().zip(held).zip(found);
        let opening = opening.map(|((builder, held), info)| builder.open_found(held, info));
        stream::iter(opening).buffered(CREATED_AT_ONCE).try_collect().await
    }
}
