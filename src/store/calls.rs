//! The calls of a store whose work is in methods of its own, named `try_…`.

/// The named calls of [`Store`](super::Store): each boxes the method of its name with `try_` before it, and
/// has its errors say what was being done to which sequence.
macro_rules! calls {
    ($($call:ident)*) => {
        $($crate::store::calls::call!($call);)*
    };
}

macro_rules! call {
    (reserve) => {
        fn reserve<'a>(
            &'a self,
            request: &'a $crate::store::Reserve,
        ) -> $crate::store::StoreFuture<'a, $crate::Result<$crate::store::Grant>> {
            $crate::store::calls::boxed!(self.try_reserve(request), &request.name, Reserve)
        }
    };
    (give_back) => {
        fn give_back<'a>(
            &'a self,
            back: &'a $crate::store::GiveBack,
        ) -> $crate::store::StoreFuture<'a, $crate::Result<bool>> {
            $crate::store::calls::boxed!(self.try_give_back(back), &back.name, GiveBack)
        }
    };
    (create) => {
        fn create<'a>(
            &'a self,
            name: &'a $crate::SequenceName,
            bounds: $crate::store::Bounds,
        ) -> $crate::store::StoreFuture<'a, $crate::Result<$crate::store::SequenceInfo>> {
            $crate::store::calls::boxed!(self.try_create(name, bounds), name, Create)
        }
    };
    (inspect) => {
        fn inspect<'a>(
            &'a self,
            name: &'a $crate::SequenceName,
        ) -> $crate::store::StoreFuture<'a, $crate::Result<Option<$crate::store::SequenceInfo>>> {
            $crate::store::calls::boxed!(self.try_inspect(name), name, Inspect)
        }
    };
    (list) => {
        fn list<'a>(
            &'a self,
            page: &'a $crate::store::Page,
        ) -> $crate::store::StoreFuture<'a, $crate::Result<$crate::store::Listing>> {
            Box::pin(async move {
                self.try_list(page).await.map_err(|error| error.during($crate::error::Operation::List))
            })
        }
    };
    (set) => {
        fn set<'a>(
            &'a self,
            name: &'a $crate::SequenceName,
            change: $crate::store::Change,
        ) -> $crate::store::StoreFuture<'a, $crate::Result<$crate::store::SequenceInfo>> {
            $crate::store::calls::boxed!(self.try_set(name, change), name, Set)
        }
    };
    (remove) => {
        fn remove<'a>(
            &'a self,
            name: &'a $crate::SequenceName,
        ) -> $crate::store::StoreFuture<'a, $crate::Result<bool>> {
            $crate::store::calls::boxed!(self.try_remove(name), name, Remove)
        }
    };
}

macro_rules! boxed {
    ($store:ident.$method:ident($($argument:expr),*), $name:expr, $operation:ident) => {
        Box::pin(async move {
            let outcome = $store.$method($($argument),*).await;
            outcome.map_err(|error| error.of($name).during($crate::error::Operation::$operation))
        })
    };
}

pub(crate) use {boxed, call, calls};
