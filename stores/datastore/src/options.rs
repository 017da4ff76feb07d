//! The database that holds the sequences, and its URL form.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use idmill::store::Target;
use idmill::store::kit::query::{self, ESCAPED, Printed};
use idmill::store::kit::refuse;
use idmill::store::{Store, StoreFuture};
use idmill::{Error, Result};
use percent_encoding::{percent_decode_str, utf8_percent_encode};

use super::DatastoreStore;

const DEFAULT_KIND: &str = "IdmillSequence";
/// What the API calls the database that every project begins with.
const DEFAULT_DATABASE: &str = "(default)";
/// The first call of a client may take 3 s by itself: a token, TLS, and a service that loads its rules.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
const KNOWN: &str = "namespace=NAME, kind=NAME, emulator=HOST:PORT, timeout=10s";
/// Datastore's own limit for a kind, in bytes.
const MAX_KIND: usize = 1500;

/// The database that holds the sequences, and how to reach it. Options are checked when it is opened.
///
/// As a URL: `datastore://PROJECT[/DATABASE]?namespace=NAME&kind=NAME&emulator=HOST:PORT&timeout=10s`.
///
/// ```
/// use idmill_datastore::DatastoreOptions;
///
/// let options = DatastoreOptions::new("my-project").namespace("billing");
/// assert_eq!(options.to_string(), "datastore://my-project?namespace=billing");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatastoreOptions {
    pub(super) project: String,
    /// Empty for the default one, as in the API.
    pub(super) database: String,
    pub(super) namespace: String,
    pub(super) kind: String,
    pub(super) emulator: Option<String>,
    pub(super) timeout: Duration,
}

impl DatastoreOptions {
    /// The default database of a project, with every option at its default.
    pub fn new(project: impl Into<String>) -> Self {
        Self {
            project: project.into(),
            database: String::new(),
            namespace: String::new(),
            kind: DEFAULT_KIND.to_owned(),
            emulator: None,
            timeout: DEFAULT_TIMEOUT,
        }
    }

    /// A database of the project other than `(default)`.
    #[must_use]
    pub fn database(mut self, database: impl Into<String>) -> Self {
        self.database = database.into();
        if self.database == DEFAULT_DATABASE {
            self.database.clear();
        }
        self
    }

    /// The namespace to keep sequences in: up to 100 of `[0-9A-Za-z._-]`. Default: the unnamed namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// The kind of the entities: up to 1500 bytes, not of the form `__…__`. Default
    /// `IdmillSequence`. Kinds are namespaces too.
    #[must_use]
    pub fn kind(mut self, kind: impl Into<String>) -> Self {
        self.kind = kind.into();
        self
    }

    /// The `HOST:PORT` of an emulator, reached without TLS and credentials. Default: the value of the
    /// environment variable `DATASTORE_EMULATOR_HOST` when the store is opened, or Google Cloud if it is not
    /// set.
    #[must_use]
    pub fn emulator(mut self, address: impl Into<String>) -> Self {
        self.emulator = Some(address.into());
        self
    }

    /// How long to wait for the answer to one request, 1 ms to 1 hour. Default 10 s. A read that takes longer
    /// is [`Unavailable`](idmill::ErrorKind::Unavailable), a commit
    /// [`UnknownOutcome`](idmill::ErrorKind::UnknownOutcome).
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Reads what follows `datastore:` in a URL.
    pub(crate) fn parse(rest: &str) -> Result<Self> {
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let place = place.strip_prefix("//").ok_or_else(|| {
            refuse("the project is missing; write `datastore://PROJECT` or `datastore://PROJECT/DATABASE`")
        })?;
        let (project, database) = place.split_once('/').unwrap_or((place, ""));
        let options = Self::new(decode(project)?).database(decode(database)?);
        let options = query::read(query, options, Self::set)?;
        options.check()?;
        Ok(options)
    }

    fn set(self, key: &str, value: &str) -> Result<Self> {
        Ok(match key {
            "namespace" => self.namespace(value),
            "kind" => self.kind(value),
            "emulator" => self.emulator(value),
            "timeout" => self.timeout(query::duration(key, value, "500ms, 5s, 1m")?),
            _ => return Err(query::unknown(key, KNOWN)),
        })
    }

