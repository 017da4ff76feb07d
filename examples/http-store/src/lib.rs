//! Sequences in an HTTP document service with conditional requests, `doc://HOST:PORT`.
//!
//! Every sequence is a JSON document at `/sequences/NAME.json`, every record one at `/records/NAME.json`.
//! (Clients shorten a path whose last part is `.` or `..`, even if encoded; the suffix prevents this.) There
//! must be no cache in front of the service, and different texts must have different `ETag`s.

use std::str::FromStr as _;
use std::time::Duration;

use idmill::store::{
    Capabilities, Cursor, Durability, Listing, Page, Records, SequenceInfo, Store, StoreFuture,
};
use idmill::{Error, ErrorKind, Result, SequenceName};
use idmill_kit::options::{Options as _, TIMEOUT};
use idmill_kit::{
    Address, Asked, CompareAndSet, Fill, InvalidRow, Numbers, Resend, Scheme, Swapped, Swapping, Target,
    Versioned, advised, chain, refuse,
};
use reqwest::header::{ETAG, HeaderMap, IF_MATCH, IF_NONE_MATCH};
use reqwest::{Client, StatusCode, Url};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

pub const SCHEMES: &[Scheme] = &[Scheme::store::<DocOptions>("doc", "doc://HOST:PORT")];

/// Opens the store at a URL such as `doc://HOST:PORT`, and its sequences, on the current tokio runtime.
///
/// # Errors
/// Those of [`idmill_kit::connect`].
pub async fn connect(url: &str) -> Result<idmill::Sequences> {
    idmill_kit::connect::<DocOptions>(url).await
}

idmill_kit::options! {
    /// The options of the store.
    pub struct DocOptions at hosts "doc" as "doc://HOST:PORT" {
        /// The service.
        pub address: Address,
    }
    /// The time limit of a read or of a write with all its attempts.
    pub timeout: Duration = "5s" in TIMEOUT;
}

impl DocOptions {
    fn at(_scheme: &str, place: &str) -> Result<Self> {
        let address = Address::parse(place, None);
        address
            .map(Self::with_defaults)
            .ok_or_else(|| refuse("the address is invalid; write `doc://HOST:PORT`"))
    }

    fn place(&self) -> String {
        format!("doc://{}", self.address)
    }

    fn check(&self) -> Result<()> {
        self.check_values()
    }
}

impl Target for DocOptions {
    // Opening creates nothing, so the mode that creates nothing is the same.
    idmill_kit::target!(|options| "doc" => DocStore::open);
}

#[derive(Clone, Debug)]
pub struct DocStore {
    client: Client,
    options: DocOptions,
}

/// A conditional write. Both attempts send the same text, with the same claim.
struct Write {
    url: Url,
    /// The `ETag` that must be stored; `None` if no document may be stored.
    seen: Option<String>,
    /// The new document; `None` removes it.
    wanted: Option<Value>,
}

/// A reply that is not the expected one, or none.
#[derive(Debug)]
pub enum Failed {
    /// The request was not sent, or no complete and readable reply arrived.
    Lost(reqwest::Error),
    /// A complete reply with this status.
    Status(StatusCode),
    /// A complete reply that is not of the expected form.
    Unreadable(String),
}

/// The one place where failures become errors: the table "Errors" of docs/store.md.
pub fn classify(asked: Asked, address: &Address, failed: Failed) -> Error {
    use StatusCode as Is;
    let said = match &failed {
        Failed::Lost(error) => chain(error),
        Failed::Status(status) => format!("HTTP status {status}"),
        Failed::Unreadable(what) => what.clone(),
    };
    let (kind, advice) = match &failed {
        // The connector of reqwest failed: no byte of the request was sent.
        Failed::Lost(error) if error.is_connect() => {
            (ErrorKind::Unavailable, Some("check that the service runs at this address"))
        }
        Failed::Lost(_) => (asked.doubt(), None),
        Failed::Unreadable(_) if asked == Asked::Read => (ErrorKind::Unavailable, None),
        Failed::Unreadable(_) => (ErrorKind::StoreViolation, None),
        Failed::Status(Is::TOO_MANY_REQUESTS) => (ErrorKind::Unavailable, None),
        Failed::Status(Is::UNAUTHORIZED | Is::FORBIDDEN) => {
            (ErrorKind::Denied, Some("idmill needs GET, PUT and DELETE in /sequences and /records"))
        }
        Failed::Status(Is::NOT_FOUND) => (ErrorKind::NotFound, Some("the service has no such collection")),
        // 500, 502, 503, 504, and all others: a server or a proxy may send them after the write.
        Failed::Status(_) => (asked.doubt(), None),
    };
    advised(kind, format!("{address}: {said}"), advice)
}

