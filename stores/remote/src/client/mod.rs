//! The client: a [`Store`] that sends its calls to one or several servers.

mod classify;
mod link;
mod options;

use idmill::store::{
    Bounds, Capabilities, Change, GiveBack, Grant, Identity, Listing, Page, Records, Reserve, SequenceInfo,
    Store, StoreFuture,
};
use idmill::{Error, ErrorKind, Operation, Result, SequenceName};
use idmill_kit::Scheme;

use self::classify::Asked;
use self::link::Link;
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

    async fn read(&self, ask: Ask) -> Result<Said> {
        self.link.ask(ask, Asked::Read).await
    }

    async fn write(&self, ask: Ask) -> Result<Said> {
        self.link.ask(ask, Asked::Write).await
    }

    /// Sends up to [`MOST`] reserves as one request.
    async fn reserve_some(&self, requests: &[Reserve]) -> Vec<Result<Grant>> {
        let said = self.write(Ask::Reserve(requests.to_vec())).await;
        let outcomes = match said {
            Ok(Said::Grants(outcomes)) if outcomes.len() == requests.len() => outcomes,
            other => return vec![Err(self.refused(other, Asked::Write)); requests.len()],
        };
        let granted = outcomes.into_iter().map(Outcome::result);
        granted.zip(requests).map(|(grant, request)| possible(grant?, request)).collect()
    }

    /// Reads up to [`MOST`] sequences with one request.
    async fn inspect_some(&self, names: &[SequenceName]) -> Vec<Result<Option<SequenceInfo>>> {
        let said = self.read(Ask::Inspect(names.to_vec())).await;
        let outcomes = match said {
            Ok(Said::Sequences(outcomes)) if outcomes.len() == names.len() => outcomes,
            other => return vec![Err(self.refused(other, Asked::Read)); names.len()],
        };
        let found = outcomes.into_iter().map(Outcome::result);
        found.zip(names).map(|(found, name)| found.and_then(|found| self.named(found, name))).collect()
    }

    fn named(&self, found: Option<SequenceInfo>, name: &SequenceName) -> Result<Option<SequenceInfo>> {
        match found {
            Some(info) if info.name != *name => Err(self.refused(Ok(Said::Sequence(info)), Asked::Read)),
            found => Ok(found),
        }
    }

    /// Returns the error of a failed call: the error that the call returned, or an error for a reply that
    /// does not fit the request.
    fn refused(&self, said: Result<Said>, asked: Asked) -> Error {
        match said {
            Err(error) => error,
            Ok(said) => self.link.garbled(&said, asked),
        }
    }

    async fn try_give_back(&self, back: &GiveBack) -> Result<bool> {
        let GiveBack { name, identity, rest, .. } = back.clone();
        self.done(self.write(Ask::GiveBack { name, identity, rest }).await)
    }

    fn done(&self, said: Result<Said>) -> Result<bool> {
        match said {
            Ok(Said::Done(done)) => Ok(done),
            other => Err(self.refused(other, Asked::Write)),
        }
    }

    async fn try_create(&self, name: &SequenceName, bounds: Bounds) -> Result<SequenceInfo> {
        self.changed(self.write(Ask::Create { name: name.clone(), bounds }).await, name)
    }

    async fn try_set(&self, name: &SequenceName, change: Change) -> Result<SequenceInfo> {
        self.changed(self.write(Ask::Set { name: name.clone(), change }).await, name)
    }

    fn changed(&self, said: Result<Said>, name: &SequenceName) -> Result<SequenceInfo> {
        match said {
            Ok(Said::Sequence(info)) if info.name == *name => Ok(info),
            other => Err(self.refused(other, Asked::Write)),
        }
    }

    async fn try_inspect(&self, name: &SequenceName) -> Result<Option<SequenceInfo>> {
        let found = self.inspect_some(std::slice::from_ref(name)).await.pop();
        found.unwrap_or_else(|| Err(ErrorKind::Unavailable.into()))
    }

    async fn try_list(&self, page: &Page) -> Result<Listing> {
        match self.read(Ask::List(page.clone())).await {
            Ok(Said::Rows(rows)) => Ok(rows.into()),
            other => Err(self.refused(other, Asked::Read)),
        }
    }

    async fn try_remove(&self, name: &SequenceName, expected: Option<Identity>) -> Result<bool> {
        let name = name.clone();
        let remove = match expected {
            Some(identity) => Ask::RemoveIf { name, identity },
            None => Ask::Remove(name),
        };
        self.done(self.write(remove).await)
    }

    async fn try_server(&self) -> Result<Option<String>> {
        match self.read(Ask::Server).await {
            Ok(Said::Server(server)) => Ok(server),
            // A server of an earlier release does not know the request.
            Err(error) if error.kind() == ErrorKind::InvalidInput => Ok(None),
            other => Err(self.refused(other, Asked::Read)),
        }
    }

    async fn try_record(&self, name: &SequenceName) -> Result<Option<String>> {
        match self.read(Ask::Record(name.clone())).await {
            Ok(Said::Record(record)) => Ok(record),
            other => Err(self.refused(other, Asked::Read)),
        }
    }

    async fn try_swap_record(&self, name: &SequenceName, seen: Option<&str>, wanted: &str) -> Result<bool> {
        let (name, seen, wanted) = (name.clone(), seen.map(str::to_owned), wanted.to_owned());
        self.done(self.write(Ask::SwapRecord { name, seen, wanted }).await)
    }

    async fn try_list_records(&self, page: &Page) -> Result<Records> {
        match self.read(Ask::ListRecords(page.clone())).await {
            Ok(Said::Records(records)) => Ok(records.into()),
            other => Err(self.refused(other, Asked::Read)),
        }
    }
}

impl Store for RemoteStore {
    fn capabilities(&self) -> Capabilities {
        self.can
    }

    fn reserve<'a>(&'a self, request: &'a Reserve) -> StoreFuture<'a, Result<Grant>> {
        Box::pin(async move {
            let grant = self.reserve_many(std::slice::from_ref(request)).await.pop();
            grant.unwrap_or_else(|| Err(ErrorKind::UnknownOutcome.into()))
        })
    }

    fn reserve_many<'a>(&'a self, requests: &'a [Reserve]) -> StoreFuture<'a, Vec<Result<Grant>>> {
        Box::pin(async move {
            let mut grants = Vec::with_capacity(requests.len());
            for requests in requests.chunks(MOST) {
                let some = self.reserve_some(requests).await.into_iter().zip(requests);
                let context =
                    |error: Error, request: &Reserve| error.of(&request.name).during(Operation::Reserve);
                grants.extend(some.map(|(grant, request)| grant.map_err(|error| context(error, request))));
            }
            grants
        })
    }

    fn inspect_many<'a>(
        &'a self,
        names: &'a [SequenceName],
    ) -> StoreFuture<'a, Vec<Result<Option<SequenceInfo>>>> {
        Box::pin(async move {
            let mut all = Vec::with_capacity(names.len());
            for names in names.chunks(MOST) {
                let some = self.inspect_some(names).await.into_iter().zip(names);
                let context = |error: Error, name: &SequenceName| error.of(name).during(Operation::Inspect);
                all.extend(some.map(|(found, name)| found.map_err(|error| context(error, name))));
            }
            all
        })
    }

    idmill::store_calls!(give_back create inspect list set remove server record swap_record list_records);
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
