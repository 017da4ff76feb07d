//! Fills pages of sequences and pages of records in the same way.

use idmill::Result;
use idmill::store::{Cursor, Listing, Page, Records, SequenceInfo};

use super::paging::is_full;

/// A page that is filled row by row: [`Listing`] or [`Records`].
pub trait Fill: Sized {
    /// The value stored under a name.
    type Row;

    /// Creates an empty page. `next` is the start of the next page; `None` if this is the last.
    fn empty(next: Option<Cursor>) -> Self;

    /// Adds the row stored under this name, or the reason why it is invalid.
    fn add(&mut self, name: &str, row: Result<Self::Row>);

    /// Creates a page of these rows.
    fn of<N: AsRef<str>>(
        next: Option<Cursor>,
        rows: impl IntoIterator<Item = (N, Result<Self::Row>)>,
    ) -> Self {
        let mut page = Self::empty(next);
        rows.into_iter().for_each(|(name, row)| page.add(name.as_ref(), row));
        page
    }

    /// Creates a page of rows that were read in the order of their names, at most
    /// [`limit`](idmill::store::Page::limit) many. If the page is full, the cursor of the next page is the
    /// name of the last row, and the next call must read the rows after this name.
    fn by_name(page: &Page, rows: Vec<(String, Result<Self::Row>)>) -> Self {
        let last = rows.last().filter(|_| is_full(page, rows.len()));
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
                // This calls the page's inherent method, not this trait method.
                self.add(name, row);
            }
        }
    };
}

fill!(Listing of SequenceInfo);
fill!(Records of String);

#[cfg(test)]
mod tests {
    use super::*;
    use idmill::store::{Bounds, SequenceInfo};
    use idmill::{Error, ErrorKind, SequenceName};

    fn rows(names: &[&str]) -> Vec<(String, Result<SequenceInfo>)> {
        let info = |name: &str| SequenceInfo::new(SequenceName::new(name).unwrap(), Bounds::of::<u64>());
        names.iter().map(|name| ((*name).to_owned(), Ok(info(name)))).collect()
    }

    #[test]
    fn full_page_continues_after_its_last_row() {
        for (limit, next) in [(1, Some("b")), (2, Some("b")), (3, None)] {
            let page = Listing::by_name(&Page::default().limit(limit), rows(&["a", "b"]));
            assert_eq!(page.next, next.map(Cursor::new), "{limit}");
            let names: Vec<_> = page.sequences.iter().map(|info| info.name.as_str()).collect();
            assert_eq!(names, ["a", "b"]);
        }
        assert_eq!(Listing::by_name(&Page::default(), rows(&[])).next, None);
    }

    #[test]
    fn invalid_row_is_listed_with_its_reason() {
        let bad = Error::new(ErrorKind::StoreViolation, "has no max");
        let records = [("a", Ok("text".to_owned())), ("b", Err(bad))];
        let page = Records::of(Some(Cursor::new("x")), records);
        assert_eq!(page.next, Some(Cursor::new("x")));
        assert_eq!(page.records, [(SequenceName::new("a").unwrap(), "text".to_owned())]);
        assert_eq!((page.unreadable.len(), page.unreadable[0].name.as_str()), (1, "b"));
    }
}
