//! Sends requests to the REST API of Datastore or of an emulator.

use std::sync::Arc;
use std::time::Duration;

use gcloud_auth::project::Config;
use gcloud_auth::token::DefaultTokenSourceProvider;
use idmill::{Error, ErrorKind, Result};
use idmill_kit::{Swapped, chain};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::redirect::Policy;
use serde_json::{Value, json};
use token_source::{TokenSource, TokenSourceProvider};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::classify::{Fault, Refusal, commit_failed, read_failed, unreachable};
use super::options::DatastoreOptions;

const CLOUD: &str = "https://datastore.googleapis.com";
const SCOPE: &str = "https://www.googleapis.com/auth/datastore";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// First and longest pause after a deferred lookup. The pause doubles, because every lookup is billed.
const DEFERRED: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(1)];
/// The service uses this header to route the request to the database before it reads the body.
const ROUTING: &str = "x-goog-request-params";

/// An HTTP client for one database.
#[derive(Clone)]
pub(super) struct Client {
    http: reqwest::Client,
    /// URL prefix that precedes the name of the method.
    url: String,
    routing: HeaderValue,
    database: String,
    timeout: Duration,
    tokens: Option<Arc<dyn TokenSource>>,
}

impl Client {
    /// Creates a client for the emulator, if one is set, or for Google Cloud. Without `tokens`, requests to
    /// Google Cloud use the credentials of the environment.
    pub(super) async fn new(
        options: &DatastoreOptions,
        tokens: Option<Arc<dyn TokenSource>>,
    ) -> Result<Self> {
        let emulator = options.emulator_or(std::env::var("DATASTORE_EMULATOR_HOST").ok())?;
        let tokens = match (tokens, &emulator) {
            (None, None) => Some(default_tokens(options.timeout).await?),
            (tokens, _) => tokens,
        };
        let server = emulator.map_or_else(|| CLOUD.to_owned(), |address| format!("http://{address}"));
        Ok(Self {
            http: http(options.timeout)?,
            url: format!("{server}/v1/projects/{}:", options.project),
            routing: routing(options)?,
            database: options.database.clone(),
            timeout: options.timeout,
            tokens,
        })
    }

    /// Reads the entity with this key, and its version.
    pub(super) async fn find(&self, key: &Value) -> Result<Option<Value>> {
        let request = json!({
            "databaseId": self.database,
            "readOptions": { "readConsistency": "STRONG" },
            "keys": [key],
        });
        let (deadline, [mut pause, most]) = (self.deadline(), DEFERRED);
        loop {
            let answer = self.call("lookup", request.clone(), deadline).await.map_err(read_failed)?;
            let first = |what: &str| answer[what].get(0);
            if let Some(found) = first("found") {
                return Ok(Some(found.clone()));
            }
            if first("missing").is_some() {
                return Ok(None);
            }
            // The server deferred this key for lack of time, which is not reported as an error.
            if first("deferred").is_none() {
                return Err(Error::new(ErrorKind::StoreViolation, "the reply to a lookup has no result"));
            }
            if Instant::now() + pause >= deadline {
                let message = format!("Datastore deferred the lookup for {:?}; try again", self.timeout);
                return Err(Error::new(ErrorKind::Unavailable, message));
            }
            sleep(pause).await;
            pause = most.min(pause * 2);
        }
    }

    /// Returns the deadline of a call that begins now. The call includes its token request.
    fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    /// Reads one page of a query.
    pub(super) async fn query(&self, partition: Value, query: &Value) -> Result<Value> {
        let request = json!({ "databaseId": self.database, "partitionId": partition, "query": query });
        self.call("runQuery", request, self.deadline()).await.map_err(read_failed)
    }

    /// Applies a mutation in a separate transaction.
    pub(super) async fn commit(&self, mutation: &Value) -> Result<Swapped<String>> {
        let request = json!({
            "databaseId": self.database,
            "mode": "TRANSACTIONAL",
            "singleUseTransaction": { "readWrite": {} },
            "mutations": [mutation],
        });
        let answer = match self.call("commit", request, self.deadline()).await {
            Ok(answer) => answer,
            Err(fault) => return commit_failed(fault),
        };
        let Some(result) = answer["mutationResults"].get(0).filter(|result| result.is_object()) else {
            return commit_failed(Fault::lost("the reply has no result"));
        };
        if result["conflictDetected"] == Value::Bool(true) {
            // Some servers report a conflict in a successful reply. Nothing was written.
            let message = "a later version is stored";
            return Ok(Swapped::Changed(Some(Error::new(ErrorKind::Unavailable, message))));
        }
        Ok(Swapped::Done)
    }

    async fn call(&self, method: &str, body: Value, deadline: Instant) -> Result<Value, Fault> {
        let mut request = self
            .http
            .post(format!("{}{method}", self.url))
            .header(CONTENT_TYPE, "application/json")
            .header(ROUTING, &self.routing)
            .body(body.to_string());
        if let Some(tokens) = &self.tokens {
            let silent = || unreachable(format!("no access token within {:?}", self.timeout));
            let token = timeout_at(deadline, tokens.token()).await.map_err(|_| silent())?;
            let token = token.map_err(unreachable)?;
            request = request.header(AUTHORIZATION, secret(&token).map_err(unreachable)?);
        }
        let answer = request.timeout(deadline - Instant::now()).send().await.map_err(|error| {
            if error.is_connect() { unreachable(broken(error)) } else { Fault::lost(broken(error)) }
        })?;
        let status = answer.status();
        let body = answer.bytes().await.map_err(|error| Fault::lost(broken(error)))?;
        if !status.is_success() {
            return Err(Refusal::read(status.as_u16(), &body).into());
        }
        serde_json::from_slice(&body).map_err(Fault::lost)
    }
}

