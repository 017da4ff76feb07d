//! The data of the page for one reader: one page of the sequences that the reader may see, sorted.

use std::cmp::Ordering;
use std::time::{Duration, SystemTime};

use derive_more::Display;
use idmill::Health;
use serde::Deserialize;
use serde_json::{Value, json};

use super::format::{self, NOTHING};
use crate::access::{Caller, Right};
use crate::http::body::Number;
use crate::state::ServerState;
use crate::status::{Look, MOST, Row, left_out};

/// Maximum number of rows of a page.
pub(super) const ROWS: usize = 50;

/// Shown instead of `serving` for a sequence that ends soon.
const ENDING_SOON: &str = "ending soon";

/// The query of the page.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Asked {
    /// Text to search for in names, ignoring case.
    pub(super) search: String,
    pub(super) sort: Sort,
    /// Starts at 1.
    page: usize,
}

impl Asked {
    /// Reads the query of a link. Other programs add parameters to links, so unknown and invalid
    /// parameters are ignored.
    pub(super) fn of_link(query: &str) -> Self {
        let mut asked = Self::default();
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*key {
                "search" => asked.search = value.into_owned(),
                "sort" => asked.sort = Sort::try_from(value.into_owned()).unwrap_or_default(),
                "page" => asked.page = value.parse().unwrap_or_default(),
                _ => {}
            }
        }
        asked
    }
}

/// The order of rows: an index into [`COLUMNS`], and the direction. Unknown figures come last.
#[derive(Clone, Copy, Debug, Default, Display, PartialEq, Eq, Deserialize)]
#[display("{}{}", if *falling { "-" } else { "" }, COLUMNS[*column].0)]
#[serde(try_from = "String")]
pub(super) struct Sort {
    pub(super) column: usize,
    pub(super) falling: bool,
}

type Figure = fn(&Row) -> Option<f64>;

/// Each column's name, whether its default order is descending, and its figure. In the order by health,
/// sequences in trouble come first.
pub(super) const COLUMNS: [(&str, bool, Figure); 11] = [
    ("health", false, |_| None),
    ("name", false, |_| None),
    ("last", true, |row| row.last.map(|last| last as f64)),
    ("rate", true, |row| row.rate),
    ("stock", false, |row| Some(row.remaining as f64)),
    ("empty", false, |row| seconds(row.to_empty)),
    ("waiting", true, |row| Some(row.waiting as f64)),
    ("latency", true, |row| seconds(row.latency.map(|[_, most]| most))),
    ("gaps", true, |row| Some(row.gaps.total() as f64)),
    ("used", true, |row| row.used),
    ("exhausted", false, |row| seconds(row.to_exhaustion)),
];

fn seconds(time: Option<Duration>) -> Option<f64> {
    time.map(|time| time.as_secs_f64())
}

impl Sort {
    pub(super) fn by(name: &str) -> Option<usize> {
        COLUMNS.iter().position(|(known, ..)| *known == name)
    }

    fn ordered(self, a: &Row, b: &Row) -> Ordering {
        let (name, _, figure) = COLUMNS[self.column];
        let directed = |order: Ordering| if self.falling { order.reverse() } else { order };
        match (name, figure(a), figure(b)) {
            ("name", ..) => directed(a.name.cmp(&b.name)),
            ("health", ..) => directed((a.health, !a.ends_soon()).cmp(&(b.health, !b.ends_soon()))),
            (_, Some(a), Some(b)) => directed(a.total_cmp(&b)),
            (_, a, b) => b.is_some().cmp(&a.is_some()),
        }
    }
}

impl TryFrom<String> for Sort {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        let (name, falling) = text.strip_prefix('-').map_or((&*text, false), |name| (name, true));
        let column = Self::by(name).ok_or_else(|| {
            let known = COLUMNS.map(|(known, ..)| known).join(", ");
            format!("cannot sort by {name:?}; use `[-]COLUMN`: {known}")
        })?;
        Ok(Self { column, falling })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ready,
    NotReady,
    Ending,
}

impl State {
    /// Returns the name for programs and the name for people.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Ready => ("ready", "Ready"),
            Self::NotReady => ("not_ready", "Not ready"),
            Self::Ending => ("ending", "Ending"),
        }
    }
}

/// All data of the page: as figures, and as text under `shown`.
pub(super) struct View {
    pub(super) json: Value,
    pub(super) page: usize,
    pub(super) pages: usize,
}

