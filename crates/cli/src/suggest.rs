//! Which sequence a mistyped name could have meant.

use std::time::Duration;

use idmill::store::{Page, Pages, Store};
use strsim::osa_distance as distance;

/// How long the names are looked for: what is suggested is not worth a wait.
const PATIENCE: Duration = Duration::from_secs(2);
/// How many names are compared at the most; more cannot be looked through in no time.
const LARGEST: usize = 10_000;

/// The name most like this one among those that exist, if one is like it; nothing where
/// the store does not say in time.
pub(crate) async fn nearest(store: &dyn Store, name: &str) -> Option<String> {
    // First those that begin alike: of a store with many names the right one is
    // hardly among the first of all.
    let begin: String = name.chars().take(2).collect();
    let among = async |prefix: &str| choose(name, names(store, prefix).await?.iter().map(String::as_str));
    let search = async {
        match among(&begin).await {
            Some(near) => Some(near),
            None => among("").await,
        }
    };
    tokio::time::timeout(PATIENCE, search).await.ok()?
}

/// The first names that begin like this.
async fn names(store: &dyn Store, prefix: &str) -> Option<Vec<String>> {
    let (mut names, mut pages) = (Vec::new(), Pages::new(store, Page::of(prefix)));
    while names.len() < LARGEST {
        let Some(page) = pages.next().await.ok()? else { break };
        names.extend(page.sequences.iter().map(|info| info.name.to_string()));
    }
    Some(names)
}

fn choose<'a>(name: &str, among: impl Iterator<Item = &'a str>) -> Option<String> {
    // A third of its letters may be others, but never so many that any short name would do.
    let most = (name.chars().count() / 3).clamp(1, 3);
    let ranked = among.filter(|other| *other != name).filter_map(|other| {
        let distance = if other.eq_ignore_ascii_case(name) { 0 } else { distance(name, other) };
        (distance <= most).then_some((distance, other))
    });
    ranked.min().map(|(_, other)| other.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_counted_that_differ() {
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
    fn the_nearest_is_chosen_and_none_where_none_is_near() {
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