    /// Everything that can be known to be wrong without asking anybody.
    pub(super) fn check(&self) -> Result<()> {
        check_project(&self.project)?;
        check_database(&self.database)?;
        check_namespace(&self.namespace)?;
        check_kind(&self.kind)?;
        if let Some(address) = &self.emulator {
            check_address(address, "emulator")?;
        }
        let millis = self.timeout.as_millis();
        if !(1..=3_600_000).contains(&millis) || !self.timeout.subsec_nanos().is_multiple_of(1_000_000) {
            return Err(refuse(format!(
                "timeout {:?} cannot be: 1 ms to 1 h, in whole milliseconds",
                self.timeout
            )));
        }
        Ok(())
    }

    /// The address of the emulator to use, if one is: the option first, then the environment.
    pub(super) fn emulator_or(&self, environment: Option<String>) -> Result<Option<String>> {
        if self.emulator.is_some() {
            return Ok(self.emulator.clone());
        }
        let Some(address) = environment.filter(|address| !address.is_empty()) else { return Ok(None) };
        let address = address.strip_prefix("http://").unwrap_or(&address).trim_end_matches('/').to_owned();
        check_address(&address, "the environment's DATASTORE_EMULATOR_HOST")?;
        Ok(Some(address))
    }
}

impl FromStr for DatastoreOptions {
    type Err = Error;

    fn from_str(url: &str) -> Result<Self> {
        Self::parse(query::after("datastore", url)?)
    }
}

impl Target for DatastoreOptions {
    fn scheme(&self) -> &'static str {
        "datastore"
    }

    /// Opening never creates anything here: there are no tables, and an entity is created with its sequence.
    fn existing(&self) -> Arc<dyn Target> {
        Arc::new(self.clone())
    }

    fn connect(&self) -> StoreFuture<'_, Result<Arc<dyn Store>>> {
        Box::pin(async { Ok(Arc::new(DatastoreStore::open_with(self.clone()).await?) as Arc<dyn Store>) })
    }
}

impl fmt::Display for DatastoreOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "datastore://{}", utf8_percent_encode(&self.project, ESCAPED))?;
        if !self.database.is_empty() {
            write!(f, "/{}", utf8_percent_encode(&self.database, ESCAPED))?;
        }
        let options = Printed::default()
            .differing("namespace", self.namespace.as_str(), "")
            .differing("kind", self.kind.as_str(), DEFAULT_KIND)
            .given("emulator", self.emulator.as_ref())
            .duration("timeout", self.timeout, DEFAULT_TIMEOUT);
        write!(f, "{options}")
    }
}

fn check_project(project: &str) -> Result<()> {
    let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | ':' | '_');
    if !project.is_empty() && project.len() <= 100 && project.chars().all(valid) {
        return Ok(());
    }
    let rule = "letters, digits and `-`, as in `datastore://my-project`";
    Err(refuse(format!("{project:?} cannot be a project's id: {rule}")))
}

fn check_database(database: &str) -> Result<()> {
    let valid = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if database.len() <= 63 && database.chars().all(valid) {
        return Ok(());
    }
    let rule = "up to 63 lower-case letters, digits and `-`; leave it out for `(default)`";
    Err(refuse(format!("{database:?} cannot be a database's id: {rule}")))
}

fn check_namespace(namespace: &str) -> Result<()> {
    let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if namespace.len() <= 100 && namespace.chars().all(valid) && !is_reserved(namespace) {
        return Ok(());
    }
    let rule = "up to 100 letters, digits, `.`, `_` and `-`, not of the form `__…__`";
    Err(refuse(format!("{namespace:?} cannot be the namespace: {rule}")))
}

fn check_kind(kind: &str) -> Result<()> {
    if (1..=MAX_KIND).contains(&kind.len()) && !is_reserved(kind) && !kind.contains(char::is_control) {
        return Ok(());
    }
    let rule = "1 to 1500 bytes without control characters, not of the form `__…__`";
    Err(refuse(format!("{kind:?} cannot be the kind: {rule}")))
}

