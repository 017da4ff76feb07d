//! The client: a [`Store`] that sends its calls to one or several servers.

mod classify;
mod connection;
mod options;

use idmill::store::{
    Bounds, Capabilities, Change, GiveBack, Grant, Identity, Listing, Page, Records, Reserve, SequenceInfo,
    Store, StoreFuture,
};
use idmill::{Error, ErrorKind, Operation, Result, SequenceName};
use idmill_kit::Scheme;

use self::classify::Asked;
use self::connection::Link;
pub use self::options::RemoteOptions;
use crate::protocol::{Ask, MOST, Outcome, Said};

const STORE: Scheme = Scheme::store::<RemoteOptions>("idmill", "idmill://HOST:PORT");

/// The URL schemes of this crate, for `Schemes::with` of `idmill-url`.
pub const SCHEMES: &[Scheme] = &[STORE, STORE.alias("idmills")];

/// Opens the store at a URL such as `idmill://HOST:PORT` and returns its sequences. They run on the current
/// tokio runtime.
///
/// # Errors
/// Returns the errors of [`idmill_kit::connect`].
pub async fn connect(url: &str) -> Result<idmill::Sequences> {
    idmill_kit::connect::<RemoteOptions>(url).await
}

/// The store behind one or several idmill servers. See the [crate docs](crate) for its guarantees.
#[derive(Debug)]
pub struct RemoteStore {
    link: Link,
    can: Capabilities,
}

/// Returns the outcomes of a batch, if the result has them.
type Read<T> = fn(&Said) -> Option<&Vec<Outcome<T>>>;

/// A request for items, and what reads the outcomes in its result.
type Batch<I, T> = (fn(Vec<I>) -> Ask, Read<T>);

/// Sends a request, and returns the part of its result that fits. Any other result is an error.
macro_rules! ask {
    ($this:ident, $asked:ident $ask:expr, $fits:pat $(if $when:expr)? => $value:expr) => {
        match $this.link.ask($ask).await? {
            $fits $(if $when)? => Ok($value),
            said => Err($this.link.garbled(&said, Asked::$asked)),
        }
    };
}

impl RemoteStore {
    /// Connects to one of the servers in a URL, as described at [`RemoteOptions`].
    ///
    /// # Errors
    /// Returns [`InvalidInput`](ErrorKind::InvalidInput) if the URL is invalid, and the errors of
    /// [`open_with`](Self::open_with).
    pub async fn open(url: &str) -> Result<Self> {
        Self::open_with(url.parse()?).await
    }

    /// Connects to one of the servers, and reads the capabilities of the store behind it. Creates no
    /// sequence.
    ///
    /// # Errors
    /// Returns [`InvalidInput`](ErrorKind::InvalidInput) for invalid options;
    /// [`Unavailable`](ErrorKind::Unavailable) if no server can be reached; [`Denied`](ErrorKind::Denied) if
    /// the token is missing or has neither the right `reserve` nor `administer`;
    /// [`Unsupported`](ErrorKind::Unsupported) if the server is another Redis server, or uses another version
    /// of the protocol.
    pub async fn open_with(options: RemoteOptions) -> Result<Self> {
        let opened = async {
            options.check()?;
            let link = Link::new(options);
            let can = link.greet().await?;
            Ok(Self { link, can })
        };
        opened.await.map_err(|error: Error| error.during(Operation::Connect))
    }

    /// Sends the requests for these items, up to [`MOST`] at a time. `read` returns the outcomes in a result,
    /// and `check` completes each of them.
    async fn batch<I: Clone, T: Clone>(
        &self,
        items: &[I],
        asked: Asked,
        (ask, read): Batch<I, T>,
        check: impl Fn(Result<T>, &I) -> Result<T>,
    ) -> Vec<Result<T>> {
        let mut all = Vec::with_capacity(items.len());
        for items in items.chunks(MOST) {
            let said = self.link.ask(ask(items.to_vec())).await;
            let outcomes = said.and_then(|said| {
                let outcomes = read(&said).filter(|outcomes| outcomes.len() == items.len()).cloned();
                outcomes.ok_or_else(|| self.link.garbled(&said, asked))
            });
            let results: Vec<_> = match outcomes {
                Ok(outcomes) => outcomes.into_iter().map(Outcome::result).collect(),
                Err(error) => vec![Err(error); items.len()],
            };
            all.extend(results.into_iter().zip(items).map(|(result, item)| check(result, item)));
        }
        all
    }

    async fn try_reserve(&self, request: &Reserve) -> Result<Grant> {
        let grant = self.reserve_many(std::slice::from_ref(request)).await.pop();
        grant.unwrap_or_else(|| Err(ErrorKind::UnknownOutcome.into()))
    }