impl View {
    pub(super) fn of(state: &ServerState, look: &Look, caller: &Caller, asked: &Asked) -> Self {
        let seen = |row: &&Row| caller.may(Right::Observe, &row.name).is_ok();
        let search = asked.search.to_lowercase();
        let more = left_out(&state.draws, look, &search);
        let visible: Vec<_> = look.rows.iter().chain(&more).filter(seen).collect();
        let mut rows: Vec<_> =
            visible.iter().copied().filter(|row| row.name.to_lowercase().contains(&search)).collect();
        rows.sort_by(|a, b| asked.sort.ordered(a, b).then_with(|| a.name.cmp(&b.name)));
        let pages = rows.len().div_ceil(ROWS).max(1);
        let page = asked.page.clamp(1, pages);
        let from = (page - 1) * ROWS;
        let sequences: Vec<_> = rows.iter().skip(from).take(ROWS).map(|row| sequence(row, look.at)).collect();
        let summary = summary(look, rows.len(), from, sequences.len(), &asked.search);
        let pages_text = if pages > 1 { format!("Page {page} of {pages}") } else { String::new() };
        let troubles = visible.iter().filter(|row| row.health != Health::Serving).count();
        let json = json!({
            "server": server(state, look, &visible, troubles, [summary, pages_text]),
            "sequences": sequences,
            "sort": asked.sort.to_string(),
            "page": page,
            "pages": pages,
            // Number of visible sequences that match the search.
            "matching": rows.len(),
            // Number of visible sequences in trouble.
            "troubles": troubles,
        });
        Self { json, page, pages }
    }
}

/// Returns the caption of the table.
fn summary(look: &Look, matching: usize, from: usize, shown: usize, search: &str) -> String {
    let which = if search.is_empty() {
        String::new()
    } else {
        format!(" whose name contains “{}”", idmill_kit::visible(search))
    };
    let rows = match matching {
        0 => format!("No open sequences{which}"),
        1 => format!("One open sequence{which}"),
        _ if shown < matching => format!(
            "{}–{} of {} open sequences{which}",
            format::count(from as u64 + 1),
            format::count((from + shown) as u64),
            format::count(matching as u64)
        ),
        _ => format!("{matching} open sequences{which}"),
    };
    if look.open == look.rows.len() || !search.is_empty() {
        return rows;
    }
    let (most, open) = (format::count(MOST as u64), format::count(look.open as u64));
    format!(
        "{rows}. The server has {open} open sequences and lists {most}: errors first, then by name. Search \
         covers all sequences"
    )
}

fn server(state: &ServerState, look: &Look, visible: &[&Row], troubles: usize, texts: [String; 2]) -> Value {
    let standing = match look.fault {
        _ if state.readiness.is_leaving() => State::Ending,
        None => State::Ready,
        Some(_) => State::NotReady,
    };
    let (about, at, [summary, pages]) = (&state.status.about, format::stamp(look.at), texts);
    let (uptime, most) = (about.started.elapsed(), about.most);
    let connections = most.saturating_sub(about.places.available_permits());
    json!({
        "state": standing.names().0,
        "name": about.name,
        "at": at,
        "version": env!("CARGO_PKG_VERSION"),
        "uptime_seconds": uptime.as_secs(),
        "store": about.store,
        "connections": connections,
        "max_connections": most,
        "shown": {
            "state": standing.names().1,
            "reason": reason(standing, look.fault.unwrap_or_default(), visible),
            // The title of the tab.
            "title": title(standing, troubles, &about.name),
            "name": known(Some(about.name.clone()).filter(|name| !name.is_empty())),
            "at": known(at.as_deref().map(|at| format!("{} UTC", &at[11..19]))),
            "uptime": format::span(uptime),
            "store": known(about.store.clone()),
            "connections": format!("{} of {}", format::count(connections as u64), format::count(most as u64)),
            // The caption of the table.
            "summary": summary,
            // The page number; empty if there is only one page.
            "pages": pages,
        },
    })
}

/// Returns the title of the tab. Trouble comes first, because a tab shows only a few words.
fn title(state: State, troubles: usize, name: &str) -> String {
    let wrong = match (state, troubles) {
        (State::Ready, 0) => None,
        (State::Ready, many) => Some(format!("▲ {} in trouble", format::count(many as u64))),
        (state, 0) => Some(format!("■ {}", state.names().1)),
        (state, many) => Some(format!("■ {}, {} in trouble", state.names().1, format::count(many as u64))),
    };
    let parts = wrong.into_iter().chain([name.to_owned(), "idmill".to_owned()]);
    parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" – ")
}

