//! The trait `Store`, for whoever has the calls and an executor.

/// Implements [`Store`](idmill::store::Store) for a type of an adapter with the fields `calls`, the
/// [`Calls`](crate::postgres::Calls), and `sessions`, of which a reference is an
/// [`Executor`](crate::Executor).
#[macro_export]
macro_rules! postgres_store {
    ($store:ident) => {
        impl $store {
            async fn try_reserve(
                &self,
                request: &::idmill::store::Reserve,
            ) -> ::idmill::Result<::idmill::store::Grant> {
                self.calls.reserve(&mut &self.sessions, request).await
            }

            async fn try_give_back(&self, back: &::idmill::store::GiveBack) -> ::idmill::Result<bool> {
                self.calls.give_back(&mut &self.sessions, back).await
            }

            async fn try_create(
                &self,
                name: &::idmill::SequenceName,
                bounds: ::idmill::store::Bounds,
            ) -> ::idmill::Result<::idmill::store::SequenceInfo> {
                self.calls.create(&mut &self.sessions, name, bounds).await
            }

            async fn try_inspect(
                &self,
                name: &::idmill::SequenceName,
            ) -> ::idmill::Result<Option<::idmill::store::SequenceInfo>> {
                self.calls.inspect(&mut &self.sessions, name).await
            }

            async fn try_list(
                &self,
                page: &::idmill::store::Page,
            ) -> ::idmill::Result<::idmill::store::Listing> {
                self.calls.list(&mut &self.sessions, page).await
            }

            async fn try_set(
                &self,
                name: &::idmill::SequenceName,
                change: ::idmill::store::Change,
            ) -> ::idmill::Result<::idmill::store::SequenceInfo> {
                self.calls.set(&mut &self.sessions, name, change).await
            }

            async fn try_remove(&self, name: &::idmill::SequenceName) -> ::idmill::Result<bool> {
                self.calls.remove(&mut &self.sessions, name).await
            }

            async fn try_server(&self) -> ::idmill::Result<Option<String>> {
                $crate::postgres::server(&mut &self.sessions).await
            }

            async fn try_record(&self, name: &::idmill::SequenceName) -> ::idmill::Result<Option<String>> {
                self.calls.record(&mut &self.sessions, name).await
            }

            async fn try_swap_record(
                &self,
                name: &::idmill::SequenceName,
                seen: Option<&str>,
                wanted: &str,
            ) -> ::idmill::Result<bool> {
                self.calls.swap_record(&mut &self.sessions, name, seen, wanted).await
            }

            async fn try_list_records(
                &self,
                page: &::idmill::store::Page,
            ) -> ::idmill::Result<::idmill::store::Records> {
                self.calls.list_records(&mut &self.sessions, page).await
            }
        }

        impl ::idmill::store::Store for $store {
            fn capabilities(&self) -> ::idmill::store::Capabilities {
                $crate::postgres::CAPABILITIES
            }

            fn reserve_many<'a>(
                &'a self,
                requests: &'a [::idmill::store::Reserve],
            ) -> ::idmill::store::StoreFuture<'a, Vec<::idmill::Result<::idmill::store::Grant>>> {
                Box::pin(async move { self.calls.reserve_many(&&self.sessions, requests).await })
            }

            ::idmill::store_calls!(
                reserve give_back create inspect list set remove server record swap_record list_records
            );
        }

        /// Neither the options nor the pool, which hold a password.
        impl ::std::fmt::Debug for $store {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.debug_struct(stringify!($store)).field("table", &self.calls.table().sql()).finish_non_exhaustive()
            }
        }
    };
}
