//! An engine of a few lines, and a client with typical bugs of clients.
//!
//! The client. Requests and answers are lines of words separated by tabs.

mod server;

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use idmill::store::{
    Bounds, Capabilities, Change, Cursor, Durability, GiveBack, Grant, Identity, Listing, Page, Records,
    Reserve, SequenceInfo, Store, StoreFuture,
};
use idmill::{Error, ErrorKind, IdRange, Result, SequenceName};
use idmill_conformance::{Daemon, Endpoint, Suite, Timeouts, free_port};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufStream};
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use crate::patient;

const SERVER: &str = "IDMILL_TEST_TOY_SERVER";
const DIR: &str = "IDMILL_TEST_TOY_DIR";
const FORGETS: &str = "IDMILL_TEST_TOY_FORGETS";

/// The bug of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    None,
    /// Reports that nothing was reserved whenever it gets no answer.
    ClaimsUnavailable,
    /// Retries when it gets no answer.
    AsksAgain,
    /// Compares and sets, retries when it gets no answer, and takes an equal value for its own write.
    RecognisesByValue,
    /// Retries a creation when it gets no answer.
    CreatesAgain,
    /// Creates a sequence with a claim, which it sends again when it gets no answer.
    SendsItsClaimAgain,
    /// Retries a removal when it gets no answer.
    RemovesAgain,
    /// Reports that nothing was created, changed or removed whenever it gets no answer.
    ClaimsUnchanged,
    /// Takes a status of HTTP that means an error for a write without effect.
    TrustsServerErrors,
    /// Retries a give-back when it gets no answer.
    GivesBackAgain,
    /// Retries a write of a record when it gets no answer, and then reports the record as not written.
    SwapsAgain,
    /// Keeps the connection of a dropped call for the next call.
    TakesLateReplies,
    /// Panics on nonsense from the engine.
    Panics,
    /// Does not reconnect after its connection has broken.
    NeverReconnects,
    /// Treats a broken connection as a refusal.
    GivesUp,
    /// Always connects to the first address that any client was given.
    GoesAround,
    /// Waits for an answer on a connection that has ended.
    Waits,
    /// Reads and writes back, under a lock that other processes do not see.
    LocksItselfOnly,
}

#[derive(Debug)]
pub(crate) struct Toy {
    endpoint: Endpoint,
    bug: Bug,
    connection: Mutex<Option<BufStream<TcpStream>>>,
    alone: Mutex<()>,
    broken: std::sync::atomic::AtomicBool,
}

impl Toy {
    fn new(endpoint: Endpoint, bug: Bug) -> Self {
        let (connection, alone) = (Mutex::new(None), Mutex::new(()));
        Self { endpoint, bug, connection, alone, broken: false.into() }
    }

    async fn connect(&self) -> Result<BufStream<TcpStream>> {
        use std::sync::atomic::Ordering::SeqCst;
        if self.bug == Bug::NeverReconnects && self.broken.swap(true, SeqCst) {
            return Err(Error::new(ErrorKind::Unavailable, "not connected"));
        }
        let around = self.endpoint.dir().join("address");
        let address = match self.bug {
            Bug::GoesAround if around.exists() => std::fs::read_to_string(around).unwrap().parse().unwrap(),
            Bug::GoesAround => {
                std::fs::write(around, self.endpoint.address().to_string()).unwrap();
                self.endpoint.address()
            }
            _ => self.endpoint.address(),
        };
        let stream = TcpStream::connect(address).await;
        let stream =
            stream.map_err(|error| Error::new(ErrorKind::Unavailable, "no connection").because(error))?;
        Ok(BufStream::new(stream))
    }

    async fn call(&self, words: &[String], writes: bool) -> Result<Vec<String>> {
        let mut slot = self.connection.lock().await;
        let mut attempts = 0;
        loop {
            // Take the connection out of the slot, so that dropping the call drops it.
            let mut connection = match slot.take() {
                Some(connection) => connection,
                None => self.connect().await?,
            };
            let outcome = if self.bug == Bug::TakesLateReplies {
                let placed = slot.insert(connection);
                let outcome = self.exchange(placed, words, writes).await;
                if outcome.is_err() {
                    *slot = None;
                }
                outcome
            } else {
                let outcome = self.exchange(&mut connection, words, writes).await;
                if outcome.is_ok() {
                    *slot = Some(connection);
                }
                outcome
            };
            attempts += 1;
            let again = match self.bug {
                Bug::AsksAgain => true,
                Bug::GivesBackAgain => words[0] == "back",
                Bug::CreatesAgain => words[0] == "create",
                Bug::SendsItsClaimAgain => words[0] == "claim",
                Bug::RemovesAgain => words[0] == "remove",
                Bug::SwapsAgain => words[0] == "swap",
                _ => false,
            };
            if outcome.is_err() && again && attempts == 1 {
                continue;
            }
            return answered(&outcome?);
        }
    }