/// Returns why the server is not ready, with the visible sequences that have no ids.
fn reason(state: State, fault: &str, visible: &[&Row]) -> String {
    let without: Vec<_> = visible.iter().filter(|row| row.health <= Health::Empty).collect();
    match (state, &without[..]) {
        (State::Ready, _) => String::new(),
        (State::Ending, _) => "the server is shutting down; send new clients to another".to_owned(),
        (State::NotReady, []) => fault.to_owned(),
        (State::NotReady, [row]) => format!("{fault}; {} has no ids", idmill_kit::visible(&row.name)),
        (State::NotReady, [row, more @ ..]) => {
            let more = format::count(more.len() as u64);
            format!("{fault}; {} and {more} more have no ids", idmill_kit::visible(&row.name))
        }
    }
}

fn sequence(row: &Row, now: SystemTime) -> Value {
    let exhausted_on = row.to_exhaustion.and_then(|time| format::date(now, time));
    json!({
        "name": row.name,
        "health": row.health,
        // Whether the sequence ends within 30 days at its current rate.
        "ends_soon": row.ends_soon(),
        "reason": row.reason,
        "since": row.since.and_then(format::stamp),
        "failures_in_a_row": row.failures,
        "failures_per_second": row.failing,
        "last": row.last.map(Number),
        "rate": row.rate,
        "remaining": row.remaining,
        "reached": row.reached.map(Number),
        "waiting": row.waiting,
        "seconds_to_empty": seconds(row.to_empty),
        "latency_p50_seconds": seconds(row.latency.map(|[half, _]| half)),
        "latency_p99_seconds": seconds(row.latency.map(|[_, most]| most)),
        "gaps": row.gaps,
        "used": row.used,
        "seconds_to_exhaustion": seconds(row.to_exhaustion),
        "exhausted_on": exhausted_on,
        "shown": shown(row, now, exhausted_on.as_deref()),
    })
}

fn known(text: Option<String>) -> String {
    text.unwrap_or_else(|| NOTHING.to_owned())
}

/// Returns one row as text.
fn shown(row: &Row, now: SystemTime, exhausted_on: Option<&str>) -> Value {
    let ends = row.to_exhaustion.filter(|_| row.health != Health::Ended);
    let ends_soon = row.health == Health::Serving && row.ends_soon();
    json!({
        "name": idmill_kit::visible(&row.name),
        "health": if ends_soon { ENDING_SOON } else { row.health.as_str() },
        "reason": why(row),
        "since": row.since.map(|since| format::since(now, since)).unwrap_or_default(),
        "failing": row.failing.filter(|rate| *rate > 0.0)
            .map(|rate| format!("{} fail", format::rate(rate))).unwrap_or_default(),
        "last": known(row.last.map(format::count)),
        "rate": known(row.rate.map(format::rate)),
        "stock": format::count(row.remaining),
        "reached": row.reached.map(|reached| format!("up to {}", format::count(reached))).unwrap_or_default(),
        "empty": known(row.to_empty.map(format::span)),
        "waiting": format::count(row.waiting as u64),
        "p50": known(row.latency.map(|[half, _]| format::latency(half))),
        "p99": known(row.latency.map(|[_, most]| format::latency(most))),
        "gaps": format::count(row.gaps.total()),
        "used": known(row.used.map(format::share)),
        // The width of the bar of the used part, in percent.
        "part": format!("{:.2}", row.used.unwrap_or_default() * 100.0),
        "exhausted": known(ends.map(|_| exhausted_on.unwrap_or("after 9999").to_owned())),
        "exhausted_in": ends.filter(|_| exhausted_on.is_some())
            .map(|time| format!("in {}", format::span(time))).unwrap_or_default(),
    })
}

fn why(row: &Row) -> String {
    let Some(reason) = row.reason.as_deref().map(idmill_kit::visible) else { return String::new() };
    match row.failures {
        0 => reason,
        1 => format!("A reserve failed: {reason}"),
        many => format!("{} reserves in a row failed: {reason}", format::count(many)),
    }
}

#[cfg(test)]
mod tests {
    use idmill::Gaps;

    use super::*;

