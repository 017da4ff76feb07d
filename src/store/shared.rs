//! Implements `Store` for an `Arc` of a store.

use std::sync::Arc;

use super::Store;

/// Forwards all calls, including the provided ones: the store may override them.
impl<S: Store + ?Sized> Store for Arc<S> {
    crate::store_calls!(|this| **this =>
        capabilities reserve reserve_many give_back create inspect inspect_many list list_all set remove
        server record swap_record list_records);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Result;
    use crate::name::SequenceName;
    use crate::sequences::Sequences;
    use crate::store::{Bounds, GiveBack, MemoryStore, Reserve};

    /// A batch through an `Arc` is one round trip, not the provided default.
    async fn is_the_store_itself(store: impl Store, memory: &MemoryStore) {
        let name = SequenceName::new("orders").unwrap();
        let request = Reserve { name, count: 5, ceiling: 100, create: Some(Bounds::of::<u64>()) };
        let before = memory.reserves();
        let grants = store.reserve_many(&[request.clone(), request.clone()]).await;
        assert!(grants.iter().all(Result::is_ok));
        assert_eq!(memory.reserves(), before + 1);
        let last = grants.into_iter().next_back().unwrap().unwrap();
        let back = GiveBack { name: request.name, identity: last.identity, rest: last.range };
        assert!(store.give_back(&back).await.unwrap());
        assert_eq!(store.capabilities(), memory.capabilities());
    }

    #[tokio::test]
    async fn an_arc_of_a_store_is_that_store() {
        let memory = MemoryStore::new();
        is_the_store_itself(Arc::new(memory.clone()), &memory).await;
        is_the_store_itself(Arc::new(memory.clone()) as Arc<dyn Store>, &memory).await;
    }

    #[tokio::test]
    async fn sequences_accept_any_form_of_store() {
        let memory = MemoryStore::new();
        let shared: Arc<dyn Store> = Arc::new(memory.clone());
        let all = [
            Sequences::new(memory.clone()),
            Sequences::new(Arc::new(memory.clone())),
            Sequences::new(shared),
        ];
        let mut kept = Vec::new();
        for (ids, first) in all.into_iter().zip([1, 11, 21]) {
            let orders = ids.unwrap().sequence::<u64>("orders").step(10).watermark(0).await.unwrap();
            assert_eq!(orders.next().await.unwrap(), first);
            // On drop, its ids would go back.
            kept.push(orders);
        }
        assert_eq!(memory.requests(), 3);
    }
}
