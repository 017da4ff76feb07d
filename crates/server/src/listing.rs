//! Lists the sequences that a token covers, page by page.
//!
//! In most stores, a cursor is the last name of the page, and the caller may not be allowed to see this
//! name. So only matching names are read, one prefix after the other.

use idmill::store::{Cursor, Page, SequenceInfo};
use idmill::{Result, Sequences};

use crate::access::Pattern;

/// A page of sequences, and the cursor of the next page.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    pub(crate) sequences: Vec<SequenceInfo>,
    pub(crate) next: Option<String>,
    pub(crate) unreadable: usize,
}

/// Lists the sequences that begin with `prefix` and match one of the patterns, from the cursor `after` on.
///
/// # Errors
/// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for a malformed cursor.
pub(crate) async fn page(
    sequences: &Sequences,
    patterns: &[Pattern],
    prefix: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<Rows> {
    let scopes = scopes(patterns, prefix);
    let (first, mut cursor) = after.map_or(Ok((0, None)), begun)?;
    let mut rows = Rows::default();
    for (at, scope) in scopes.iter().enumerate().skip(first) {
        let left = limit.saturating_sub(rows.sequences.len());
        if left == 0 {
            rows.next = Some(format!("{at}."));
            break;
        }
        match scope.beginning() {
            None => rows.sequences.extend(sequences.admin().inspect(scope.text()).await?),
            Some(prefix) => {
                let listing =
                    sequences.admin().list(Page::of(prefix).limit(left).after(cursor.take())).await?;
                rows.sequences.extend(listing.sequences);
                rows.unreadable += listing.unreadable.len();
                if let Some(next) = listing.next {
                    rows.next = Some(format!("{at}.{}", next.as_str()));
                    break;
                }
            }
        }
    }
    Ok(rows)
}

/// Splits a cursor into the index of its scope and the store's own cursor.
fn begun(cursor: &str) -> Result<(usize, Option<Cursor>)> {
    let parts = cursor.split_once('.').and_then(|(at, rest)| Some((at.parse().ok()?, rest)));
    let (at, rest) = parts.ok_or_else(|| {
        idmill::Error::invalid("`after` is not a cursor of this server; use the `after` of the previous page")
    })?;
    Ok((at, Some(rest).filter(|rest| !rest.is_empty()).map(Cursor::new)))
}

/// Returns disjoint patterns that cover the matching names, in the order of names.
fn scopes(patterns: &[Pattern], prefix: &str) -> Vec<Pattern> {
    let mut all: Vec<_> = patterns.iter().filter_map(|pattern| pattern.within(prefix)).collect();
    all.sort_by_cached_key(|scope| (scope.text().to_owned(), scope.beginning().is_none()));
    // After the sort, the patterns that a prefix covers directly follow that prefix.
    all.dedup_by(|later, kept| kept.matches(later.text()));
    all
}

#[cfg(test)]
mod tests {
    use idmill::store::{Bounds, Listing, MemoryStore, Store};

    use super::*;

    fn patterns(texts: &[&str]) -> Vec<Pattern> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn overlapping_patterns_read_each_name_once() {
        let of = |texts: &[&str], prefix| {
            scopes(&patterns(texts), prefix).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(of(&["*"], ""), ["*"]);
        assert_eq!(of(&["*", "shop.*", "orders"], "s"), ["s*"]);
        assert_eq!(
            of(&["shop.eu.*", "users", "shop.*", "orders", "shop.eu.a", "users"], ""),
            ["orders", "shop.*", "users"]
        );
        assert_eq!(of(&["shop.*", "shops", "orders"], "shop"), ["shop.*", "shops"]);
        assert_eq!(of(&["shop.*", "orders"], "shop.eu"), ["shop.eu*"]);
        assert!(of(&["shop.*", "orders"], "users").is_empty());
    }

    /// A store that lists two unreadable rows for each prefix.
    #[derive(Debug)]
    struct Unreadable(MemoryStore);

    impl Store for Unreadable {
        idmill::store_calls!(|this| this.0 => capabilities reserve create inspect set remove);

        fn list<'a>(&'a self, page: &'a Page) -> idmill::store::StoreFuture<'a, Result<Listing>> {
            let mut listing = Listing::new(Vec::new(), None);
            for at in 0..2 {
                listing.add(format!("{}{at}", page.prefix), Err(idmill::Error::invalid("no number")));
            }
            Box::pin(async { Ok(listing) })
        }
    }

    #[tokio::test]
    async fn unreadable_rows_of_all_patterns_are_counted() {
        let sequences = Sequences::new(Unreadable(MemoryStore::new())).unwrap();
        let rows = page(&sequences, &patterns(&["a*", "b*", "c*"]), "", None, 9).await.unwrap();
        assert_eq!((rows.unreadable, rows.sequences.len()), (6, 0));
    }

    /// For every page size, each name is listed once, and no cursor contains a hidden name.
    #[tokio::test]
    async fn pages_and_cursors_show_only_permitted_names() {
        let store = MemoryStore::new();
        let names = [
            "orders",
            "secret",
            "shop",
            "shop.a",
            "shop.b",
            "shop.c",
            "shop2",
            "users",
            "users.secret",
            "z.1",
            "z.2",
        ];
        for name in names {
            store.create(&name.parse().unwrap(), Bounds::new(1, 9).unwrap()).await.unwrap();
        }
        let sequences = Sequences::new(store).unwrap();
        let patterns = patterns(&["shop.*", "orders", "users", "none", "z.*"]);
        for limit in 1..9 {
            let (mut seen, mut after) = (Vec::new(), None);
            loop {
                let rows = page(&sequences, &patterns, "", after.as_deref(), limit).await.unwrap();
                assert!(rows.sequences.len() <= limit);
                seen.extend(rows.sequences.iter().map(|info| info.name.to_string()));
                after = rows.next;
                let Some(cursor) = &after else { break };
                let name = cursor.split_once('.').unwrap().1;
                assert!(name.is_empty() || patterns.iter().any(|pattern| pattern.matches(name)), "{cursor}");
            }
            assert_eq!(seen, ["orders", "shop.a", "shop.b", "shop.c", "users", "z.1", "z.2"]);
        }
        for none in ["", "shop.a", "-1.x", "x.y"] {
            assert!(page(&sequences, &patterns, "", Some(none), 9).await.is_err(), "{none}");
        }
        assert!(page(&sequences, &patterns, "", Some("99.x"), 9).await.unwrap().sequences.is_empty());
    }
}
