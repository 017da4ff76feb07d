//! Implements calls of a store by inherent methods or by another store.

/// Implements the listed calls of [`Store`](crate::store::Store).
///
/// Each call boxes the future of the store's own method, whose name has the prefix `try_`. Its errors get the
/// operation and, if there is one, the sequence's name:
///
/// ```ignore
/// impl Store for ToyStore {
///     fn capabilities(&self) -> Capabilities { /* … */ }
///     // From `async fn try_reserve(&self, request: &Reserve) -> Result<Grant>`, and so on.
///     idmill::store_calls!(reserve give_back create inspect list set remove);
/// }
/// ```
///
/// A store that wraps another one can forward calls to it:
///
/// ```ignore
/// idmill::store_calls!(|this| this.inner => give_back create inspect list set remove);
/// ```
#[macro_export]
macro_rules! store_calls {
    (|$this:ident| $inner:expr => $($call:ident)*) => {
        $($crate::store_call!($call (|$this| $inner));)*
    };
    ($($call:ident)*) => {
        $($crate::store_call!($call ());)*
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! store_call {
    (capabilities $to:tt) => {
        fn capabilities(&self) -> $crate::store::Capabilities {
            $crate::store_call!(@body $to self, capabilities())
        }
    };
    (reserve $to:tt) => {
        fn reserve<'a>(
            &'a self,
            request: &'a $crate::store::Reserve,
        ) -> $crate::store::StoreFuture<'a, $crate::Result<$crate::store::Grant>> {
            $crate::store_call!(@body $to self, reserve try_reserve(request) Reserve &request.name)
        }
    };
    (reserve_many $to:tt) => {
        fn reserve_many<'a>(
            &'a self,
            requests: &'a [$crate::store::Reserve],
        ) -> $crate::store::StoreFuture<'a, Vec<$crate::Result<$crate::store::Grant>>> {
            $crate::store_call!(@body $to self, reserve_many(requests))
        }
    };
    (give_back $to:tt) => {
        fn give_back<'a>(
            &'a self,
            back: &'a $crate::store::GiveBack,
        ) -> $crate::store::StoreFuture<'a, $crate::Result<bool>> {
            $crate::store_call!(@body $to self, give_back try_give_back(back) GiveBack &back.name)
        }
    };
    (give_back_many $to:tt) => {
        fn give_back_many<'a>(
            &'a self,
            backs: &'a [$crate::store::GiveBack],
        ) -> $crate::store::StoreFuture<'a, Vec<$crate::Result<bool>>> {
            $crate::store_call!(@body $to self, give_back_many(backs))
        }
    };
    (create $to:tt) => {
        fn create<'a>(
            &'a self,
            name: &'a $crate::SequenceName,
            bounds: $crate::store::Bounds,
        ) -> $crate::store::StoreFuture<'a, $crate::Result<$crate::store::SequenceInfo>> {
            $crate::store_call!(@body $to self, create try_create(name, bounds) Create name)
        }
    };
    (inspect $to:tt) => {
        fn inspect<'a>(
            &'a self,
            name: &'a $crate::SequenceName,
        ) -> $crate::store::StoreFuture<'a, $crate::Result<Option<$crate::store::SequenceInfo>>> {
            $crate::store_call!(@body $to self, inspect try_inspect(name) Inspect name)
        }
    };
    (inspect_many $to:tt) => {
        fn inspect_many<'a>(
            &'a self,
            names: &'a [$crate::SequenceName],
        ) -> $crate::store::StoreFuture<'a, Vec<$crate::Result<Option<$crate::store::SequenceInfo>>>> {
            $crate::store_call!(@body $to self, inspect_many(names))
        }
    };
    (list $to:tt) => {
        fn list<'a>(
            &'a self,
            page: &'a $crate::store::Page,
        ) -> $crate::store::StoreFuture<'a, $crate::Result<$crate::store::Listing>> {
            $crate::store_call!(@body $to self, list try_list(page) List)
        }
    };
    (list_all $to:tt) => {
        fn list_all(
            &self,
        ) -> $crate::store::StoreFuture<'_, $crate::Result<Vec<$crate::store::SequenceInfo>>> {
            $crate::store_call!(@body $to self, list_all())
        }
    };
    (set $to:tt) => {
        fn set<'a>(
            &'a self,
            name: &'a $crate::SequenceName,
            change: $crate::store::Change,
        ) -> $crate::store::StoreFuture<'a, $crate::Result<$crate::store::SequenceInfo>> {
            $crate::store_call!(@body $to self, set try_set(name, change) Set name)
        }
    };
    (remove $to:tt) => {
        fn remove<'a>(
            &'a self,
            name: &'a $crate::SequenceName,
            expected: Option<$crate::store::Identity>,
        ) -> $crate::store::StoreFuture<'a, $crate::Result<bool>> {
            $crate::store_call!(@body $to self, remove try_remove(name, expected) Remove name)
        }
    };
    (server $to:tt) => {
        fn server(&self) -> $crate::store::StoreFuture<'_, $crate::Result<Option<String>>> {
            $crate::store_call!(@body $to self, server try_server() Connect)
        }
    };
    (record $to:tt) => {
        fn record<'a>(
            &'a self,
            name: &'a $crate::SequenceName,
        ) -> $crate::store::StoreFuture<'a, $crate::Result<Option<String>>> {
            $crate::store_call!(@body $to self, record try_record(name) Inspect name)
        }
    };
    (swap_record $to:tt) => {
        fn swap_record<'a>(
            &'a self,
            name: &'a $crate::SequenceName,
            seen: Option<&'a str>,
            wanted: &'a str,
        ) -> $crate::store::StoreFuture<'a, $crate::Result<bool>> {
            $crate::store_call!(@body $to self, swap_record try_swap_record(name, seen, wanted) Set name)
        }
    };
    (list_records $to:tt) => {
        fn list_records<'a>(
            &'a self,
            page: &'a $crate::store::Page,
        ) -> $crate::store::StoreFuture<'a, $crate::Result<$crate::store::Records>> {
            $crate::store_call!(@body $to self, list_records try_list_records(page) List)
        }
    };
    // Forwarded to another store.
    (@body (|$this:ident| $inner:expr) $self:ident,
     $call:ident $($try:ident)? ($($argument:expr),*) $($operation:ident $($name:expr)?)?) => {{
        let $this = $self;
        $inner.$call($($argument),*)
    }};
    // Implemented by an inherent method.
    (@body () $self:ident, $call:ident $try:ident($($argument:expr),*) $operation:ident $($name:expr)?) => {
        Box::pin(async move {
            let outcome = $self.$try($($argument),*).await;
            outcome.map_err(|error| error$(.of($name))?.during($crate::Operation::$operation))
        })
    };
}
