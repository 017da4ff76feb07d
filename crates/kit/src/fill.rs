//! Pages of sequences and pages of records, which a store fills alike.

use idmill::Result;
use idmill::store::{Cursor, Listing, Page, Records, SequenceInfo};

/// A page that is filled row by row: [`Listing`] or [`Records`].
pub trait Fill: Sized {
    /// What is stored under a name.
    type Row;

    /// A page without rows, and where the next one begins; `None` if it is the last.
    fn empty(next: Option<Cursor>) -> Self;

    /// Adds what was read under this name, or what is wrong with it.
    fn add(&mut self, name: &str, row: Result<Self::Row>);

    /// A page of these rows.
    fn of<N: AsRef<str>>(
        next: Option<Cursor>,
        rows: impl IntoIterator<Item = (N, Result<Self::Row>)>,
    ) -> Self {
        let mut page = Self::empty(next);
        rows.into_iter().for_each(|(name, row)| page.add(name.as_ref(), row));
        page
    }

    /// A page of these rows, which were read by name. If there are as many as were asked for, the next page
    /// begins after the last of them.
    fn by_name(page: &Page, rows: Vec<(String, Result<Self::Row>)>) -> Self {
        let last = rows.last().filter(|_| rows.len() >= page.limit.max(1));
        Self::of(last.map(|(name, _)| Cursor::new(name.as_str())), rows)
    }
}

macro_rules! fill {
    ($page:ident of $row:ty) => {
        impl Fill for $page {
            type Row = $row;

            fn empty(next: Option<Cursor>) -> Self {
                Self::new(Vec::new(), next)
            }

            fn add(&mut self, name: &str, row: Result<$row>) {
                // The page's own method.
                self.add(name, row);
            }
        }
    };
}

fill!(Listing of SequenceInfo);
fill!(Records of String);