    fn row(name: &str, rate: Option<f64>, health: Health) -> Row {
        Row {
            name: name.to_owned(),
            health,
            reason: None,
            since: None,
            failures: 0,
            failing: None,
            last: None,
            rate,
            remaining: 0,
            reached: None,
            waiting: 0,
            to_empty: None,
            latency: None,
            gaps: Gaps::default(),
            used: None,
            to_exhaustion: None,
        }
    }

    #[test]
    fn rows_sort_both_ways_with_unknown_values_last() {
        let rows = [
            row("b", Some(2.0), Health::Serving),
            row("a", None, Health::Empty),
            row("c", Some(1.0), Health::Failing),
        ];
        for (sort, names) in
            [("", "acb"), ("rate", "cba"), ("-rate", "bca"), ("-name", "cba"), ("-health", "bca")]
        {
            let sort = Sort::try_from(sort.to_owned()).unwrap();
            let mut sorted: Vec<_> = rows.iter().collect();
            sorted.sort_by(|a, b| sort.ordered(a, b));
            assert_eq!(sorted.iter().map(|row| &*row.name).collect::<String>(), names, "{sort}");
        }
        assert!(Sort::try_from("-nothing".to_owned()).unwrap_err().contains("exhausted"));
    }

    #[test]
    fn unknown_values_are_shown_as_such() {
        let unknown = shown(&row("a", None, Health::Empty), SystemTime::now(), None);
        for field in ["last", "rate", "empty", "p50"] {
            assert_eq!(unknown[field], NOTHING, "{field}");
        }
        assert_eq!(shown(&row("a", Some(2.0), Health::Serving), SystemTime::now(), None)["rate"], "2.0");
    }

    #[test]
    fn sequence_ending_soon_is_sorted_before_serving_ones() {
        let ends = |name: &str, days: u64| {
            let to_exhaustion = Some(Duration::from_secs(days * 24 * 60 * 60));
            Row { to_exhaustion, ..row(name, Some(1.0), Health::Serving) }
        };
        let rows = [ends("a", 31), ends("b", 29), row("c", None, Health::Failing)];
        let mut sorted: Vec<_> = rows.iter().collect();
        sorted.sort_by(|a, b| Sort::default().ordered(a, b));
        let shown =
            sorted.iter().map(|row| (&*row.name, shown(row, SystemTime::now(), None)["health"].clone()));
        let expected = [("c", "failing"), ("b", "ending soon"), ("a", "serving")];
        assert_eq!(shown.collect::<Vec<_>>(), expected.map(|(name, health)| (name, health.into())));
    }

    #[test]
    fn caption_counts_the_matching_sequences() {
        let look = |open| Look {
            at: SystemTime::now(),
            fault: None,
            open,
            rows: vec![row("a", None, Health::Empty)],
        };
        for (matching, from, shown, search, caption) in [
            (0, 0, 0, "", "No open sequences"),
            (0, 0, 0, "x", "No open sequences whose name contains “x”"),
            (1, 0, 1, "", "One open sequence"),
            (2, 0, 2, "", "2 open sequences"),
            (2_000, 0, 100, "", "1–100 of 2,000 open sequences"),
            (2_000, 1_900, 100, "x", "1,901–2,000 of 2,000 open sequences whose name contains “x”"),
        ] {
            assert_eq!(summary(&look(1), matching, from, shown, search), caption);
        }
        assert!(
            summary(&look(5_000), 1, 0, 1, "").starts_with("One open sequence. The server has 5,000 open")
        );
        assert_eq!(summary(&look(5_000), 1, 0, 1, "x"), "One open sequence whose name contains “x”");
    }

    #[test]
    fn column_names_are_unique() {
        for (name, ..) in COLUMNS {
            let sort = Sort::try_from(format!("-{name}")).unwrap();
            assert_eq!(sort.to_string(), format!("-{name}"));
        }
    }

    #[test]
    fn title_begins_with_the_trouble() {
        assert_eq!(title(State::Ready, 0, "db1:7381"), "db1:7381 – idmill");
        assert_eq!(title(State::Ready, 2, "db1:7381"), "▲ 2 in trouble – db1:7381 – idmill");
        assert_eq!(title(State::NotReady, 1, ""), "■ Not ready, 1 in trouble – idmill");
    }

    #[test]
    fn reason_omits_names_of_hidden_sequences() {
        let empty = row("secret", None, Health::Empty);
        assert_eq!(
            reason(State::NotReady, "the store is away", &[&empty]),
            "the store is away; secret has no ids"
        );
        assert!(!reason(State::NotReady, "the store is away", &[]).contains("secret"));
    }
}
