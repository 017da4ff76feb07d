//! A memcached: its items, and its answers to the commands of a window.

use std::collections::BTreeMap;
use std::time::Duration;

use fastrand::Rng;
use idmill_shared_cache::cache::Layout;
use tokio::time::Instant;

/// A violation by the cache, which the checks must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lie {
    None,
    /// A lost item returns with the number it had some draws before.
    BringsBack,
    /// The cache ignores every cas.
    IgnoresCas,
    /// Not a violation by the cache: the window ignores `max_skip`, and the check still applies `max_skip`.
    NeverMindTheRate,
}

#[derive(Clone, Debug)]
struct Item {
    value: String,
    cas: u64,
    expires: Option<Instant>,
}

/// A window that was lost with ids left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Miss {
    pub(crate) at: Duration,
    pub(crate) skipped: u64,
}

#[derive(Debug)]
pub(crate) struct Server {
    lie: Lie,
    began: Instant,
    items: BTreeMap<String, Item>,
    /// A key and its earlier number.
    old: Option<(String, String)>,
    last_cas: u64,
    pub(crate) misses: Vec<Miss>,
    /// The time of each draw, and the number of ids.
    pub(crate) draws: Vec<(Duration, u64)>,
    rng: Rng,
}

impl Server {
    pub(crate) fn new(lie: Lie, seed: u64) -> Self {
        let (items, rng) = (BTreeMap::new(), Rng::with_seed(seed));
        let (misses, draws) = (Vec::new(), Vec::new());
        Self { lie, began: Instant::now(), items, old: None, last_cas: 0, misses, draws, rng }
    }

    /// Loses all items, by eviction or a flush. Connections and the cas are kept.
    pub(crate) fn forget(&mut self) {
        let at = self.began.elapsed();
        for item in std::mem::take(&mut self.items).into_values() {
            let skipped = left(&item.value);
            if skipped > 0 {
                self.misses.push(Miss { at, skipped });
            }
        }
        if let (Lie::BringsBack, Some((key, value))) = (self.lie, self.old.take()) {
            self.put(key, value, None);
        }
    }

    /// Loses all items. The new server starts its cas from the beginning.
    pub(crate) fn restart(&mut self) {
        self.forget();
        self.last_cas = 0;
    }

    /// Number of ids in windows.
    pub(crate) fn left(&self) -> u64 {
        self.items.values().map(|item| left(&item.value)).sum()
    }

    fn put(&mut self, key: String, value: String, expires: Option<Instant>) -> u64 {
        self.last_cas += 1;
        let cas = self.last_cas;
        self.items.insert(key, Item { value, cas, expires });
        cas
    }

    /// Executes one command with its optional value, and returns the answer.
    pub(crate) fn answer(&mut self, line: &str, value: &str) -> String {
        let now = Instant::now();
        self.items.retain(|_, item| item.expires.is_none_or(|expires| expires > now));
        let words: Vec<&str> = line.split(' ').collect();
        let flag = |letter: char| words.iter().skip(2).find_map(|word| word.strip_prefix(letter));
        let number = |letter| flag(letter).map(|text| text.parse::<u64>().expect("a number"));
        let key = || words[1].to_owned();
        match words[0] {
            "mn" => "MN\r\n".to_owned(),
            "ma" => self.add(&key(), number('D').expect("how many")),
            "mg" => self.get(key(), number('N').map(|ttl| now + Duration::from_secs(ttl))),
            "md" => self.delete(&key(), number('C')),
            "ms" => self.set(key(), value, number('C').expect("a condition")),
            _ => "ERROR\r\n".to_owned(),
        }
    }

    fn add(&mut self, key: &str, count: u64) -> String {
        let Some(item) = self.items.get(key) else { return "NF\r\n".to_owned() };
        let Ok(before) = item.value.parse::<u64>() else {
            return "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n".to_owned();
        };
        if self.rng.u32(0..10) == 0 {
            self.old = Some((key.to_owned(), item.value.clone()));
        }
        let drawn = left(&item.value).min(count);
        if drawn > 0 {
            self.draws.push((self.began.elapsed(), drawn));
        }
        let value = before.wrapping_add(count).to_string();
        let cas = self.put(key.to_owned(), value.clone(), item.expires);
        format!("VA {} c{cas}\r\n{value}\r\n", value.len())
    }

    fn get(&mut self, key: String, vivify: Option<Instant>) -> String {
        if let Some(Item { value, cas, expires }) = self.items.get(&key) {
            let ttl = expires.map_or("-1".to_owned(), |at| (at - Instant::now()).as_secs().to_string());
            let stub = if expires.is_some() { " Z" } else { "" };
            return format!("VA {} c{cas} t{ttl}{stub}\r\n{value}\r\n", value.len());
        }
        let Some(expires) = vivify else { return "EN\r\n".to_owned() };
        let cas = self.put(key, String::new(), Some(expires));
        format!("VA 0 c{cas} t1 W\r\n\r\n")
    }

    fn delete(&mut self, key: &str, cas: Option<u64>) -> String {
        let Some(item) = self.items.get(key) else { return "NF\r\n".to_owned() };
        if cas.is_some_and(|cas| cas != item.cas) && self.lie != Lie::IgnoresCas {
            return "EX\r\n".to_owned();
        }
        self.items.remove(key);
        "HD\r\n".to_owned()
    }

    fn set(&mut self, key: String, value: &str, cas: u64) -> String {
        let Some(item) = self.items.get(&key) else { return "NF\r\n".to_owned() };
        if cas != item.cas && self.lie != Lie::IgnoresCas {
            return "EX\r\n".to_owned();
        }
        self.put(key, value.to_owned(), None);
        "HD\r\n".to_owned()
    }
}

/// Number of ids left in the window that `value` encodes.
fn left(value: &str) -> u64 {
    value.parse().ok().and_then(Layout::decode).map_or(0, |standing| standing.left)
}