fn check_address(address: &str, what: &str) -> Result<()> {
    let parts = address.rsplit_once(':').filter(|(host, port)| {
        let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '[' | ']');
        !host.is_empty() && host.chars().all(valid) && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    parts.map(drop).ok_or_else(|| {
        refuse(format!("{what}={address:?} is no address; write HOST:PORT, as in `127.0.0.1:8081`"))
    })
}

/// What Datastore keeps for itself.
fn is_reserved(text: &str) -> bool {
    text.len() >= 4 && text.starts_with("__") && text.ends_with("__")
}

fn decode(text: &str) -> Result<String> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(std::borrow::Cow::into_owned).map_err(|_| refuse(format!("{text:?} is not UTF-8")))
}

#[cfg(test)]
mod tests {
    use idmill::ErrorKind;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_option_is_read() {
        let url = "//my-project/eu?namespace=a.b&kind=Kind%20%26&emulator=localhost:8081&timeout=250ms";
        let expected = DatastoreOptions::new("my-project")
            .database("eu")
            .namespace("a.b")
            .kind("Kind &")
            .emulator("localhost:8081")
            .timeout(Duration::from_millis(250));
        assert_eq!(DatastoreOptions::parse(url).unwrap(), expected);
        let plain = DatastoreOptions::new("example.com:p");
        assert_eq!(DatastoreOptions::parse("//example.com:p").unwrap(), plain);
        assert_eq!(DatastoreOptions::parse("//example.com:p/").unwrap(), plain);
        assert_eq!(DatastoreOptions::parse("//example.com:p/(default)").unwrap(), plain);
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_remedy() {
        for (url, remedy) in [
            ("", "datastore://PROJECT"),
            ("p", "datastore://PROJECT"),
            ("//", "project"),
            ("//a b", "project"),
            ("//p/Eu", "lower-case"),
            ("//p/a/b", "lower-case"),
            ("//p%ff", "UTF-8"),
            ("//p?namespace=a%20b", "namespace"),
            ("//p?namespace=__x__", "__…__"),
            ("//p?kind=", "kind"),
            ("//p?kind=__x__", "__…__"),
            ("//p?kind=a%00", "control"),
            ("//p?emulator=8081", "HOST:PORT"),
            ("//p?emulator=:8081", "HOST:PORT"),
            ("//p?emulator=http://h:1", "HOST:PORT"),
            ("//p?emulator=h:0", "HOST:PORT"),
            ("//p?timeout=5", "500ms, 5s, 1m"),
            ("//p?timeout=0s", "1 ms to 1 h"),
            ("//p?timeout=61m", "1 ms to 1 h"),
            ("//p?kind=a&kind=b", "twice"),
            ("//p?kinds=a", KNOWN),
        ] {
            let error = DatastoreOptions::parse(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{url}");
            assert!(error.to_string().contains(remedy), "{url}: {error}");
        }
    }

    #[test]
    fn the_explicit_emulator_wins_over_the_environments() {
        let plain = DatastoreOptions::new("p");
        let explicit = plain.clone().emulator("h:1");
        let environment = || Some("http://127.0.0.1:2/".to_owned());
        assert_eq!(explicit.emulator_or(environment()).unwrap().as_deref(), Some("h:1"));
        assert_eq!(plain.emulator_or(environment()).unwrap().as_deref(), Some("127.0.0.1:2"));
        assert_eq!(plain.emulator_or(Some(String::new())).unwrap(), None);
        assert_eq!(plain.emulator_or(None).unwrap(), None);
        let error = plain.emulator_or(Some("nowhere".to_owned())).unwrap_err();
        assert!(error.to_string().contains("DATASTORE_EMULATOR_HOST"), "{error}");
    }

    proptest! {
        #[test]
        fn display_reads_back(
            project in "[a-z][a-z0-9-]{0,20}",
            database in prop_oneof![Just(String::new()), "[a-z][a-z0-9-]{0,20}"],
            namespace in "[0-9A-Za-z._-]{0,20}",
            kind in "\\PC{1,20}",
            emulator in prop::option::of("[a-z]{1,9}:[1-9][0-9]{0,3}"),
            millis in 1..3_600_000u64,
        ) {
            let mut options = DatastoreOptions::new(project).database(database).namespace(namespace).kind(kind);
            options = options.timeout(Duration::from_millis(millis));
            options.emulator = emulator;
            prop_assume!(options.check().is_ok());
            let url = options.to_string();
            let read = DatastoreOptions::parse(url.strip_prefix("datastore:").unwrap()).unwrap();
            prop_assert_eq!(read, options, "{}", url);
        }
    }
}
