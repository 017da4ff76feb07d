//! The options of the store: the database that holds the sequences, and the URL form.

use std::time::Duration;

use idmill::Result;
use idmill_kit::options::{ADDRESS, Kind, Options as _, TIMEOUT, text};
use idmill_kit::query::{ESCAPED, decoded};
use idmill_kit::{Target, refuse};
use percent_encoding::utf8_percent_encode;

use super::DatastoreStore;

/// The default kind of sequences.
pub(super) const DEFAULT_KIND: &str = "IdmillSequence";
/// The name of a project's default database in the API.
const DEFAULT_DATABASE: &str = "(default)";
const PROJECT: Kind =
    text("PROJECT", "1 to 100 letters, digits and `-._:`, as in `datastore://my-project`", |project| {
        let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | ':' | '_');
        (1..=100).contains(&project.len()) && project.chars().all(valid)
    });
const DATABASE: Kind = text(
    "DATABASE",
    "up to 63 lower-case letters, digits and `-`; leave it out for `(default)`",
    |database| {
        let valid = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        database.len() <= 63 && database.chars().all(valid)
    },
);
const NAMESPACE: Kind =
    text("NAME", "up to 100 characters of `[0-9A-Za-z._-]`, not of the form `__…__`", |namespace| {
        let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        namespace.len() <= 100 && namespace.chars().all(valid) && !is_reserved(namespace)
    });
const KIND: Kind =
    text("NAME", "1 to 1500 bytes without control characters, not of the form `__…__`", |kind| {
        (1..=1500).contains(&kind.len()) && !is_reserved(kind) && !kind.contains(char::is_control)
    });

idmill_kit::options! {
    /// The database that holds the sequences, and how to reach it. Options are checked when the store is
    /// opened.
    ///
    /// As a URL: `datastore://PROJECT[/DATABASE]?namespace=NAME&kind=NAME&emulator=HOST:PORT&timeout=10s`.
    ///
    /// ```
    /// use idmill_datastore::DatastoreOptions;
    ///
    /// let options = DatastoreOptions::new("my-project").namespace("billing");
    /// assert_eq!(options.to_string(), "datastore://my-project?namespace=billing");
    /// ```
    pub struct DatastoreOptions at path "datastore" as "datastore://PROJECT/DATABASE" {
        /// The project's id.
        pub project: String,
        /// The id of the database; empty for the default one, as in the API.
        pub database: String,
    }

    /// The Datastore namespace. Default: the unnamed namespace.
    pub namespace: String = "" in NAMESPACE;
    /// The kind of the entities. Each kind holds separate sequences.
    pub kind: String = DEFAULT_KIND in KIND;
    /// The emulator to use, without TLS and credentials. Default: the environment variable
    /// `DATASTORE_EMULATOR_HOST`.
    pub emulator: Option<String> = "" in ADDRESS;
    /// How long one request may take, including the access token. The first request of a process can take 3
    /// s.
    ///
    /// A read that takes longer fails with [`Unavailable`](idmill::ErrorKind::Unavailable), and a commit that
    /// was sent fails with [`UnknownOutcome`](idmill::ErrorKind::UnknownOutcome).
    pub timeout: Duration = "10s" in TIMEOUT;
}

impl DatastoreOptions {
    /// Creates options for the default database of a project. Every other option has its default.
    pub fn new(project: impl Into<String>) -> Self {
        Self::with_defaults(project.into(), String::new())
    }

    /// Sets the database, which is `(default)` by default.
    #[must_use]
    pub fn database(mut self, database: impl Into<String>) -> Self {
        self.database = database.into();
        if self.database == DEFAULT_DATABASE {
            self.database.clear();
        }
        self
    }

    fn at(_: &str, place: &str) -> Result<Self> {
        let place = place.strip_prefix("//").ok_or_else(|| {
            refuse("the project is missing; write `datastore://PROJECT` or `datastore://PROJECT/DATABASE`")
        })?;
        let (project, database) = place.split_once('/').unwrap_or((place, ""));
        Ok(Self::new(decoded(project)?).database(decoded(database)?))
    }

    fn place(&self) -> String {
        let slash = if self.database.is_empty() { "" } else { "/" };
        let [project, database] =
            [&self.project, &self.database].map(|part| utf8_percent_encode(part, ESCAPED));
        format!("datastore://{project}{slash}{database}")
    }

    /// Checks the options without a connection.
    pub(super) fn check(&self) -> Result<()> {
        PROJECT.check("the project", &self.project)?;
        DATABASE.check("the database", &self.database)?;
        self.check_values()
    }

    /// Returns the address of the emulator, if there is one. The option takes precedence over the
    /// environment variable.
    pub(super) fn emulator_or(&self, environment: Option<String>) -> Result<Option<String>> {
        if self.emulator.is_some() {
            return Ok(self.emulator.clone());
        }
        let Some(address) = environment.filter(|address| !address.is_empty()) else { return Ok(None) };
        let address = address.strip_prefix("http://").unwrap_or(&address).trim_end_matches('/').to_owned();
        ADDRESS.check("DATASTORE_EMULATOR_HOST", &address)?;
        Ok(Some(address))
    }
}

/// Opening creates nothing: Datastore has no tables, and an entity is created with its sequence.
impl Target for DatastoreOptions {
    idmill_kit::target!(|options| "datastore" => DatastoreStore::open_with);
}

/// Returns whether Datastore reserves this name.
fn is_reserved(text: &str) -> bool {
    text.len() >= 4 && text.starts_with("__") && text.ends_with("__")
}

#[cfg(test)]
mod tests {
    use idmill::ErrorKind;
    use idmill_testing::OptionsPage as _;
    use proptest::prelude::*;

    use super::*;

    fn parse(rest: &str) -> Result<DatastoreOptions> {
        DatastoreOptions::parse(&format!("datastore:{rest}"))
    }

    #[test]
    fn every_option_is_read() {
        let url = "//my-project/eu?namespace=a.b&kind=Kind%20%26&emulator=localhost:8081&timeout=250ms";
        let expected = DatastoreOptions::new("my-project")
            .database("eu")
            .namespace("a.b")
            .kind("Kind &")
            .emulator("localhost:8081")
            .timeout(Duration::from_millis(250));
        assert_eq!(parse(url).unwrap(), expected);
        let plain = DatastoreOptions::new("example.com:p");
        assert_eq!(parse("//example.com:p").unwrap(), plain);
        assert_eq!(parse("//example.com:p/").unwrap(), plain);
        assert_eq!(parse("//example.com:p/(default)").unwrap(), plain);
    }

    #[test]
    fn invalid_options_are_rejected_with_the_remedy() {
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
            ("//p?timeout=5", "ms, s, m or h), 1ms to 24h, such as timeout=10s"),
            ("//p?timeout=0s", "1ms to 24h"),
            ("//p?timeout=25h", "1ms to 24h"),
            ("//p?kind=a&kind=b", "duplicate option"),
            (
                "//p?kinds=a",
                "use one of: namespace=NAME, kind=IdmillSequence, emulator=HOST:PORT, timeout=10s",
            ),
        ] {
            let error = parse(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{url}");
            assert!(error.to_string().contains(remedy), "{url}: {error}");
        }
    }

    #[test]
    fn emulator_option_overrides_the_environment() {
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

    #[test]
    fn the_page_has_the_options() {
        DatastoreOptions::new("p").documented(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md"), "options");
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
            let read = DatastoreOptions::parse(&url).unwrap();
            prop_assert_eq!(read, options, "{}", url);
        }
    }
}
