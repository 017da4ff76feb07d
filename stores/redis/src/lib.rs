//! Ids from Redis, as a store or as a window in front of another: small, unique, ordered, in ranges.
//!
//! The guide, with options, guarantees and errors, is the README of this crate, in the repository and on
//! [crates.io](https://crates.io/crates/idmill-redis).
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
//!
//! # The store
//!
//! [`RedisStore`] keeps sequences on a Redis or Valkey server. [`RedisOptions`] describes the URL.
//!
//! # Guarantees
//!
//! The guide describes which settings make grants durable ([`Keeps`]), how a promoted replica is detected
//! ([`Failover`]), and which cases are not detected. A reserve is one script on one hash. A script is sent
//! again only if the server does not have it loaded. Ids go up to 2^64 - 1: scripts add them in two halves,
//! since a Lua number is exact only up to 2^53.
//!
//! # Cancellation
//!
//! A call that is dropped may already have been sent. The server then executes it, and the reserved range
//! becomes a gap.

pub(crate) mod classify;
pub(crate) mod connection;
mod options;
mod schema;
pub(crate) mod server_url;
pub(crate) mod verify;
pub mod window;

use idmill::store::{
    Bounds, Capabilities, Change, Cursor, Durability, GiveBack, Grant, Identity, Listing, Page, Pages,
    Records, Reserve, SequenceInfo, Store, StoreFuture, already_exists, exhausted, not_found,
};
use idmill::{Error, ErrorKind, Operation, Result, SequenceName, Status};
use idmill_kit::history;
use idmill_kit::history::Histories;
use idmill_kit::paging;
use idmill_kit::{Contention, Fill, Scheme};

use self::classify::{Asked, Fault};
use self::connection::{Answer, Call, Link};
use self::schema::{GRANTED_BY, REFUSED_BY, Schema};

pub use self::options::{Keeps, RedisOptions};
pub use idmill;
pub use idmill_kit::history::Failover;
pub use window::{RedisWindow, RedisWindowOptions};

const STORE: Scheme = Scheme::store::<RedisOptions>("redis", "redis://HOST:PORT");
const WINDOW: Scheme = Scheme::window::<window::RedisWindowOptions>("redis", "redis://HOST:PORT");

/// The URL schemes of this crate, for `Schemes::with` of `idmill-url`.
pub const SCHEMES: &[Scheme] = &[STORE, STORE.alias("rediss"), WINDOW, WINDOW.alias("rediss")];

/// Opens the store at a URL such as `redis://HOST:PORT` and returns its sequences. They run on the current
/// tokio runtime.
///
/// # Errors
/// Returns the errors of [`idmill_kit::connect`].
pub async fn connect(url: &str) -> idmill::Result<idmill::Sequences> {
    idmill_kit::connect::<RedisOptions>(url).await
}

/// The maximum number of names that are read in one pipeline.
const AT_ONCE: usize = 500;

/// A store of sequences on a Redis or Valkey server. See the [crate docs](self) for its guarantees.
///
/// All callers share one connection, which is replaced if it fails.
#[derive(Debug)]
pub struct RedisStore {
    link: Link,
    schema: Schema,
    durability: Durability,
}

