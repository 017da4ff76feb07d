//! Orders for other processes, and the lines that the processes print on standard output.

use std::fmt::Write as _;
use std::io::Write;
use std::time::Duration;

use idmill::store::{Bounds, Grant, Reserve};
use idmill::{IdRange, SequenceName};

use super::ledger::{Entry, Reply};
use super::setup::Endpoint;

pub(super) const VARIABLE: &str = "IDMILL_CONFORMANCE_WORKER";
/// Marks a worker's line: standard output has other lines too, and a harness may write before the mark.
pub(super) const MARK: &str = "idmill-conformance:";

/// The work of a process, and its suite.
#[derive(Clone, Debug)]
pub(super) struct Order {
    pub(super) suite: String,
    pub(super) endpoint: Endpoint,
    pub(super) job: Job,
    pub(super) request: Reserve,
    pub(super) tasks: u64,
    /// 0 for no limit.
    pub(super) times: u64,
    /// The timeout of a call.
    pub(super) timeout: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Job {
    /// Reserves from the store.
    Reserve,
    /// Draws from an allocator over the store.
    Draw,
}

impl Order {
    pub(super) fn print(&self) -> String {
        let mut form = form_urlencoded::Serializer::new(String::new());
        let request = &self.request;
        form.append_pair("suite", &self.suite);
        if let Some(address) = self.endpoint.given() {
            form.append_pair("address", &address.to_string());
        }
        let store_timeout =
            u64::try_from(self.endpoint.timeout().as_millis()).expect("the timeout fits in 64 bits");
        form.append_pair("dir", self.endpoint.dir().to_str().expect("the suite's own path"));
        form.append_pair("job", if self.job == Job::Draw { "draw" } else { "reserve" });
        form.append_pair("name", &request.name);
        let timeout = u64::try_from(self.timeout.as_millis()).expect("the timeout fits 64 bits");
        let create = request.create.expect("a worker's request sets `create`");
        let numbers = [
            ("count", request.count),
            ("ceiling", request.ceiling),
            ("start", create.start()),
            ("max", create.max()),
            ("tasks", self.tasks),
            ("times", self.times),
            ("timeout", timeout),
            ("store_timeout", store_timeout),
        ];
        for (key, number) in numbers {
            form.append_pair(key, &number.to_string());
        }
        form.finish()
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        let pairs: Vec<_> = form_urlencoded::parse(text.as_bytes()).collect();
        let get = |key: &str| pairs.iter().find(|(known, _)| known == key).map(|(_, value)| &**value);
        let number = |key: &str| get(key)?.parse::<u64>().ok();
        let address = match get("address") {
            Some(address) => Some(address.parse().ok()?),
            None => None,
        };
        let request = Reserve::new(SequenceName::new(get("name")?).ok()?, number("count")?)
            .ceiling(number("ceiling")?)
            .create(Bounds::new(number("start")?, number("max")?).ok()?);
        Some(Self {
            suite: get("suite")?.to_owned(),
            endpoint: Endpoint::new(
                address,
                get("dir")?.into(),
                Duration::from_millis(number("store_timeout")?),
            ),
            job: if get("job")? == "draw" { Job::Draw } else { Job::Reserve },
            request,
            tasks: number("tasks")?,
            times: number("times")?,
            timeout: Duration::from_millis(number("timeout")?),
        })
    }
}

/// The order that this process was started for; `None` if it was not started by a suite.
pub(super) fn of_this_process() -> Option<Order> {
    let text = std::env::var(VARIABLE).ok()?;
    Some(Order::parse(&text).unwrap_or_else(|| panic!("{VARIABLE} cannot be parsed by this version: {text}")))
}

/// The state that standard input has set so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Waiting,
    Running,
    Ended,
}

/// One write per line, so that after a kill only the last line can be incomplete.
pub(super) fn say(line: &str) {
    let line = format!("{MARK} {line}\n");
    // Ignore the error: a process whose reader is gone is killed.
    let _ = std::io::stdout().lock().write_all(line.as_bytes());
}

pub(super) fn say_entry(entry: &Entry) {
    say(&line_of(entry));
}

pub(super) fn line_of(entry: &Entry) -> String {
    let Entry { caller, began, ended, count, ceiling, reply } = entry;
    let (client, process) = (caller.client, caller.process);
    let mut line = format!("entry {client} {process} {began} {ended} {count} {ceiling} ");
    let written = match reply {
        Reply::Granted(Grant { range, identity, bounds, .. }) => write!(
            line,
            "granted {} {} {} {} {} {}",
            range.start(),
            range.len(),
            identity.incarnation,
            identity.epoch,
            bounds.start(),
            bounds.max()
        ),
        Reply::Failed(kind, said) => write!(line, "{} {}", kind.as_str(), said.replace(['\n', '\r'], " ")),
        Reply::Silent => write!(line, "silent"),
    };
    written.expect("into a string");
    line
}

pub(super) fn say_drawn(range: IdRange) {
    say(&format!("drawn {} {}", range.start(), range.len()));
}