    async fn exchange(
        &self,
        connection: &mut BufStream<TcpStream>,
        words: &[String],
        writes: bool,
    ) -> Result<Vec<String>> {
        let line = words.join("\t") + "\n";
        let mut answer = String::new();
        let exchange = async {
            connection.write_all(line.as_bytes()).await?;
            connection.flush().await?;
            connection.read_line(&mut answer).await
        };
        let lost = match self.bug {
            Bug::ClaimsUnavailable => ErrorKind::Unavailable,
            Bug::ClaimsUnchanged if ["create", "set", "remove"].contains(&&*words[0]) => {
                ErrorKind::Unavailable
            }
            Bug::GivesUp => ErrorKind::Denied,
            _ if writes => ErrorKind::UnknownOutcome,
            _ => ErrorKind::Unavailable,
        };
        let read = exchange.await;
        if self.bug == Bug::TrustsServerErrors && answer.starts_with("HTTP/1.1 5") {
            return Err(Error::new(ErrorKind::Unavailable, answer));
        }
        if self.bug == Bug::Panics
            && read.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::InvalidData)
        {
            panic!("an answer has to be text");
        }
        if !answer.ends_with('\n') {
            if self.bug == Bug::Waits {
                std::future::pending::<()>().await;
            }
            return Err(Error::new(lost, format!("no answer: {read:?}")));
        }
        Ok(answer.trim_end_matches('\n').split('\t').map(str::to_owned).collect())
    }

    /// Returns the sequence, which is created if it is missing.
    async fn found(&self, request: &Reserve) -> Result<SequenceInfo> {
        match self.inspect(&request.name).await? {
            Some(info) => Ok(info),
            None => match self.create(&request.name, request.creation()?).await {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    Ok(self.inspect(&request.name).await?.expect("it exists"))
                }
                created => created,
            },
        }
    }

    /// Creates the sequence if it is missing, with an incarnation that the client chooses.
    async fn claim(&self, request: &Reserve) -> Result<()> {
        let Some(bounds) = request.create else { return Ok(()) };
        if self.inspect(&request.name).await?.is_none() {
            let numbers = [bounds.start(), bounds.max(), fastrand::u64(1..1 << 53)];
            self.call(&words("claim", &request.name, &numbers), true).await?;
        }
        Ok(())
    }

    async fn reserve_by_value(&self, request: &Reserve) -> Result<Grant> {
        loop {
            let mut info = self.found(request).await?;
            let (from, grant) = (info.next, info.grant(request.count, request.ceiling)?);
            let numbers = [from, info.next].map(|next| next.expect("far from the end"));
            let words = words("advance", &request.name, &numbers);
            let moved = match self.call(&words, true).await {
                Err(_) if !whether(&self.call(&words, true).await?)? => {
                    self.inspect(&request.name).await?.is_some_and(|now| now.next == info.next)
                }
                Err(_) => true,
                Ok(answer) => whether(&answer)?,
            };
            if moved {
                return Ok(grant);
            }
        }
    }

    async fn reserve_alone(&self, request: &Reserve) -> Result<Grant> {
        let _alone = self.alone.lock().await;
        let mut info = self.found(request).await?;
        let grant = info.grant(request.count, request.ceiling)?;
        let change = Change::new().next(info.next).backwards(true);
        self.set(&request.name, change).await?;
        Ok(Grant::new(grant.range, Identity { epoch: 0, ..grant.identity }, grant.bounds))
    }
}