impl RedisStore {
    /// Connects to the server in a URL. See [`RedisOptions`].
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) if the URL is invalid, and the errors of
    /// [`open_with`](Self::open_with).
    pub async fn open(url: &str) -> Result<Self> {
        Self::open_with(url.parse()?).await
    }

    /// Connects to a server and checks that its settings do not lose grants. Creates nothing.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for invalid options; [`Unsupported`](ErrorKind::Unsupported)
    /// if it could lose grants, with the settings to change; [`Unavailable`](ErrorKind::Unavailable) if it
    /// cannot be reached, or is a replica; [`Denied`](ErrorKind::Denied) if the server rejects the login or a
    /// command.
    pub async fn open_with(options: RedisOptions) -> Result<Self> {
        let opened = async {
            options.check()?;
            let link = Link::new(options.terms());
            link.greet().await?;
            let schema = Schema::new(&options.prefix, options.after_failover());
            Ok(Self { link, schema, durability: options.durability() })
        };
        opened.await.map_err(|error: Error| error.during(Operation::Connect))
    }

    async fn run(&self, call: Call) -> Result<Answer> {
        let (asked, key) = (call.asked, call.keys[0].clone());
        schema::checked(self.link.run(call).await.map_err(|fault| self.link.failed(&fault, asked))?, &key)
    }

    fn granted(&self, answer: Result<Answer, Fault>, request: &Reserve) -> Result<Grant> {
        let failed = |fault: Fault| self.link.failed(&fault, Asked::Write);
        let answer = schema::checked(answer.map_err(failed)?, &self.schema.key(&request.name))?;
        match answer.word() {
            "granted" => {}
            "exhausted" => return Err(exhausted(&request.name, answer.number(1).map_err(failed)?)),
            "missing" => return Err(not_found(&request.name)),
            "promoted" => return Err(refused(&answer, &request.name)),
            _ => return Err(failed(answer.garbled())),
        }
        let grant = schema::granted(&answer, request).map_err(failed)?;
        if let Some([was, here]) = schema::masters(&answer, GRANTED_BY) {
            self.schema.failover.report(&request.name, Histories { was: &was, here: &here });
        }
        Ok(grant)
    }

    async fn reserve_all(&self, requests: &[Reserve]) -> Vec<Result<Grant>> {
        let calls: Vec<Call> = requests.iter().map(|request| self.schema.reserve(request)).collect();
        let answers = self.link.run_all(&calls).await;
        let granted = |(answer, request): (_, &Reserve)| {
            let granted = self.granted(answer, request);
            granted.map_err(|error| error.of(&request.name).during(Operation::Reserve))
        };
        answers.into_iter().zip(requests).map(granted).collect()
    }

    async fn try_reserve(&self, request: &Reserve) -> Result<Grant> {
        let grant = self.reserve_all(std::slice::from_ref(request)).await.pop();
        grant.unwrap_or_else(|| Err(ErrorKind::UnknownOutcome.into()))
    }

    async fn try_give_back(&self, back: &GiveBack) -> Result<bool> {
        self.held(&self.run(self.schema.give_back(back)).await?)
    }

    async fn try_create(&self, name: &SequenceName, bounds: Bounds) -> Result<SequenceInfo> {
        let info = SequenceInfo::stored(name.clone(), Some(bounds.start()), bounds, Identity::fresh());
        let answer = self.run(self.schema.create(&info)).await?;
        if self.held(&answer)? { Ok(info) } else { Err(already_exists(name)) }
    }

    async fn try_inspect(&self, name: &SequenceName) -> Result<Option<SequenceInfo>> {
        self.read(&self.run(self.schema.read(name)).await?, name)
    }

    fn read(&self, answer: &Answer, name: &SequenceName) -> Result<Option<SequenceInfo>> {
        match answer.word() {
            "missing" => Ok(None),
            "sequence" => {
                let unreadable = |_| {
                    Error::new(ErrorKind::StoreViolation, "the stored numbers are not valid for a sequence")
                };
                Ok(Some(schema::decode(answer, name).map_err(unreadable)?))
            }
            _ => Err(self.link.failed(&answer.garbled(), Asked::Read)),
        }
    }

    async fn try_list(&self, page: &Page) -> Result<Listing> {
        let read = |answer: &Answer, name: &SequenceName| self.read(answer, name);
        self.list_set(&self.schema.names(), page, |name| self.schema.read(name), read).await
    }

    /// Scans a set of names, which Redis returns in no order, and reads the value of each name.
    async fn list_set<P: Fill>(
        &self,
        set: &str,
        page: &Page,
        call: impl Fn(&SequenceName) -> Call,
        read: impl Fn(&Answer, &SequenceName) -> Result<Option<P::Row>>,
    ) -> Result<P> {
        let (next, members) = self.scan(set, page).await?;
        let mut listed = P::empty(next);
        for members in members.chunks(AT_ONCE) {
            let mut names = Vec::with_capacity(members.len());
            for member in members {
                match SequenceName::new(member) {
                    Ok(name) => names.push(name),
                    Err(error) => listed.add(member, Err(not_a_name(error))),
                }
            }
            let calls: Vec<Call> = names.iter().map(&call).collect();
            for ((answer, call), name) in self.link.run_all(&calls).await.into_iter().zip(&calls).zip(&names)
            {
                let answer = answer.map_err(|fault| self.link.failed(&fault, Asked::Read))?;
                match schema::checked(answer, &call.keys[0]).and_then(|answer| read(&answer, name)) {
                    Ok(Some(row)) => listed.add(name, Ok(row)),
                    // Removed since the scan.
                    Ok(None) => {}
                    Err(error) if error.status() == Status::Permanent => listed.add(name, Err(error)),
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(listed)
    }

    /// Scans members of a set that begin with the page's prefix, and returns the next cursor.
    async fn scan(&self, set: &str, page: &Page) -> Result<(Option<Cursor>, Vec<String>)> {
        let from = page.after.as_ref().map_or("0", Cursor::as_str);
        if !from.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(page.after.as_ref().map_or(ErrorKind::InvalidInput.into(), paging::foreign));
        }
        let scanned = self.link.members(set, from, paging::limit(page)).await;
        let (next, mut members) = scanned.map_err(|fault| self.link.failed(&fault, Asked::Read))?;
        members.retain(|member| member.starts_with(&page.prefix));
        members.sort();
        members.dedup();
        Ok(((next != "0").then(|| Cursor::new(next)), members))
    }

    /// Lists the sequences whose reserves are refused because another server wrote them. Stops after about a
    /// page of results.
    async fn refused(&self) -> Result<Vec<(SequenceName, Error)>> {
        let (mut refused, mut pages) = (Vec::new(), Pages::new(self, Page::default()));
        while let Some(page) = pages.next().await? {
            let calls: Vec<Call> =
                page.sequences.iter().map(|stored| self.schema.moved(&stored.name)).collect();
            for (answer, stored) in self.link.run_all(&calls).await.into_iter().zip(page.sequences) {
                let answer = answer.map_err(|fault| self.link.failed(&fault, Asked::Read))?;
                if answer.word() == "promoted" {
                    let [was, here] = schema::masters(&answer, REFUSED_BY).unwrap_or_default();
                    let error = Histories { was: &was, here: &here }.refusal(&stored.name);
                    refused.push((stored.name, error));
                }
            }
            if refused.len() >= Page::LIMIT {
                break;
            }
        }
        Ok(refused)
    }

    async fn try_set(&self, name: &SequenceName, change: Change) -> Result<SequenceInfo> {
        let set = || async {
            let seen = self.try_inspect(name).await?.ok_or_else(|| not_found(name))?;
            let mut after = seen.clone();
            after.apply(&change)?;
            let answer = self.run(self.schema.set(&seen, &after, history::decides(&change))).await?;
            Ok(self.held(&answer)?.then_some(after))
        };
        Contention::new().until(set).await
    }

    async fn try_remove(&self, name: &SequenceName, expected: Option<Identity>) -> Result<bool> {
        let answer = self.run(self.schema.remove(name, expected)).await?;
        if answer.word() == "sequence" {
            // The script returned the sequence because it has another identity.
            self.read(&answer, name)?.map_or(Ok(()), |stored| stored.check_identity(expected))?;
        }
        self.held(&answer)
    }

    async fn try_server(&self) -> Result<Option<String>> {
        let answer = self.run(self.schema.server()).await?;
        Ok(answer.words.get(1).filter(|run| !run.is_empty()).map(|run| format!("Redis server {run}")))
    }

    async fn try_record(&self, name: &SequenceName) -> Result<Option<String>> {
        self.kept(&self.run(self.schema.read_record(name)).await?)
    }

    fn kept(&self, answer: &Answer) -> Result<Option<String>> {
        match (answer.word(), answer.words.get(1)) {
            ("missing", _) => Ok(None),
            ("record", Some(record)) => Ok(Some(record.clone())),
            _ => Err(self.link.failed(&answer.garbled(), Asked::Read)),
        }
    }

    async fn try_swap_record(&self, name: &SequenceName, seen: Option<&str>, wanted: &str) -> Result<bool> {
        self.held(&self.run(self.schema.swap_record(name, seen, wanted)).await?)
    }

    async fn try_list_records(&self, page: &Page) -> Result<Records> {
        let (set, read) = (self.schema.record_names(), |answer: &Answer, _: &SequenceName| self.kept(answer));
        self.list_set(&set, page, |name| self.schema.read_record(name), read).await
    }

    /// Whether the condition of a script held.
    fn held(&self, answer: &Answer) -> Result<bool> {
        match answer.word() {
            "done" => Ok(true),
            "changed" | "exists" | "missing" => Ok(false),
            _ => Err(self.link.failed(&answer.garbled(), Asked::Write)),
        }
    }
}

impl Store for RedisStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new(self.durability).batches(true).shared(true).gives_back(true).records(true)
    }

    fn reserve_many<'a>(&'a self, requests: &'a [Reserve]) -> StoreFuture<'a, Vec<Result<Grant>>> {
        Box::pin(self.reserve_all(requests))
    }

    idmill::store_calls!(reserve give_back create inspect list set remove server record swap_record list_records);
}

/// The error for a sequence that another master wrote last.
fn refused(answer: &Answer, name: &SequenceName) -> Error {
    let [was, here] = schema::masters(answer, REFUSED_BY).unwrap_or_default();
    Histories { was: &was, here: &here }.refuse(name)
}

fn not_a_name(error: Error) -> Error {
    let message = format!("the set of names has an invalid name: {error}");
    Error::new(ErrorKind::StoreViolation, message).because(error)
}