    async fn try_give_back(&self, back: &GiveBack) -> Result<bool> {
        let GiveBack { name, identity, rest, .. } = back.clone();
        ask!(self, Write Ask::GiveBack { name, identity, rest }, Said::Done(done) => done)
    }

    async fn try_create(&self, name: &SequenceName, bounds: Bounds) -> Result<SequenceInfo> {
        let ask = Ask::Create { name: name.clone(), bounds };
        ask!(self, Write ask, Said::Sequence(info) if info.name == *name => info)
    }

    async fn try_set(&self, name: &SequenceName, change: Change) -> Result<SequenceInfo> {
        let ask = Ask::Set { name: name.clone(), change };
        ask!(self, Write ask, Said::Sequence(info) if info.name == *name => info)
    }

    async fn try_inspect(&self, name: &SequenceName) -> Result<Option<SequenceInfo>> {
        let found = self.inspect_many(std::slice::from_ref(name)).await.pop();
        found.unwrap_or_else(|| Err(ErrorKind::Unavailable.into()))
    }

    async fn try_list(&self, page: &Page) -> Result<Listing> {
        ask!(self, Read Ask::List(page.clone()), Said::Rows(rows) => rows.into())
    }

    async fn try_remove(&self, name: &SequenceName, expected: Option<Identity>) -> Result<bool> {
        let name = name.clone();
        let remove = match expected {
            Some(identity) => Ask::RemoveIf { name, identity },
            None => Ask::Remove(name),
        };
        ask!(self, Write remove, Said::Done(done) => done)
    }

    async fn try_server(&self) -> Result<Option<String>> {
        match self.link.ask(Ask::Server).await {
            Ok(Said::Server(server)) => Ok(server),
            // A server of an earlier release does not know the request.
            Err(error) if error.kind() == ErrorKind::InvalidInput => Ok(None),
            said => Err(self.link.garbled(&said?, Asked::Read)),
        }
    }

    async fn try_record(&self, name: &SequenceName) -> Result<Option<String>> {
        ask!(self, Read Ask::Record(name.clone()), Said::Record(record) => record)
    }

    async fn try_swap_record(&self, name: &SequenceName, seen: Option<&str>, wanted: &str) -> Result<bool> {
        let (name, seen, wanted) = (name.clone(), seen.map(str::to_owned), wanted.to_owned());
        ask!(self, Write Ask::SwapRecord { name, seen, wanted }, Said::Done(done) => done)
    }

    async fn try_list_records(&self, page: &Page) -> Result<Records> {
        ask!(self, Read Ask::ListRecords(page.clone()), Said::Records(records) => records.into())
    }
}

impl Store for RemoteStore {
    fn capabilities(&self) -> Capabilities {
        self.can
    }

    fn reserve_many<'a>(&'a self, requests: &'a [Reserve]) -> StoreFuture<'a, Vec<Result<Grant>>> {
        let read: Read<Grant> = |said| if let Said::Grants(grants) = said { Some(grants) } else { None };
        let check = |grant: Result<Grant>, request: &Reserve| {
            let grant = grant.and_then(|grant| possible(grant, request));
            grant.map_err(|error| error.of(&request.name).during(Operation::Reserve))
        };
        Box::pin(self.batch(requests, Asked::Write, (Ask::Reserve, read), check))
    }

    fn inspect_many<'a>(
        &'a self,
        names: &'a [SequenceName],
    ) -> StoreFuture<'a, Vec<Result<Option<SequenceInfo>>>> {
        let read: Read<_> = |said| if let Said::Sequences(found) = said { Some(found) } else { None };
        let check = |found: Result<Option<SequenceInfo>>, name: &SequenceName| {
            let found = found.and_then(|found| match found {
                Some(info) if info.name != *name => {
                    Err(self.link.garbled(&Said::Sequence(info), Asked::Read))
                }
                found => Ok(found),
            });
            found.map_err(|error| error.of(name).during(Operation::Inspect))
        };
        Box::pin(self.batch(names, Asked::Read, (Ask::Inspect, read), check))
    }

    idmill::store_calls!(reserve give_back create inspect list set remove server record swap_record list_records);
}

/// Rejects a grant that no store can return for this request.
fn possible(grant: Grant, request: &Reserve) -> Result<Grant> {
    let (range, bounds) = (grant.range, grant.bounds);
    let last = range.last().filter(|last| *last <= bounds.max().min(request.ceiling));
    if last.is_some() && range.start() >= bounds.start() && range.len() <= request.count.max(1) {
        return Ok(grant);
    }
    let message = format!(
        "the server granted {range:?} of {bounds}, but {} ids up to {} were requested; the answer was \
         rejected",
        request.count, request.ceiling
    );
    Err(Error::new(ErrorKind::StoreViolation, message))
}
