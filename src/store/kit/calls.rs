//! The calls of a store whose work is in methods of its own, named `try_…`.

/// The calls of [`Store`](crate::store::Store) that are named here. Each boxes the store's own method of that
/// name with `try_` before it, and its errors say what was being done, and to which sequence.
///
/// ```ignore
/// impl Store for ToyStore {
///     fn capabilities(&self) -> Capabilities { /* … */ }
///     // From `async fn try_reserve(&self, request: &Reserve) -> Result<Grant>`, and so on.
///     idmill::store_calls!(reserve give_back create inspect list set remove);
/// }
/// ```
#[macro_export]
macro_rules! store_calls {
    ($($call:ident)*) => {
        $($crate::store_call!($call);)*
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! store_call {
    (reserve) => {
        fn reserve<'a>(
            &'a self,
            request: &'a $crate::store::Reserve,
        ) -> $crate::store::StoreFuture<'a, $crate::Result<$crate::store::Grant>> {
            $crate::store_call!(@boxed self.try_reserve(request), &request.name, Reserve)
        }
    };
    (give_back) => {
        fn give_back<'a>(
            &'a self,
            back: &'a $crate::store::GiveBack,
        ) -> $crate::store::StoreFuture<'a, $crate::Result<bool>> {
            $crate::store_call!(@boxed self.try_give_back(back), &back.name, GiveBack)
        }
    };
    (create) => {
        fn create<'a>(
            &'a self,
            name: &'a $crate::SequenceName,
            bounds: $crate::store::Bounds,
        ) -> $crate::store::StoreFuture<'a, $crate::Result<$crate::store::SequenceInfo>> {
            $crate::store_call!(@boxed self.try_create(name, bounds), name, Create)
        }
    };
    (inspect) => {
        fn inspect<'a>(
            &'a self,
            name: &'a $crate::SequenceName,
        ) -> $crate::store::StoreFuture<'a, $crate::Result<Option<$crate::store::SequenceInfo>>> {
            $crate::store_call!(@boxed self.try_inspect(name), name, Inspect)
        }
    };
    (list) => {
        fn list<'a>(
            &'a self,
            page: &'a $crate::store::Page,
        ) -> $crate::store::StoreFuture<'a, $crate::Result<$crate::store::Listing>> {
            Box::pin(async move {
                self.try_list(page).await.map_err(|error| error.during($crate::Operation::List))
            })
        }
    };
    (set) => {
        fn set<'a>(
            &'a self,
            name: &'a $crate::SequenceName,
            change: $crate::store::Change,
        ) -> $crate::store::StoreFuture<'a, $crate::Result<$crate::store::SequenceInfo>> {
            $crate::store_call!(@boxed self.try_set(name, change), name, Set)
        }
    };
    (remove) => {
        fn remove<'a>(
            &'a self,
            name: &'a $crate::SequenceName,
        ) -> $crate::store::StoreFuture<'a, $crate::Result<bool>> {
            $crate::store_call!(@boxed self.try_remove(name), name, Remove)
        }
    };
    (@boxed $store:ident.$method:ident($($argument:expr),*), $name:expr, $operation:ident) => {
        Box::pin(async move {
            let outcome = $store.$method($($argument),*).await;
            outcome.map_err(|error| error.of($name).during($crate::Operation::$operation))
        })
    };
}
