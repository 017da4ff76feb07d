//! The stores and windows that URLs name.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use idmill::store::{SequenceInfo, Store, StoreFuture};
use idmill::{Error, Result, SequenceName};

use crate::column::{self, ColumnPath, Largest};

/// A store named by a URL: validated, but not yet connected. A store's options implement `Target` and
/// `FromStr`, which parses the URL; see [`Scheme::store`](crate::Scheme::store).
///
/// `Display` prints a URL that parses to the same value, except for the password, which it must not show.
pub trait Target: fmt::Debug + fmt::Display + Send + Sync {
    /// Returns the scheme, in lower case.
    fn scheme(&self) -> &'static str;

    /// Returns the file of the store; `None`, the default, if the store is not a single file.
    fn file(&self) -> Option<&Path> {
        None
    }

    /// Returns the same store in a mode that creates nothing. Opening a missing table or file fails with
    /// [`NotFound`](idmill::ErrorKind::NotFound).
    fn existing(&self) -> Arc<dyn Target>;

    /// Returns whether opening the store waits for another machine or process, which may never reply. The
    /// default is `true`.
    fn is_remote(&self) -> bool {
        true
    }

    /// Returns the statement that creates the store's table, for use in migrations; `None`, the default, if
    /// there is no such statement.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for an invalid table name.
    fn ddl(&self) -> Result<Option<String>> {
        Ok(None)
    }

    /// Reads the largest id in a column of a user's table in the same database. Requires no idmill table, and
    /// creates nothing.
    ///
    /// # Errors
    /// [`NotFound`](idmill::ErrorKind::NotFound) if there is no such column;
    /// [`Unsupported`](idmill::ErrorKind::Unsupported) if it does not hold integers. The default always
    /// returns `Unsupported`.
    fn largest<'a>(&'a self, path: &'a ColumnPath) -> StoreFuture<'a, Result<Largest>> {
        let _ = path;
        Box::pin(async { Err(column::unreadable(self.scheme())) })
    }

    /// Describes other objects of the same database that have the name of the store's table but are not used
    /// by this URL. Clients with other settings may draw from these objects. Returns `None` if there are
    /// none, which is the default. Creates nothing.
    ///
    /// # Errors
    /// Those of reading.
    fn lookalikes(&self) -> StoreFuture<'_, Result<Option<String>>> {
        Box::pin(async { Ok(None) })
    }

    /// Returns the sequences whose next reserve the store would reject, each with the error, about one page
    /// at most. These sequences were last written in another [history](crate::history). Read-only. The
    /// default returns none, for stores that never reject such a reserve, or detect the history only in a
    /// reserve.
    ///
    /// # Errors
    /// Those of reading.
    fn refused(&self) -> StoreFuture<'_, Result<Vec<(SequenceName, Error)>>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Returns the statement that creates the table of records, for use in migrations; `None`, the default,
    /// if there is none. If the store may create tables, it runs the statement before it writes the first
    /// record.
    ///
    /// # Errors
    /// As [`ddl`](Self::ddl).
    fn witness_ddl(&self) -> Result<Option<String>> {
        Ok(None)
    }

    /// Opens the store.
    fn connect(&self) -> StoreFuture<'_, Result<Arc<dyn Store>>>;
}

/// Implements the required methods of a [`Target`]: `|options| SCHEME => Store::open`. `Store::open` is an
/// `async fn(options: Self) -> Result<Store>`, where `Self` is the type of the options. This type must be
/// `Clone`. Add `, existing CHANGE` if opening may create something; CHANGE must turn the creation off in
/// `options`.
#[macro_export]
macro_rules! target {
    (|$options:ident| $scheme:expr => $open:path $(, existing $change:expr)?) => {
        fn scheme(&self) -> &'static str {
            let $options = self;
            let _ = $options;
            $scheme
        }

        fn existing(&self) -> ::std::sync::Arc<dyn $crate::Target> {
            #[allow(unused_mut)]
            let mut $options = self.clone();
            $($change;)?
            ::std::sync::Arc::new($options)
        }

        fn connect(
            &self,
        ) -> $crate::idmill::store::StoreFuture<
            '_,
            $crate::idmill::Result<::std::sync::Arc<dyn $crate::idmill::store::Store>>,
        > {
            Box::pin(async {
                let store: ::std::sync::Arc<dyn $crate::idmill::store::Store> =
                    ::std::sync::Arc::new($open(self.clone()).await?);
                Ok(store)
            })
        }
    };
}

/// A [window](crate::WindowTarget) on a cache, from the option `window=URL`: validated, but not yet
/// connected. See [`Scheme::window`](crate::Scheme::window).
///
/// `Display` prints a URL that parses to the same value, except for the password, which it must not show.
pub trait WindowTarget: fmt::Debug + fmt::Display + Send + Sync {
    /// Puts the window in front of a store. The first draw connects to the cache. Reading sequences needs no
    /// cache.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for unusable options.
    fn before(&self, store: Arc<dyn Store>) -> Result<Arc<dyn Store>>;

    /// Returns a read-only view of the window; `None`, the default, if this is not supported. The first read
    /// connects to the cache.
    ///
    /// # Errors
    /// As [`before`](Self::before).
    fn view(&self) -> Result<Option<Arc<dyn WindowView>>> {
        Ok(None)
    }
}

/// A read-only view of a window.
pub trait WindowView: fmt::Debug + Send + Sync {
    /// Returns one past the last id of this sequence and identity that was put into the window. Returns
    /// `None` if no ids were put into the window, or if the cache lost them. The store has granted all
    /// earlier ids, unless it was restored to an older state. Read-only.
    ///
    /// # Errors
    /// [`Unavailable`](idmill::ErrorKind::Unavailable) if the cache does not reply; a permanent kind if a
    /// retry cannot help.
    fn end<'a>(&'a self, sequence: &'a SequenceInfo) -> StoreFuture<'a, Result<Option<u128>>>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use idmill::ErrorKind;
    use idmill::store::MemoryStore;

    /// A store and a window with only the required methods.
    #[derive(Clone, Debug)]
    struct Plain;

    impl fmt::Display for Plain {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("plain:")
        }
    }

    impl Target for Plain {
        crate::target!(|plain| "plain" => open);
    }

    async fn open(_: Plain) -> Result<MemoryStore> {
        Ok(MemoryStore::new())
    }

    impl WindowTarget for Plain {
        fn before(&self, store: Arc<dyn Store>) -> Result<Arc<dyn Store>> {
            Ok(store)
        }
    }

    #[tokio::test]
    async fn optional_methods_have_their_documented_defaults() {
        assert_eq!((Plain.scheme(), Plain.file(), Plain.is_remote()), ("plain", None, true));
        assert_eq!((Plain.ddl().unwrap(), Plain.witness_ddl().unwrap()), (None, None));
        assert_eq!(Plain.lookalikes().await.unwrap(), None);
        assert!(Plain.refused().await.unwrap().is_empty());
        assert!(Plain.view().unwrap().is_none());
        let column = Plain.largest(&"t.c".parse().unwrap()).await.unwrap_err();
        let message = "cannot read columns of `plain:`; use SQLite, PostgreSQL, MySQL, MariaDB or MongoDB";
        assert_eq!((column.kind(), column.to_string().as_str()), (ErrorKind::Unsupported, message));
        assert_eq!(Plain.existing().to_string(), "plain:");
        assert_eq!(Plain.connect().await.unwrap().list_all().await.unwrap(), []);
    }
}