fn answered(answer: &[String]) -> Result<Vec<String>> {
    if answer.first().map(String::as_str) != Some("error") {
        return Ok(if answer == [""] { Vec::new() } else { answer.to_vec() });
    }
    let kinds = [
        ErrorKind::Exhausted,
        ErrorKind::AlreadyExists,
        ErrorKind::NotFound,
        ErrorKind::Conflict,
        ErrorKind::InvalidInput,
        ErrorKind::Unavailable,
        ErrorKind::UnknownOutcome,
    ];
    let kind = kinds.into_iter().find(|kind| Some(kind.as_str()) == answer.get(1).map(String::as_str));
    Err(Error::new(kind.unwrap_or(ErrorKind::StoreViolation), answer.last().cloned().unwrap_or_default()))
}

fn garbage<W: std::fmt::Debug>(words: &[W]) -> Error {
    Error::new(ErrorKind::StoreViolation, format!("nonsense: {words:?}"))
}

fn number<W: AsRef<str> + std::fmt::Debug>(words: &[W], at: usize) -> Result<u64> {
    words.get(at).and_then(|word| word.as_ref().parse().ok()).ok_or_else(|| garbage(words))
}

fn whether(words: &[String]) -> Result<bool> {
    match words {
        [answer] if answer == "true" => Ok(true),
        [answer] if answer == "false" => Ok(false),
        other => Err(garbage(other)),
    }
}

fn info(words: &[String]) -> Result<SequenceInfo> {
    Ok(SequenceInfo::stored(
        SequenceName::new(words.first().map_or("", String::as_str))?,
        number(words, 1).ok(),
        Bounds::new(number(words, 2)?, number(words, 3)?)?,
        Identity { incarnation: number(words, 4)?, epoch: number(words, 5)? },
    ))
}

fn words(verb: &str, name: &SequenceName, numbers: &[u64]) -> Vec<String> {
    let start = [verb.to_owned(), name.to_string()];
    start.into_iter().chain(numbers.iter().map(u64::to_string)).collect()
}

impl Store for Toy {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new(Durability::Disk).shared(true).gives_back(true).records(true)
    }

    fn reserve<'a>(&'a self, request: &'a Reserve) -> StoreFuture<'a, Result<Grant>> {
        Box::pin(async move {
            match self.bug {
                Bug::LocksItselfOnly => return self.reserve_alone(request).await,
                Bug::RecognisesByValue => return self.reserve_by_value(request).await,
                Bug::SendsItsClaimAgain => self.claim(request).await?,
                _ => {}
            }
            let mut asked = words("reserve", &request.name, &[request.count, request.ceiling]);
            // A bound is empty if the sequence must exist.
            let bound = |of: fn(Bounds) -> u64| {
                request.create.map_or_else(String::new, |create| of(create).to_string())
            };
            asked.extend([bound(Bounds::start), bound(Bounds::max)]);
            let answer = self.call(&asked, true).await?;
            let range =
                IdRange::new(number(&answer, 0)?, number(&answer, 1)?).ok_or_else(|| garbage(&answer))?;
            let identity = Identity { incarnation: number(&answer, 2)?, epoch: number(&answer, 3)? };
            Ok(Grant::new(range, identity, Bounds::new(number(&answer, 4)?, number(&answer, 5)?)?))
        })
    }

    fn give_back<'a>(&'a self, back: &'a GiveBack) -> StoreFuture<'a, Result<bool>> {
        Box::pin(async move {
            let (rest, identity) = (back.rest, back.identity);
            let numbers = [rest.start(), rest.len(), identity.incarnation, identity.epoch];
            self.call(&words("back", &back.name, &numbers), true).await.and_then(|answer| whether(&answer))
        })
    }

    fn create<'a>(&'a self, name: &'a SequenceName, bounds: Bounds) -> StoreFuture<'a, Result<SequenceInfo>> {
        Box::pin(async move {
            info(&self.call(&words("create", name, &[bounds.start(), bounds.max()]), true).await?)
        })
    }

    fn inspect<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<Option<SequenceInfo>>> {
        Box::pin(async move {
            let answer = self.call(&words("inspect", name, &[]), false).await?;
            if answer.is_empty() { Ok(None) } else { info(&answer).map(Some) }
        })
    }

    fn list<'a>(&'a self, page: &'a Page) -> StoreFuture<'a, Result<Listing>> {
        Box::pin(async move {
            let all = self.call(&["list".to_owned()], false).await?;
            let all = all.chunks(6).map(info).collect::<Result<Vec<_>>>()?;
            let after = page.after.as_ref().map_or("", Cursor::as_str);
            let mut rest = all.into_iter().filter(|info| info.name.as_str() > after);
            let mut rest = rest.by_ref().filter(|info| info.name.starts_with(&page.prefix));
            let sequences: Vec<_> = rest.by_ref().take(page.limit).collect();
            let next = rest.next().and(sequences.last()).map(|last| Cursor::new(last.name.as_str()));
            Ok(Listing::new(sequences, next))
        })
    }

    fn set<'a>(&'a self, name: &'a SequenceName, change: Change) -> StoreFuture<'a, Result<SequenceInfo>> {
        Box::pin(async move {
            let shown =
                |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
            let mut words = words("set", name, &[]);
            words.extend([shown(change.next), shown(change.max)]);
            words.extend([change.backwards.to_string(), change.revoke.to_string()]);
            words.extend(
                change.expect.iter().flat_map(|one| [one.incarnation.to_string(), one.epoch.to_string()]),
            );
            info(&self.call(&words, true).await?)
        })
    }

    fn remove<'a>(
        &'a self,
        name: &'a SequenceName,
        expected: Option<Identity>,
    ) -> StoreFuture<'a, Result<bool>> {
        Box::pin(async move {
            let identity = expected.map(|one| [one.incarnation, one.epoch]);
            let words = words("remove", name, identity.as_ref().map_or(&[], <[u64; 2]>::as_slice));
            Ok(self.call(&words, true).await? == ["true"])
        })
    }

    fn record<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<Option<String>>> {
        Box::pin(async move { Ok(self.call(&words("record", name, &[]), false).await?.pop()) })
    }

    fn swap_record<'a>(
        &'a self,
        name: &'a SequenceName,
        seen: Option<&'a str>,
        wanted: &'a str,
    ) -> StoreFuture<'a, Result<bool>> {
        Box::pin(async move {
            let seen = seen.map_or_else(|| "-".to_owned(), |seen| format!("={seen}"));
            let mut words = words("swap", name, &[]);
            words.extend([seen, wanted.to_owned()]);
            self.call(&words, true).await.and_then(|answer| whether(&answer))
        })
    }

    fn list_records<'a>(&'a self, page: &'a Page) -> StoreFuture<'a, Result<Records>> {
        Box::pin(async move {
            let mut records = Records::default();
            let all = self.call(&["records".to_owned()], false).await?;
            for record in all.chunks(2).filter(|record| record[0].starts_with(&page.prefix)) {
                records.add(&record[0], record.get(1).cloned().ok_or_else(|| garbage(record)));
            }
            Ok(records)
        })
    }
}

