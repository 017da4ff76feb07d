//! What one reader sees: those sequences that they may, sorted, a page of them.

use std::cmp::Ordering;
use std::fmt;
use std::time::{Duration, SystemTime};

use idmill::{Gaps, Health};
use serde::{Deserialize, Serialize};

use super::format::{self, NOTHING};
use crate::access::{Caller, Right};
use crate::http::number::Number;
use crate::state::ServerState;
use crate::status::{Look, MOST, Row, left_out};

/// The most rows of a page.
pub(super) const ROWS: usize = 50;

/// Shown instead of `serving` for a sequence that ends soon.
const ENDING_SOON: &str = "ending soon";

/// What a reader asks for.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Asked {
    /// What names have in them, in any case of letters.
    pub(super) search: String,
    pub(super) sort: Sort,
    /// From 1 on.
    page: usize,
}

impl Asked {
    /// Reads the query of a link. Other programs add parameters to links: unknown and invalid ones are ignored.
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

/// What rows are sorted by. What is not known comes last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub(super) struct Sort {
    pub(super) by: Column,
    pub(super) falling: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Column {
    /// Those in trouble first.
    #[default]
    Health,
    Name,
    Last,
    Rate,
    Stock,
    Dry,
    Waiting,
    Latency,
    Gaps,
    Used,
    Exhausted,
}

impl Column {
    const ALL: [(&str, Self); 11] = [
        ("health", Self::Health),
        ("name", Self::Name),
        ("last", Self::Last),
        ("rate", Self::Rate),
        ("stock", Self::Stock),
        ("dry", Self::Dry),
        ("waiting", Self::Waiting),
        ("latency", Self::Latency),
        ("gaps", Self::Gaps),
        ("used", Self::Used),
        ("exhausted", Self::Exhausted),
    ];

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(known, _)| *known == name).map(|(_, column)| column)
    }
}

impl TryFrom<String> for Sort {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        let (name, falling) = text.strip_prefix('-').map_or((&*text, false), |name| (name, true));
        let by = Column::named(name).ok_or_else(|| {
            let known = Column::ALL.map(|(known, _)| known).join(", ");
            format!("rows are not sorted by {name:?}; there are {known}, each with `-` before it for the largest first")
        })?;
        Ok(Self { by, falling })
    }
}

impl From<Sort> for String {
    fn from(sort: Sort) -> Self {
        sort.to_string()
    }
}

impl fmt::Display for Sort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, _) = Column::ALL[self.by as usize];
        write!(f, "{}{name}", if self.falling { "-" } else { "" })
    }
}

/// All that the page shows at one time: as figures, and as text.
#[derive(Debug, Serialize)]
pub(super) struct View {
    pub(super) server: Server,
    pub(super) sequences: Vec<Sequence>,
    pub(super) sort: Sort,
    pub(super) page: usize,
    pub(super) pages: usize,
    /// How many of those that the reader may see are matched by the search.
    matching: usize,
    /// The number of visible sequences in trouble.
    troubles: usize,
}

#[derive(Debug, Serialize)]
pub(super) struct Server {
    pub(super) state: State,
    name: String,
    at: Option<String>,
    version: &'static str,
    uptime_seconds: u64,
    store: Option<String>,
    connections: usize,
    max_connections: usize,
    pub(super) shown: ServerShown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    Ready,
    NotReady,
    Ending,
}

