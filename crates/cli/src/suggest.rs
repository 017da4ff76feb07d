//! Finds the sequence that a mistyped name may mean.

use std::time::Duration;

use idmill::store::{Page, Pages, Store};
use strsim::osa_distance as distance;

/// Timeout of the search: a suggestion is not worth a longer wait.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of names to compare, so that the search is fast. With more names, the most similar one may
/// be missed, and a suggestion could be the sequence of another tenant.
const LARGEST: usize = 10_000;

/// Returns the most similar existing name; `None` if none is similar, or the store does not answer in time.
pub(crate) async fn nearest(store: &dyn Store, name: &str) -> Option<String> {
    // First search only names with the same prefix: a large store has too many names.
    let begin: String = name.chars().take(2).collect();
    let among = async |prefix: &str| choose(name, names(store, prefix).await?.iter().map(String::as_str));
    let search = async {
        match among(&begin).await {
            Some(near) => Some(near),
            None => among("").await,
        }
    };
    tokio::time::timeout(TIMEOUT, search).await.ok()?
}

/// Returns the names with this prefix; `None` if there are more than [`LARGEST`].
async fn names(store: &dyn Store, prefix: &str) -> Option<Vec<String>> {
    let (mut names, mut pages) = (Vec::new(), Pages::new(store, Page::of(prefix)));
    while let Some(page) = pages.next().await.ok()? {
        names.extend(page.sequences.iter().map(|info| info.name.to_string()));
        if names.len() > LARGEST {
            return None;
        }
    }
    Some(names)
}

/// Returns the most similar of these names, if one is similar.
pub(crate) fn choose<'a>(name: &str, among: impl Iterator<Item = &'a str>) -> Option<String> {
    // A third of the letters may differ (1 to 3): with a fixed limit, any short name would match.
    let most = (name.chars().count() / 3).clamp(1, 3);
    let ranked = among.filter(|other| *other != name).filter_map(|other| {
        let distance = if other.eq_ignore_ascii_case(name) { 0 } else { distance(name, other) };
        (distance <= most).then_some((distance, other))
    });
    ranked.min().map(|(_, other)| other.to_owned())
}

#[cfg(test)]
mod tests {
    use idmill::store::{Bounds, MemoryStore};

    use super::*;

    #[tokio::test]
    async fn too_many_names_give_no_suggestion() {
        let store = MemoryStore::new();
        let bounds = Bounds::new(1, 9).unwrap();
        for at in 0..=LARGEST {
            store.create(&format!("tenant-{at:05}").parse().unwrap(), bounds).await.unwrap();
        }
        assert_eq!(nearest(&store, "tenant-x0000").await, None, "there may be a more similar name");
        store.remove(&"tenant-00000".parse().unwrap(), None).await.unwrap();
        assert_eq!(nearest(&store, "tenant-10000x").await.as_deref(), Some("tenant-10000"));
    }

    #[test]
    fn distance_counts_differing_letters() {
        for (one, other, count) in [
            ("", "", 0),
            ("", "ab", 2),
            ("orders", "orders", 0),
            ("odrers", "orders", 1),
            ("order", "orders", 1),
            ("ordders", "orders", 1),
            ("ordets", "orders", 1),
            ("ca", "abc", 3),
            ("größe", "grösse", 2),
        ] {
            assert_eq!((distance(one, other), distance(other, one)), (count, count), "{one} {other}");
        }
    }

    #[test]
    fn nearest_name_is_chosen_unless_all_are_far() {
        let all = ["orders", "order_items", "users", "x1"];
        for (name, chosen) in [
            ("odrers", Some("orders")),
            ("ORDERS", Some("orders")),
            ("order-items", Some("order_items")),
            ("user", Some("users")),
            ("x2", Some("x1")),
            ("tickets", None),
            ("z9", None),
            ("orders", None),
        ] {
            assert_eq!(choose(name, all.into_iter()).as_deref(), chosen, "{name}");
        }
    }
}