// ---------------------------------------------------------------------------------------------------------
// the suite

/// The rows that an engine loses when it starts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Forgets {
    Nothing,
    /// Like an engine that answers before its log is on disk.
    TheLast,
    Everything,
    Records,
}

/// The engine as a process.
fn engine(forgets: Forgets) -> Daemon {
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], free_port()));
    let daemon = Daemon::in_directory(address, move |dir| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["toy::server::process", "--exact", "--nocapture"]);
        command.env(SERVER, address.to_string()).env(DIR, dir);
        match forgets {
            Forgets::Nothing => &mut command,
            Forgets::TheLast => command.env(FORGETS, "UPDATE idmill_sequences SET next = max(1, next - 40)"),
            Forgets::Everything => command.env(FORGETS, "DELETE FROM idmill_sequences"),
            Forgets::Records => command.env(FORGETS, "DROP TABLE IF EXISTS idmill_witness"),
        };
        command
    });
    daemon.named("toy", "1")
}

/// The suite of a client with a bug. `test` is the calling test, which worker processes run, too.
pub(crate) fn suite(bug: Bug, forgets: Forgets, test: &str) -> Suite {
    let connect = move |endpoint| async move {
        let store: Arc<dyn Store> = Arc::new(Toy::new(endpoint, bug));
        store.list(&Page::default()).await?;
        Ok(store)
    };
    let suite = Suite::new(format!("toy-{bug:?}"), connect).engine(engine(forgets));
    let timeouts = match bug {
        Bug::None => Timeouts::default().pause(Duration::from_millis(600)),
        // This bug shows as a call that never returns. The timeout must be long enough for the calls that do
        // return.
        Bug::Waits => patient().call(Duration::from_secs(10)),
        Bug::NeverReconnects => patient().recovery(Duration::from_secs(3)),
        _ => patient(),
    };
    suite.timeouts(timeouts).worker_arguments([test, "--exact", "--nocapture"])
}