impl State {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::NotReady => "not_ready",
            Self::Ending => "ending",
        }
    }

    fn shown(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::NotReady => "Not ready",
            Self::Ending => "Ending",
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct ServerShown {
    pub(super) state: &'static str,
    pub(super) reason: String,
    /// The title of the tab.
    pub(super) title: String,
    pub(super) name: String,
    pub(super) at: String,
    pub(super) uptime: String,
    pub(super) store: String,
    pub(super) connections: String,
    /// The caption of the table.
    pub(super) summary: String,
    /// Which page of them it is; empty if there is one.
    pub(super) pages: String,
}

#[derive(Debug, Serialize)]
pub(super) struct Sequence {
    pub(super) name: String,
    pub(super) health: Health,
    /// Whether it ends within 30 days at its present rate.
    ends_soon: bool,
    reason: Option<String>,
    since: Option<String>,
    failures_in_a_row: u64,
    failures_per_second: Option<f64>,
    last: Option<Number>,
    rate: Option<f64>,
    remaining: u64,
    reached: Option<Number>,
    waiting: usize,
    seconds_to_dry: Option<f64>,
    latency_p50_seconds: Option<f64>,
    latency_p99_seconds: Option<f64>,
    gaps: Gaps,
    used: Option<f64>,
    seconds_to_exhaustion: Option<f64>,
    exhausted_on: Option<String>,
    pub(super) shown: Shown,
}

/// One row, as text.
#[derive(Debug, Serialize)]
pub(super) struct Shown {
    pub(super) name: String,
    pub(super) health: &'static str,
    pub(super) reason: String,
    pub(super) since: String,
    pub(super) failing: String,
    pub(super) last: String,
    pub(super) rate: String,
    pub(super) stock: String,
    pub(super) reached: String,
    pub(super) dry: String,
    pub(super) waiting: String,
    pub(super) p50: String,
    pub(super) p99: String,
    pub(super) gaps: String,
    pub(super) used: String,
    /// The width of its bar, in percent.
    pub(super) part: String,
    pub(super) exhausted: String,
    pub(super) exhausted_in: String,
}

impl View {
    pub(super) fn of(state: &ServerState, look: &Look, caller: &Caller, asked: &Asked) -> Self {
        let seen = |row: &&Row| caller.may(Right::Observe, &row.name).is_ok();
        let search = asked.search.to_lowercase();
        let more = left_out(&state.draws, look, &search);
        let visible: Vec<_> = look.rows.iter().chain(&more).filter(seen).collect();
        let mut rows: Vec<_> =
            visible.iter().copied().filter(|row| row.name.to_lowercase().contains(&search)).collect();
        rows.sort_by(|a, b| ordered(a, b, asked.sort).then_with(|| a.name.cmp(&b.name)));
        let pages = rows.len().div_ceil(ROWS).max(1);
        let page = asked.page.clamp(1, pages);
        let from = (page - 1) * ROWS;
        let sequences: Vec<_> =
            rows.iter().skip(from).take(ROWS).map(|row| Sequence::of(row, look.at)).collect();
        let summary = summary(look, rows.len(), from, sequences.len(), &asked.search);
        let pages_text = if pages > 1 { format!("Page {page} of {pages}") } else { String::new() };
        let server = Server::of(state, look, &visible, [summary, pages_text]);
        let troubles = visible.iter().filter(|row| row.health != Health::Serving).count();
        Self { server, sequences, sort: asked.sort, page, pages, matching: rows.len(), troubles }
    }
}

/// What the table has in it, and what it has not.
fn summary(look: &Look, matching: usize, from: usize, shown: usize, search: &str) -> String {
    let which = if search.is_empty() {
        String::new()
    } else {
        format!(" with “{}” in their names", format::plain(search))
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
        "{rows}. The server has {open} open, and shows {most}: those in trouble, and the first by name. Search finds all"
    )
}

impl Server {
    fn of(state: &ServerState, look: &Look, visible: &[&Row], [summary, pages]: [String; 2]) -> Self {
        let standing = match look.fault {
            _ if state.readiness.is_leaving() => State::Ending,
            None => State::Ready,
            Some(_) => State::NotReady,
        };
        let about = &state.status.about;
        let (uptime, most) = (about.started.elapsed(), about.most);
        let connections = most.saturating_sub(about.places.available_permits());
        let at = format::stamp(look.at);
        let troubles = visible.iter().filter(|row| row.health != Health::Serving).count();
        let shown = ServerShown {
            state: standing.shown(),
            title: title(standing, troubles, &about.name),
            name: Some(about.name.clone())
                .filter(|name| !name.is_empty())
                .unwrap_or_else(|| NOTHING.to_owned()),
            reason: reason(standing, look.fault.unwrap_or_default(), visible),
            at: at.as_deref().map_or(NOTHING.to_owned(), |at| format!("{} UTC", &at[11..19])),
            uptime: format::span(uptime),
            store: about.store.clone().unwrap_or_else(|| NOTHING.to_owned()),
            connections: format!("{} of {}", format::count(connections as u64), format::count(most as u64)),
            summary,
            pages,
        };
        Self {
            state: standing,
            name: about.name.clone(),
            at,
            version: env!("CARGO_PKG_VERSION"),
            uptime_seconds: uptime.as_secs(),
            store: about.store.clone(),
            connections,
            max_connections: most,
            shown,
        }
    }
}

/// Trouble comes first: a tab shows a few words only.
fn title(state: State, troubles: usize, name: &str) -> String {
    let wrong = match (state, troubles) {
        (State::Ready, 0) => None,
        (State::Ready, many) => Some(format!("▲ {} in trouble", format::count(many as u64))),
        (state, 0) => Some(format!("■ {}", state.shown())),
        (state, many) => Some(format!("■ {}, {} in trouble", state.shown(), format::count(many as u64))),
    };
    let parts = wrong.into_iter().chain([name.to_owned(), "idmill".to_owned()]);
    parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" – ")
}

