//! A store that does not create sequences.

use std::slice;
use std::sync::Arc;

use idmill::SequenceName;
use idmill::store::{Bounds, Grant, Reserve, SequenceInfo, Store, StoreFuture, already_exists};
use idmill::{Error, ErrorKind, Result};

/// A store whose sequences must exist before they are used. A mistyped name fails with
/// [`NotFound`](ErrorKind::NotFound) and creates no sequence. All calls except reserves and `create` are
/// unchanged.
///
/// In URLs that `idmill-url` parses, the option is `existing=true`.
///
/// ```
/// # async fn demo() -> idmill::Result<()> {
/// use idmill::Sequences;
/// use idmill::store::MemoryStore;
/// use idmill_kit::Existing;
///
/// let ids = Sequences::new(Existing::of(MemoryStore::new()))?;
/// let orders = ids.sequence::<u64>("orders").await?; // fails, unless it was created before
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Existing(Arc<dyn Store>);

impl Existing {
    /// Wraps a store.
    pub fn of(store: impl Store + 'static) -> Self {
        Self(Arc::new(store))
    }
}

/// Returns the request without permission to create the sequence.
fn demanding(request: &Reserve) -> Reserve {
    request.clone().create(None)
}

/// Replaces `NotFound` by a clearer error for sequences that do not exist and that the caller would have
/// created. If a table or file is missing, the store's own error is kept.
async fn explain(store: &dyn Store, requests: &[Reserve], granted: &mut [Result<Grant>]) {
    let is_missing =
        |granted: &Result<Grant>| matches!(granted, Err(error) if error.kind() == ErrorKind::NotFound);
    let (names, missing): (Vec<_>, Vec<_>) = (requests.iter().zip(granted))
        .filter(|(request, granted)| request.create.is_some() && is_missing(granted))
        .map(|(request, granted)| (request.name.clone(), granted))
        .unzip();
    if names.is_empty() {
        return;
    }
    for ((name, granted), found) in names.iter().zip(missing).zip(store.inspect_many(&names).await) {
        if matches!(found, Ok(None)) {
            *granted = Err(absent(name));
        }
    }
}

fn absent(name: &SequenceName) -> Error {
    let message =
        "no such sequence, and none is created on its first use; correct the name, or create it first";
    Error::new(ErrorKind::NotFound, message).of(name)
}

impl Existing {
    async fn try_reserve(&self, request: &Reserve) -> Result<Grant> {
        let mut granted = [self.0.reserve(&demanding(request)).await];
        explain(&*self.0, slice::from_ref(request), &mut granted).await;
        let [granted] = granted;
        granted
    }

    async fn try_create(&self, name: &SequenceName, _: Bounds) -> Result<SequenceInfo> {
        match self.0.inspect(name).await? {
            Some(_) => Err(already_exists(name)),
            None => Err(absent(name)),
        }
    }
}

impl Store for Existing {
    idmill::store_calls!(|this| this.0 =>
        capabilities give_back give_back_many inspect inspect_many list set remove server record swap_record
        list_records);

    fn reserve_many<'a>(&'a self, requests: &'a [Reserve]) -> StoreFuture<'a, Vec<Result<Grant>>> {
        Box::pin(async move {
            let demanding: Vec<_> = requests.iter().map(demanding).collect();
            let mut granted = self.0.reserve_many(&demanding).await;
            explain(&*self.0, requests, &mut granted).await;
            granted
        })
    }

    idmill::store_calls!(reserve create);
}

#[cfg(test)]
mod tests {
    use super::*;
    use idmill::store::MemoryStore;
    use idmill::{Operation, Sequences};

    #[tokio::test]
    async fn a_name_that_is_mistyped_begins_no_sequence() {
        let memory = MemoryStore::new();
        let name = SequenceName::new("orders").unwrap();
        memory.create(&name, Bounds::of::<u64>()).await.unwrap();
        let ids = Sequences::new(Existing::of(memory.clone())).unwrap();
        assert_eq!(ids.sequence::<u64>("orders").await.unwrap().next().await.unwrap(), 1);
        let opened = ids.sequence::<u64>("odrers").await.unwrap_err();
        assert_eq!(opened.kind(), ErrorKind::NotFound, "{opened}");
        assert!(opened.to_string().contains("none is created"), "{opened}");
        let drawn = ids.sequence::<u64>("odrers").lazy().unwrap().next().await.unwrap_err();
        assert_eq!(drawn.kind(), ErrorKind::NotFound, "{drawn}");
        assert_eq!(memory.list_all().await.unwrap().len(), 1);
    }

    #[tokio::test]
    async fn only_missing_sequences_of_a_batch_are_explained() {
        let memory = MemoryStore::new();
        let (known, missing) =
            ("orders".parse::<SequenceName>().unwrap(), "odrers".parse::<SequenceName>().unwrap());
        memory.create(&known, Bounds::of::<u64>()).await.unwrap();
        let request = |name: &SequenceName, bounds| Reserve::new(name.clone(), 1).create(bounds);
        let bounds = Bounds::of::<u64>();
        let requests =
            [request(&missing, Some(bounds)), request(&known, Some(bounds)), request(&missing, None)];
        let granted = Existing::of(memory).reserve_many(&requests).await;
        assert!(granted[1].is_ok());
        let says = |at: usize| granted[at].as_ref().unwrap_err().to_string().contains("none is created");
        assert_eq!((says(0), says(2)), (true, false), "the last request does not ask for a creation");
    }

    #[tokio::test]
    async fn create_is_rejected_whether_or_not_the_sequence_exists() {
        let memory = MemoryStore::new();
        let [known, missing] = ["orders", "odrers"].map(|name| SequenceName::new(name).unwrap());
        memory.create(&known, Bounds::of::<u64>()).await.unwrap();
        let store = Existing::of(memory.clone());
        let exists = store.create(&known, Bounds::of::<u64>()).await.unwrap_err();
        assert_eq!((exists.kind(), exists.operation()), (ErrorKind::AlreadyExists, Some(Operation::Create)));
        let absent = store.create(&missing, Bounds::of::<u64>()).await.unwrap_err();
        let message = "create `odrers`: no such sequence, and none is created on its first use; correct the name, or create \
                       it first";
        assert_eq!((absent.kind(), absent.to_string().as_str()), (ErrorKind::NotFound, message));
        assert_eq!(memory.list_all().await.unwrap().len(), 1);
    }
}
