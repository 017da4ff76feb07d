//! What URLs name.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use idmill::store::{SequenceInfo, Store, StoreFuture};
use idmill::{Error, Result, SequenceName};

use crate::column::{self, ColumnPath, Largest};

/// What a URL names: a store, checked but not yet connected to. The options of a store implement it, and
/// `FromStr`, by which a URL is read; see [`Scheme::store`](crate::Scheme::store).
///
/// `Display` gives a URL that reads back as the same, except for a password, which must not be shown.
pub trait Target: fmt::Debug + fmt::Display + Send + Sync {
    /// The scheme, in lower case.
    fn scheme(&self) -> &'static str;

    /// The file that the store is kept in; `None` for a store that is not one file.
    fn file(&self) -> Option<&Path> {
        None
    }

    /// The same store, but opening it creates nothing: what does not exist is
    /// [`NotFound`](idmill::ErrorKind::NotFound).
    fn existing(&self) -> Arc<dyn Target>;

    /// Whether opening it waits for another machine or process, which may never answer.
    fn is_remote(&self) -> bool {
        true
    }

    /// The statement that creates the table of the store, for those who create tables by migrations of their
    /// own; `None` for a store that has no table to create.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for a table that cannot be.
    fn ddl(&self) -> Result<Option<String>> {
        Ok(None)
    }

    /// Looks for the largest id in a column of the user's own, in the same database. Needs no table of
    /// idmill's, and creates nothing.
    ///
    /// # Errors
    /// [`NotFound`](idmill::ErrorKind::NotFound) if there is no such column;
    /// [`Unsupported`](idmill::ErrorKind::Unsupported) if it holds no integers, or if this database's columns
    /// cannot be read, which is the default.
    fn largest<'a>(&'a self, path: &'a ColumnPath) -> StoreFuture<'a, Result<Largest>> {
        let _ = path;
        Box::pin(async { Err(column::unreadable(self.scheme())) })
    }

    /// What else the same database has under the name of the store, in words, although this URL does not lead
    /// there: whoever connects with other settings may draw from it. `None` if there is nothing, which is the
    /// default. Creates nothing.
    ///
    /// # Errors
    /// Those of reading.
    fn lookalikes(&self) -> StoreFuture<'_, Result<Option<String>>> {
        Box::pin(async { Ok(None) })
    }

    /// The sequences whose next reserve the store would refuse, each with the error of the refusal: they were
    /// last written in another [history](crate::history). At most a page of them. Reads, and changes
    /// nothing. None, by default: a store that never refuses, or cannot tell before a reserve.
    ///
    /// # Errors
    /// Those of reading.
    fn refused(&self) -> StoreFuture<'_, Result<Vec<(SequenceName, Error)>>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// The statement that creates the table of the store's records, for the same; `None` for a store that has
    /// none to create. The store runs it before it writes the first record, where it may create tables.
    ///
    /// # Errors
    /// As [`ddl`](Self::ddl).
    fn witness_ddl(&self) -> Result<Option<String>> {
        Ok(None)
    }

    /// Opens the store.
    fn connect(&self) -> StoreFuture<'_, Result<Arc<dyn Store>>>;
}

/// The methods of a [`Target`] that most options have alike: `|options| SCHEME => Store::open`, and
/// `, existing CHANGE` where opening may create something, which CHANGE of `options` forbids.
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

/// What the option `window=URL` names: a [window](crate::WindowTarget) on a cache, checked but not yet connected to.
/// See [`Scheme::window`](crate::Scheme::window).
///
/// `Display` gives a URL that reads back as the same, except for a password, which must not be shown.
pub trait WindowTarget: fmt::Debug + fmt::Display + Send + Sync {
    /// Puts the window in front of a store. Does not connect to the cache, since the first draw does: looking
    /// at sequences needs no cache.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for options that cannot be used.
    fn before(&self, store: Arc<dyn Store>) -> Result<Arc<dyn Store>>;

    /// Looks at the window from outside; `None` if that cannot be done, which is the default. Does not
    /// connect to the cache, since the first look does.
    ///
    /// # Errors
    /// As [`before`](Self::before).
    fn view(&self) -> Result<Option<Arc<dyn WindowView>>> {
        Ok(None)
    }
}

/// A window that is only looked at.
pub trait WindowView: fmt::Debug + Send + Sync {
    /// How far the window goes: one past the last id that was put into it of this sequence, as its identity
    /// is here; `None` if there is nothing. The store has granted all ids before it, unless it went back in
    /// time. Changes nothing.
    ///
    /// # Errors
    /// [`Unavailable`](idmill::ErrorKind::Unavailable) while the cache does not answer, and permanent kinds
    /// for what does not pass by itself.
    fn end<'a>(&'a self, sequence: &'a SequenceInfo) -> StoreFuture<'a, Result<Option<u128>>>;
}