impl DocStore {
    /// Creates the client. The first request connects.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for invalid options.
    pub async fn open(options: DocOptions) -> Result<Self> {
        options.check()?;
        let client = Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none()) // a redirected write would be sent twice
            .retry(reqwest::retry::never())
            .timeout(options.timeout)
            .connect_timeout(options.timeout / 2) // so that it ends before the timeout, and is known as such
            .build();
        let client = client.map_err(|error| refuse(chain(&error)))?;
        Ok(Self { client, options })
    }

    /// Returns the URL of a document, or of the collection.
    fn url(&self, collection: &str, name: Option<&SequenceName>) -> Url {
        let base = format!("http://{}/{collection}", self.options.address);
        let mut url = Url::parse(&base).expect("an address and a word are a URL");
        if let (Some(name), Ok(mut path)) = (name, url.path_segments_mut()) {
            path.push(&format!("{name}.json"));
        }
        url
    }

    fn error(&self, asked: Asked, failed: Failed) -> Error {
        classify(asked, &self.options.address, failed)
    }

    /// Reads JSON and its headers; `None` if there is no such document.
    async fn get(&self, url: Url) -> Result<Option<(HeaderMap, Value)>> {
        let failed = |failed| self.error(Asked::Read, failed);
        let reply = self.client.get(url).send().await.map_err(|error| failed(Failed::Lost(error)))?;
        match reply.status() {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND => return Ok(None),
            status => return Err(failed(Failed::Status(status))),
        }
        let headers = reply.headers().clone();
        let json = reply.json().await.map_err(|error| failed(Failed::Lost(error)))?;
        Ok(Some((headers, json)))
    }

    async fn document(&self, url: Url) -> Result<Option<(String, Value)>> {
        let Some((headers, json)) = self.get(url).await? else { return Ok(None) };
        let tag = headers.get(ETAG).and_then(|tag| tag.to_str().ok()).filter(|tag| tag.starts_with('"'));
        let none = || self.error(Asked::Read, Failed::Unreadable("no strong ETag".to_owned()));
        Ok(Some((tag.ok_or_else(none)?.to_owned(), json)))
    }

    /// Sends a write once. Returns whether it was applied; `false` if its condition does not hold.
    async fn attempt(&self, write: &Write) -> Result<bool> {
        let request = match &write.wanted {
            Some(document) => self.client.put(write.url.clone()).json(document),
            None => self.client.delete(write.url.clone()),
        };
        let request = match &write.seen {
            Some(tag) => request.header(IF_MATCH, tag),
            None => request.header(IF_NONE_MATCH, "*"),
        };
        let failed = |failed| self.error(Asked::Write, failed);
        let reply = request.send().await.map_err(|error| failed(Failed::Lost(error)))?;
        match reply.status() {
            StatusCode::OK | StatusCode::CREATED | StatusCode::NO_CONTENT => Ok(true),
            StatusCode::PRECONDITION_FAILED => Ok(false),
            status => Err(failed(Failed::Status(status))),
        }
    }

    /// Sends a write, and once more if its outcome is unknown and a second attempt is harmless.
    async fn write(&self, write: &Write, resend: Resend) -> Result<bool> {
        let deadline = Instant::now() + self.options.timeout;
        let lost = match self.attempt(write).await {
            Err(error) if error.kind() == ErrorKind::UnknownOutcome && resend == Resend::Harmless => error,
            outcome => return outcome,
        };
        // The first attempt may have been applied, so even a certain failure of the second proves nothing.
        let settled = timeout_at(deadline, async {
            match self.attempt(write).await {
                Ok(applied) => applied || self.is_own(write).await,
                Err(_) => false,
            }
        });
        if settled.await.unwrap_or(false) { Ok(true) } else { Err(lost) }
    }

    /// Returns whether the stored document has the claim of this write. If not, nothing is known: others may
    /// have written since.
    async fn is_own(&self, write: &Write) -> bool {
        let Some(wanted) = &write.wanted else { return false };
        let stored = self.document(write.url.clone()).await;
        stored.is_ok_and(|stored| stored.is_some_and(|stored| stored.1["claim"] == wanted["claim"]))
    }

    /// Reads a page. `row` converts a document.
    async fn page<P: Fill>(
        &self,
        collection: &str,
        page: &Page,
        row: impl Fn(&SequenceName, &Value) -> Result<P::Row>,
    ) -> Result<P> {
        let mut url = self.url(collection, None);
        let after = page.after.as_ref().map_or("", Cursor::as_str);
        url.query_pairs_mut().append_pair("prefix", &page.prefix).append_pair("after", after);
        url.query_pairs_mut().append_pair("limit", &page.limit.to_string());
        let found = self.get(url).await?.map(|(_, json)| json);
        let documents = found.as_ref().and_then(|found| found["documents"].as_array());
        let unreadable = || self.error(Asked::Read, Failed::Unreadable("no documents".to_owned()));
        let rows = documents.ok_or_else(unreadable)?.iter().map(|document| {
            let (name, text) = (document[0].as_str().unwrap_or(""), document[1].as_str().unwrap_or(""));
            let json = serde_json::from_str(text).unwrap_or(Value::Null);
            (name, SequenceName::from_str(name).and_then(|name| row(&name, &json)))
        });
        let next = found.as_ref().and_then(|found| found["next"].as_str()).map(Cursor::new);
        Ok(P::of(next, rows))
    }

    async fn try_record(&self, name: &SequenceName) -> Result<Option<String>> {
        let found = self.document(self.url("records", Some(name))).await?;
        found.map(|(_, json)| text_of(name, &json)).transpose()
    }

    /// The read only finds the `ETag`; the service compares it. Nothing removes records, and no text is
    /// written twice, so every condition can hold only once.
    async fn try_swap_record(&self, name: &SequenceName, seen: Option<&str>, wanted: &str) -> Result<bool> {
        let url = self.url("records", Some(name));
        let mut tag = None;
        if let Some(seen) = seen {
            match self.document(url.clone()).await? {
                Some((found, json)) if text_of(name, &json)? == seen => tag = Some(found),
                _ => return Ok(false),
            }
        }
        let wanted = json!({ "format": 1, "text": wanted, "claim": claim()? });
        self.write(&Write { url, seen: tag, wanted: Some(wanted) }, Resend::Harmless).await
    }

    async fn try_list_records(&self, page: &Page) -> Result<Records> {
        self.page("records", page, text_of).await
    }
}