/// Why it is not ready, with the sequences that have no ids, of those that this token is for.
fn reason(state: State, fault: &str, visible: &[&Row]) -> String {
    let without: Vec<_> = visible.iter().filter(|row| row.health <= Health::Dry).collect();
    match (state, &without[..]) {
        (State::Ready, _) => String::new(),
        (State::Ending, _) => "it answers what it has read, and accepts nobody any more".to_owned(),
        (State::NotReady, []) => fault.to_owned(),
        (State::NotReady, [row]) => format!("{fault}; {} has no ids", format::plain(&row.name)),
        (State::NotReady, [row, more @ ..]) => {
            let more = format::count(more.len() as u64);
            format!("{fault}; {} and {more} more have no ids", format::plain(&row.name))
        }
    }
}

impl Sequence {
    fn of(row: &Row, now: SystemTime) -> Self {
        let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
        let exhausted_on = row.to_exhaustion.and_then(|time| format::date(now, time));
        Self {
            name: row.name.clone(),
            health: row.health,
            ends_soon: row.ends_soon(),
            reason: row.reason.clone(),
            since: row.since.and_then(format::stamp),
            failures_in_a_row: row.failures,
            failures_per_second: row.failing,
            last: row.last.map(Number),
            rate: row.rate,
            remaining: row.remaining,
            reached: row.reached.map(Number),
            waiting: row.waiting,
            seconds_to_dry: seconds(row.to_dry),
            latency_p50_seconds: seconds(row.latency.map(|[half, _]| half)),
            latency_p99_seconds: seconds(row.latency.map(|[_, most]| most)),
            gaps: row.gaps,
            used: row.used,
            seconds_to_exhaustion: seconds(row.to_exhaustion),
            shown: Shown::of(row, now, exhausted_on.as_deref()),
            exhausted_on,
        }
    }
}

impl Shown {
    fn of(row: &Row, now: SystemTime, exhausted_on: Option<&str>) -> Self {
        let known = |text: Option<String>| text.unwrap_or_else(|| NOTHING.to_owned());
        let exhausted = match (exhausted_on, row.to_exhaustion) {
            _ if row.health == Health::Ended => NOTHING.to_owned(),
            (Some(date), _) => date.to_owned(),
            (None, Some(_)) => "after 9999".to_owned(),
            (None, None) => NOTHING.to_owned(),
        };
        Self {
            health: if row.health == Health::Serving && row.ends_soon() {
                ENDING_SOON
            } else {
                row.health.as_str()
            },
            name: format::plain(&row.name),
            reason: why(row),
            since: row.since.map_or_else(String::new, |since| format::since(now, since)),
            failing: row
                .failing
                .filter(|rate| *rate > 0.0)
                .map_or_else(String::new, |rate| format!("{} fail", format::rate(rate))),
            last: known(row.last.map(format::count)),
            rate: known(row.rate.map(format::rate)),
            stock: format::count(row.remaining),
            reached: row
                .reached
                .map_or_else(String::new, |reached| format!("up to {}", format::count(reached))),
            dry: known(row.to_dry.map(format::span)),
            waiting: format::count(row.waiting as u64),
            p50: known(row.latency.map(|[half, _]| format::latency(half))),
            p99: known(row.latency.map(|[_, most]| format::latency(most))),
            gaps: format::count(row.gaps.total()),
            used: known(row.used.map(format::share)),
            part: format!("{:.2}", row.used.unwrap_or_default() * 100.0),
            exhausted_in: row
                .to_exhaustion
                .filter(|_| exhausted_on.is_some() && row.health != Health::Ended)
                .map_or_else(String::new, |time| format!("in {}", format::span(time))),
            exhausted,
        }
    }
}