// Omits the tokens, so that logs never contain them.
idmill_kit::debug_fields!(Client | client | url = client.url, database = client.database);

fn http(timeout: Duration) -> Result<reqwest::Client> {
    let builder = reqwest::Client::builder()
        .timeout(timeout)
        .connect_timeout(CONNECT_TIMEOUT.min(timeout))
        // Do not follow redirects: a 307 or 308 would send the commit again, maybe to another server.
        .redirect(Policy::none());
    builder.build().map_err(|error| {
        Error::new(ErrorKind::Unsupported, format!("no HTTP client: {error}")).because(error)
    })
}

fn routing(options: &DatastoreOptions) -> Result<HeaderValue> {
    let params = format!("project_id={}&database_id={}", options.project, options.database);
    HeaderValue::from_str(&params).map_err(|error| Error::invalid(error.to_string()))
}

/// Returns the credentials of the environment: the file named by `GOOGLE_APPLICATION_CREDENTIALS`, the
/// login of gcloud, or the service account of the machine.
async fn default_tokens(limit: Duration) -> Result<Arc<dyn TokenSource>> {
    let provider = DefaultTokenSourceProvider::new(Config::default().with_scopes(&[SCOPE]));
    let Ok(provider) = timeout(limit, provider).await else {
        let message = format!("no credentials for Google Cloud within {limit:?}");
        return Err(Error::new(ErrorKind::Unavailable, message));
    };
    provider.map(|provider| provider.token_source()).map_err(|error| {
        let kind = match &error {
            gcloud_auth::error::Error::HttpError(_) => ErrorKind::Unavailable,
            _ => ErrorKind::Denied,
        };
        let remedy = "set GOOGLE_APPLICATION_CREDENTIALS, run `gcloud auth application-default login`, or \
                      add `?emulator=HOST:PORT`";
        Error::new(kind, format!("no credentials for Google Cloud: {error}; {remedy}")).because(error)
    })
}

fn secret(token: &str) -> Result<HeaderValue, Box<dyn std::error::Error + Send + Sync>> {
    let mut value = HeaderValue::from_str(token).map_err(|_| "the token cannot be sent in a header")?;
    value.set_sensitive(true);
    Ok(value)
}

/// Converts a connection error. Keeps only the server of the URL, because idmill's errors already name the
/// sequence.
fn broken(error: reqwest::Error) -> Box<dyn std::error::Error + Send + Sync> {
    match error.url().map(|url| url.origin().ascii_serialization()) {
        Some(server) => format!("{server}: {}", chain(&error.without_url())).into(),
        None => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{SocketAddr, TcpListener};
    use std::sync::atomic::{AtomicUsize, Ordering};

    use idmill::store::StoreFuture;

    use super::*;

    const BRIEF: Duration = Duration::from_millis(400);
    /// Timeout against a test that hangs.
    const LONG: Duration = Duration::from_secs(60);

    /// Starts a server that defers every lookup. Returns its address and a counter of the requests.
    fn deferring() -> (SocketAddr, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, asked) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
        let counted = asked.clone();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let _ = stream.read(&mut [0; 4096]);
                counted.fetch_add(1, Ordering::Relaxed);
                let body = r#"{"deferred":[{}]}"#;
                let head =
                    format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
                let _ = stream.write_all((head + body).as_bytes());
            }
        });
        (address, asked)
    }

    #[derive(Debug)]
    struct NoToken;

    impl TokenSource for NoToken {
        fn token<'a, 'b>(
            &'a self,
        ) -> StoreFuture<'b, Result<String, Box<dyn std::error::Error + Send + Sync>>>
        where
            'a: 'b,
            Self: 'b,
        {
            Box::pin(std::future::pending())
        }
    }

    async fn find(address: SocketAddr, tokens: Option<Arc<dyn TokenSource>>) -> Error {
        let options = DatastoreOptions::new("p").emulator(address.to_string()).timeout(BRIEF);
        let client = Client::new(&options, tokens).await.unwrap();
        let key = json!({});
        tokio::time::timeout(LONG, client.find(&key)).await.expect("it ends").unwrap_err()
    }

    #[tokio::test]
    async fn deferred_lookup_pauses_and_ends_at_its_deadline() {
        let (address, asked) = deferring();
        let error = find(address, None).await;
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("deferred"), "{error}");
        // The pauses are 20, 40, 80 and 160 ms.
        let asked = asked.load(Ordering::Relaxed);
        assert!((1..=5).contains(&asked), "{asked}");
    }

    #[tokio::test]
    async fn token_that_never_comes_is_unavailable() {
        let (address, asked) = deferring();
        let error = find(address, Some(Arc::new(NoToken))).await;
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("no access token"), "{error}");
        assert_eq!(asked.load(Ordering::Relaxed), 0);
    }
}