impl Store for DocStore {
    idmill::store_calls!(|this| Swapping(this) =>
        capabilities reserve give_back create inspect list set remove);
    idmill::store_calls!(record swap_record list_records);
}

impl CompareAndSet for DocStore {
    /// The `ETag`. It differs between any two writes, because every document has the claim of its write.
    type Version = String;

    fn can(&self) -> Capabilities {
        Capabilities::new(Durability::Disk).shared(true).gives_back(true).records(true)
    }

    fn read<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<Option<Versioned<String>>>> {
        Box::pin(async move {
            let found = self.document(self.url("sequences", Some(name))).await?;
            let Some((tag, json)) = found else { return Ok(None) };
            Ok(Some(Versioned { info: sequence_of(name, &json)?, version: tag }))
        })
    }

    fn swap<'a>(
        &'a self,
        name: &'a SequenceName,
        seen: Option<&'a Versioned<String>>,
        wanted: Option<&'a SequenceInfo>,
        resend: Resend,
    ) -> StoreFuture<'a, Result<Swapped<String>>> {
        Box::pin(async move {
            let wanted = wanted.map(document_of).transpose()?;
            let seen = seen.map(|seen| seen.version.clone());
            let write = Write { url: self.url("sequences", Some(name)), seen, wanted };
            let written = self.write(&write, resend).await?;
            Ok(if written { Swapped::Done } else { Swapped::Changed(None) })
        })
    }

    fn read_page<'a>(&'a self, page: &'a Page) -> StoreFuture<'a, Result<Listing>> {
        Box::pin(self.page("sequences", page, sequence_of))
    }
}

/// A random text for one write.
fn claim() -> Result<String> {
    let claim = getrandom::u64().map_err(|error| Error::new(ErrorKind::Unavailable, error.to_string()))?;
    Ok(format!("{claim:016x}"))
}

/// The document of a sequence. Numbers are text, because many JSON parsers round numbers above 2^53.
fn document_of(info: &SequenceInfo) -> Result<Value> {
    Ok(json!({
        "format": 1,
        "next": info.next.map(|next| next.to_string()),
        "start": info.bounds.start().to_string(),
        "max": info.bounds.max().to_string(),
        "incarnation": info.identity.incarnation.to_string(),
        "epoch": info.identity.epoch.to_string(),
        "claim": claim()?,
    }))
}

fn sequence_of(name: &SequenceName, json: &Value) -> Result<SequenceInfo> {
    let number = |key: &str| {
        let number = json[key].as_str().and_then(|digits| digits.parse::<i128>().ok());
        number.ok_or_else(|| InvalidRow::Wrong(format!("has no number `{key}`")))
    };
    let numbers = || {
        known(json)?;
        let next = if json["next"].is_null() { None } else { Some(number("next")?) };
        let (incarnation, epoch) = (number("incarnation")?, number("epoch")?);
        Numbers { next, start: number("start")?, max: number("max")?, incarnation, epoch }.of(name.clone())
    };
    numbers().map_err(|fault| fault.of(format!("/sequences/{name}")))
}

fn text_of(name: &SequenceName, json: &Value) -> Result<String> {
    let text = || json["text"].as_str().ok_or_else(|| InvalidRow::from("has no text"));
    let text = known(json).and_then(|()| text());
    text.map(str::to_owned).map_err(|fault| fault.error(format!("/records/{name}"), "nothing was changed"))
}

fn known(json: &Value) -> Result<(), InvalidRow> {
    if json["format"] == 1 { Ok(()) } else { Err(InvalidRow::Format) }
}