fn why(row: &Row) -> String {
    let Some(reason) = row.reason.as_deref().map(format::plain) else { return String::new() };
    match row.failures {
        0 => reason,
        1 => format!("A reserve failed: {reason}"),
        many => format!("{} reserves in a row failed: {reason}", format::count(many)),
    }
}

fn ordered(a: &Row, b: &Row, Sort { by, falling }: Sort) -> Ordering {
    let (a, b) = match by {
        Column::Name => {
            return if falling { b.name.cmp(&a.name) } else { a.name.cmp(&b.name) };
        }
        Column::Health => {
            let (a, b) = ((a.health, !a.ends_soon()), (b.health, !b.ends_soon()));
            return if falling { b.cmp(&a) } else { a.cmp(&b) };
        }
        _ => (figure(a, by), figure(b, by)),
    };
    match (a, b) {
        (Some(a), Some(b)) if falling => b.total_cmp(&a),
        (Some(a), Some(b)) => a.total_cmp(&b),
        (a, b) => b.is_some().cmp(&a.is_some()),
    }
}

fn figure(row: &Row, by: Column) -> Option<f64> {
    let of = |number: u64| number as f64;
    let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
    match by {
        Column::Health | Column::Name => None,
        Column::Last => row.last.map(of),
        Column::Rate => row.rate,
        Column::Stock => Some(of(row.remaining)),
        Column::Dry => seconds(row.to_dry),
        Column::Waiting => Some(row.waiting as f64),
        Column::Latency => seconds(row.latency.map(|[_, most]| most)),
        Column::Gaps => Some(of(row.gaps.total())),
        Column::Used => row.used,
        Column::Exhausted => seconds(row.to_exhaustion),
    }
}

#[cfg(test)]
mod tests {
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
            to_dry: None,
            latency: None,
            gaps: Gaps::default(),
            used: None,
            to_exhaustion: None,
        }
    }

    #[test]
    fn rows_are_sorted_either_way_and_what_is_not_known_comes_last() {
        let rows = [
            row("b", Some(2.0), Health::Serving),
            row("a", None, Health::Dry),
            row("c", Some(1.0), Health::Failing),
        ];
        for (sort, names) in
            [("", "acb"), ("rate", "cba"), ("-rate", "bca"), ("-name", "cba"), ("-health", "bca")]
        {
            let sort = Sort::try_from(sort.to_owned()).unwrap();
            let mut sorted: Vec<_> = rows.iter().collect();
            sorted.sort_by(|a, b| ordered(a, b, sort));
            assert_eq!(sorted.iter().map(|row| &*row.name).collect::<String>(), names, "{sort}");
        }
        assert!(Sort::try_from("-nothing".to_owned()).unwrap_err().contains("exhausted"));
    }

    #[test]
    fn sequence_that_ends_soon_is_shown_before_those_that_serve() {
        let ends = |name: &str, days: u64| {
            let to_exhaustion = Some(Duration::from_secs(days * 24 * 60 * 60));
            Row { to_exhaustion, ..row(name, Some(1.0), Health::Serving) }
        };
        let rows = [ends("a", 31), ends("b", 29), row("c", None, Health::Failing)];
        let mut sorted: Vec<_> = rows.iter().collect();
        sorted.sort_by(|a, b| ordered(a, b, Sort::default()));
        let shown: Vec<_> =
            sorted.iter().map(|row| (&*row.name, Shown::of(row, SystemTime::now(), None).health)).collect();
        assert_eq!(shown, [("c", "failing"), ("b", "ending soon"), ("a", "serving")]);
    }

    #[test]
    fn each_column_has_its_own_name() {
        for (name, column) in Column::ALL {
            assert_eq!(Sort { by: column, falling: true }.to_string(), format!("-{name}"));
        }
    }

    #[test]
    fn title_says_first_what_is_wrong() {
        assert_eq!(title(State::Ready, 0, "db1:7381"), "db1:7381 – idmill");
        assert_eq!(title(State::Ready, 2, "db1:7381"), "▲ 2 in trouble – db1:7381 – idmill");
        assert_eq!(title(State::NotReady, 1, ""), "■ Not ready, 1 in trouble – idmill");
    }

    #[test]
    fn who_may_not_see_a_sequence_is_not_told_its_name() {
        let dry = row("secret", None, Health::Dry);
        assert_eq!(
            reason(State::NotReady, "the store is away", &[&dry]),
            "the store is away; secret has no ids"
        );
        assert!(!reason(State::NotReady, "the store is away", &[]).contains("secret"));
    }
}
