//! The options of the store: the location of the collection, and the URL form.

use std::time::Duration;

use idmill::store::StoreFuture;
use idmill::{Error, ErrorKind, Result};
use idmill_kit::options::{Options as _, TIMEOUT};
use idmill_kit::query::{self, Once};
use idmill_kit::secrets::HIDDEN;
use idmill_kit::{Authority, ColumnPath, Largest, Target, refuse};
use mongodb::options::{ClientOptions, ConnectionString};
use mongodb::{Client, Database};
use percent_encoding::percent_decode_str;

use super::MongoStore;
use super::connection::Commands;
use super::largest::largest;
use super::schema::{DEFAULT_COLLECTION, NAME};

const DEFAULT_DATABASE: &str = "idmill";
/// The URL scheme for hosts that are looked up in DNS.
const SRV: &str = "mongodb+srv";

idmill_kit::options! {
    /// The location of a MongoDB collection, and how to reach it. Creating options opens no connection.
    ///
    /// As a URL: `mongodb://USER:PASSWORD@HOST:PORT,HOST:PORT/DATABASE?collection=NAME&timeout=10s`, where
    /// every option but `collection` and `timeout` is MongoDB's own and goes to the driver: `replicaSet`,
    /// `tls`, `authSource`, `directConnection` and so on. The database is `idmill` unless the path names
    /// another. MongoDB also authenticates the user in the path's database, unless `authSource` is set.
    ///
    /// The feature `srv` adds `mongodb+srv://USER:PASSWORD@NAME/DATABASE`, as Atlas provides it: the hosts,
    /// the replica set and `authSource` come from DNS, and TLS is on.
    ///
    /// Printing hides the password.
    ///
    /// ```
    /// use idmill_mongodb::MongoOptions;
    ///
    /// let url = "mongodb://app:secret@db1,db2/billing?replicaSet=rs0&collection=numbers";
    /// let options = MongoOptions::parse(url)?;
    /// assert_eq!(options.to_string(), "mongodb://app:***@db1,db2/billing?replicaSet=rs0&collection=numbers");
    /// # Ok::<(), idmill::Error>(())
    /// ```
    pub struct MongoOptions {
        /// Whether the hosts are looked up in DNS (`mongodb+srv:`).
        pub srv: bool,
        /// The hosts, and the user to log in as.
        pub authority: Authority,
        /// The database as given, percent-encoded; may be empty.
        database: String,
        /// The driver's options, as they were given.
        driver: Vec<String>,
        /// Whether connecting fails unless the collection exists.
        pub must_exist: bool,
    }

    /// The collection. Each collection is a separate namespace.
    pub collection: String = DEFAULT_COLLECTION in NAME;
    /// How long one command may take before its outcome is unknown.
    pub timeout: Duration = "10s" in TIMEOUT;
}

idmill_kit::shown_as_url!(MongoOptions);

impl MongoOptions {
    /// Parses a URL, without network access.
    ///
    /// # Errors
    /// Returns [`InvalidInput`](ErrorKind::InvalidInput) if the URL is invalid; the message never contains
    /// the password. Returns [`Unsupported`](ErrorKind::Unsupported) for `mongodb+srv:` without the feature
    /// `srv`.
    pub fn parse(url: &str) -> Result<Self> {
        let (scheme, place, query) = query::hosts(url, &["mongodb", SRV], "mongodb://HOST/DATABASE")?;
        if scheme == SRV && !cfg!(feature = "srv") {
            let message = "`mongodb+srv:` is not compiled in; build with the cargo feature `srv`, or write \
                           `mongodb://HOST1,HOST2/DATABASE`";
            return Err(Error::new(ErrorKind::Unsupported, message).during(idmill::Operation::Connect));
        }
        // The driver panics if the URL is not ASCII.
        if !place.is_ascii() || !query.is_ascii() {
            return Err(refuse("the URL has non-ASCII characters; percent-encode them, such as ü as %C3%BC"));
        }
        let (authority, database) = place.split_once('/').unwrap_or((place, ""));
        let authority = Authority::parse(authority)?;
        let mut options =
            Self::with_defaults(scheme == SRV, authority, database.to_owned(), Vec::new(), false);
        let mut once = Once::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let key = pair.split('=').next().unwrap_or_default().to_ascii_lowercase();
            // The driver accepts several `readPreferenceTags`, so duplicates of this option are allowed.
            if key != "readpreferencetags" {
                once.take(&key)?;
            }
            options.set_any(&key, pair)?;
        }
        options.check()?;
        Ok(options)
    }

    /// Makes connecting fail if the collection does not exist.
    #[must_use]
    pub fn must_exist(mut self) -> Self {
        self.must_exist = true;
        self
    }

    fn set_any(&mut self, key: &str, pair: &str) -> Result<()> {
        let value = pair.split_once('=').map_or("", |(_, value)| value);
        let value = &*percent_decode_str(value).decode_utf8_lossy();
        if self.set(key, value)? {
            return Ok(());
        }
        match key {
            // Copied URLs often have these options, so the value that the store uses is accepted.
            "w" if value != "majority" => Err(refuse(format!(
                "w={value} could lose reserved ids; remove `w`: each write is acknowledged by a majority"
            ))),
            "journal" if value == "false" => Err(refuse(
                "journal=false could lose reserved ids; remove `journal`: each write is journaled",
            )),
            "failover" => Err(self.unknown(key)),
            _ => {
                self.driver.push(pair.to_owned());
                Ok(())
            }
        }
    }

    /// Checks the options without a connection.
    fn check(&self) -> Result<()> {
        self.check_values()?;
        let database = self.database_name();
        if database.len() > 63 || database.contains(['/', '\\', '.', ' ', '"', '$', '\0']) {
            let rule = "at most 63 bytes, without `/\\. \"$`";
            return Err(refuse(format!("{database:?} is not a valid database name; use {rule}")));
        }
        ConnectionString::parse(self.uri()).map(drop).map_err(|error| self.unreadable(&error))
    }

    /// Converts the driver's error for the URL. If the URL contains a secret, omits the driver's text,
    /// which might quote the secret.
    fn unreadable(&self, error: &mongodb::error::Error) -> Error {
        let known = format!("{}, and the options of a MongoDB connection string", self.known());
        let has_login = self.authority.user.is_some() || self.authority.password.is_some();
        if has_login || self.driver.iter().any(|option| is_secret(option)) {
            return refuse(format!(
                "cannot read the URL (not shown: it has a secret); check hosts, options and \
                 percent-encoding; options: {known}"
            ));
        }
        refuse(format!("`{self}`: {error}; options: {known}", error = error.kind))
    }

    /// Returns the URL for the driver, including the password.
    fn uri(&self) -> String {
        self.with_driver(&self.authority.revealed(), &self.driver.join("&"))
    }

    fn place(&self) -> String {
        let driver: Vec<_> = self.driver.iter().map(|option| hide_secret(option)).collect();
        self.with_driver(&self.authority.to_string(), &driver.join("&"))
    }

    fn with_driver(&self, authority: &str, driver: &str) -> String {
        let separator = if driver.is_empty() { "" } else { "?" };
        format!("{}://{authority}/{}{separator}{driver}", self.scheme_name(), self.database)
    }

    fn scheme_name(&self) -> &'static str {
        if self.srv { SRV } else { "mongodb" }
    }

    fn database_name(&self) -> String {
        if self.database.is_empty() {
            return DEFAULT_DATABASE.to_owned();
        }
        percent_decode_str(&self.database).decode_utf8_lossy().into_owned()
    }

    pub(super) async fn open(&self) -> Result<MongoStore> {
        let commands = Commands::new(self.database().await?, self.collection.clone(), self.timeout);
        commands.concern().await?;
        if self.must_exist && !commands.exists().await? {
            let message = format!(
                "there is no collection `{}` at {self}; a reserve without `existing=true` creates it",
                commands.namespace()
            );
            return Err(Error::new(ErrorKind::NotFound, message));
        }
        Ok(MongoStore { must_exist: self.must_exist, ..MongoStore::over(commands) })
    }

    /// Returns the database of a new client. The client connects on first use.
    async fn database(&self) -> Result<Database> {
        let parsed = ClientOptions::parse(self.uri()).await;
        let mut options = parsed.map_err(|error| match &*error.kind {
            // The error is transient: the host may be added to the DNS later, or this machine may be
            // disconnected.
            mongodb::error::ErrorKind::DnsResolve { message, .. } => {
                let text = format!("{self}: the DNS lookup of the hosts failed: {message}");
                Error::new(ErrorKind::Unavailable, text)
            }
            _ => self.unreadable(&error),
        })?;
        self.complete(&mut options);
        let client = Client::with_options(options).map_err(|error| self.unreadable(&error))?;
        Ok(client.database(&self.database_name()))
    }

    /// Limits server selection and connecting to half of the command's timeout, so that an unreachable server
    /// is not reported as an unknown outcome.
    fn complete(&self, options: &mut ClientOptions) {
        let half = self.timeout / 2;
        let selection = options.server_selection_timeout.get_or_insert(half);
        *selection = half.min(*selection);
        let connect = options.connect_timeout.get_or_insert(half);
        *connect = half.min(*connect);
        options.app_name.get_or_insert_with(|| "idmill".to_owned());
    }
}

impl Target for MongoOptions {
    idmill_kit::target!(
        |options| options.scheme_name() => MongoStore::open_with, existing options.must_exist = true
    );

    fn largest<'a>(&'a self, column: &'a ColumnPath) -> StoreFuture<'a, Result<Largest>> {
        Box::pin(async { largest(self.database().await?, column, self.timeout).await })
    }
}

fn hide_secret(option: &str) -> String {
    let key = option.split('=').next().unwrap_or_default();
    if is_secret(option) { format!("{key}={HIDDEN}") } else { option.to_owned() }
}

/// Returns whether a driver option contains a secret. Such options are `tlsCertificateKeyFilePassword`,
/// `proxyPassword`, and the properties of an authentication mechanism, which may contain a session token.
fn is_secret(option: &str) -> bool {
    let key = option.split('=').next().unwrap_or_default().to_ascii_lowercase();
    key.contains("password") || key == "authmechanismproperties"
}

#[cfg(test)]
mod tests {
    use idmill_testing::OptionsPage as _;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn idmill_options_are_removed_driver_options_passed_on() {
        let url = "MongoDB://u:p%40ss@a:1,b:2/shop?replicaSet=rs0&collection=ids%2Dx&timeout=250ms&retryWrites=true";
        let options = MongoOptions::parse(url).unwrap();
        assert_eq!(options.uri(), "mongodb://u:p%40ss@a:1,b:2/shop?replicaSet=rs0&retryWrites=true");
        assert_eq!((&*options.collection, options.timeout), ("ids-x", Duration::from_millis(250)));
        assert_eq!(options.database_name(), "shop");
        let short = MongoOptions::parse("mongodb://localhost").unwrap();
        assert_eq!(
            (short.database_name().as_str(), short.to_string().as_str()),
            ("idmill", "mongodb://localhost/")
        );
        assert_eq!(short.timeout, super::super::DEFAULT_TIMEOUT);
        assert!(MongoOptions::parse("mongodb://h/?w=majority&journal=true").is_ok());
        let tags = "mongodb://h/?readPreference=nearest&readPreferenceTags=dc:ny&readPreferenceTags=";
        assert_eq!(MongoOptions::parse(tags).unwrap().to_string(), tags);
    }

    #[test]
    fn invalid_options_are_rejected_with_the_remedy() {
        for (url, remedy) in [
            ("mongodb:localhost", "two slashes"),
            ("mongodb://", "connection string"),
            ("mongodb://h/?colection=a", "options: collection=idmill_sequences, timeout=10s, and"),
            ("mongodb://h/?failover=allow", "unknown option `failover`"),
            ("mongodb://h/?collection=", "cannot be used: write 1 to 120 bytes"),
            ("mongodb://h/?collection=a%24b", "cannot be used: write 1 to 120 bytes"),
            ("mongodb://h/?collection=a&collection=b", "duplicate option"),
            ("mongodb://h/?timeout=5", "ms, s, m or h), 1ms to 24h, such as timeout=10s"),
            ("mongodb://h/?timeout=0s", "1ms to 24h"),
            ("mongodb://h/?timeout=1441m", "1ms to 24h"),
            ("mongodb://h/?w=1", "remove `w`"),
            ("mongodb://h/?journal=false", "journaled"),
            ("mongodb://h/a.b", "is not a valid database"),
            ("mongodb://h:port/", "port"),
            ("mongodb://%ü@h/", "%C3%BC"),
            ("mysql://h/", "must begin with `mongodb://`"),
        ] {
            let error = MongoOptions::parse(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{url}: {error}");
            assert!(error.to_string().contains(remedy), "{url}: {error}");
        }
    }

    #[cfg(not(feature = "srv"))]
    #[test]
    fn srv_url_without_the_feature_names_the_feature() {
        let error = MongoOptions::parse("mongodb+srv://cluster0.example.net/").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("feature `srv`, or write"), "{error}");
    }

    #[cfg(feature = "srv")]
    #[test]
    fn srv_url_is_parsed_and_resolved_when_connecting() {
        let url = "mongodb+srv://app:hunter2@cluster0.ab1cd.mongodb.net/shop?retryWrites=true&collection=ids";
        let options = MongoOptions::parse(url).unwrap();
        assert_eq!(options.to_string(), url.replace("hunter2", HIDDEN));
        assert_eq!(MongoOptions::parse(&options.to_string()).unwrap().to_string(), options.to_string());
        assert_eq!(Target::scheme(&options), SRV);
        assert_eq!(
            options.uri(),
            "mongodb+srv://app:hunter2@cluster0.ab1cd.mongodb.net/shop?retryWrites=true"
        );
        assert!(url.parse::<MongoOptions>().is_ok());
        for wrong in [
            "mongodb+srv://cluster0.mongodb.net:27017/", // the port is in the DNS
            "mongodb+srv://a.mongodb.net,b.mongodb.net/",
            "mongodb+srv://cluster0.mongodb.net/?directConnection=true",
            "mongodb+srv:cluster0.mongodb.net",
            "mongodb+srv://app:hunter2@cluster0.mongodb.net:1/",
        ] {
            let error = MongoOptions::parse(wrong).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{wrong}: {error}");
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn passwords_are_never_printed() {
        for url in [
            "mongodb://app:hunter2@h/",
            "mongodb://app:hunter2@x@h/",
            "mongodb://app:hunter2/x@h/",
            "mongodb://app:x/hunter2@h/",
            "mongodb://app:x?hunter2@h/",
            "mongodb://app:x/y?hunter2@h/",
            "mongodb://app:hunter2:y@h:port/",
            "mongodb://app:hunter2@h/?nonsense=1",
            "mongodb://app:hunter2?x@h/?collection=a",
            "mongodb://h/?tls=true&tlsCertificateKeyFilePassword=hunter2",
            "mongodb://h/?tls=nonsense&tlsCertificateKeyFilePassword=hunter2",
            "mongodb://h/?authMechanism=MONGODB-AWS&authMechanismProperties=AWS_SESSION_TOKEN:hunter2",
            "mongodb://h/?authMechanism=MONGODB-AWS&authMechanismProperties=hunter2",
            "mongodb://app@hunter2:x:y@h/",
        ] {
            let shown = match MongoOptions::parse(url) {
                Ok(options) => format!("{options} {options:?}"),
                Err(error) => format!("{error} {error:?}"),
            };
            assert!(!shown.contains("hunter2"), "{shown}");
        }
    }

    #[test]
    fn unreachable_server_is_detected_before_the_timeout() {
        let options = MongoOptions::parse("mongodb://h/?timeout=3s").unwrap();
        let mut driver = ClientOptions::default();
        options.complete(&mut driver);
        assert!(driver.server_selection_timeout.unwrap() < options.timeout);
        driver.server_selection_timeout = Some(Duration::from_millis(7));
        options.complete(&mut driver);
        assert_eq!(driver.server_selection_timeout, Some(Duration::from_millis(7)));
    }

    #[test]
    fn the_page_has_the_options() {
        MongoOptions::parse("mongodb://h/")
            .unwrap()
            .documented(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md"), "options");
    }

    proptest! {
        #[test]
        fn display_reads_back(
            authority in "[a-z0-9.]{1,12}(:[1-9][0-9]{0,3})?", database in "[a-z_]{0,9}",
            collection in "[A-Za-z_ %&#+?@=-]{1,20}", millis in 1..=86_400_000_u64, replica in any::<bool>(),
        ) {
            let driver = if replica { vec!["replicaSet=rs0".to_owned()] } else { Vec::new() };
            let options = MongoOptions::with_defaults(false, Authority::of([authority]), database, driver, false)
                .collection(collection)
                .timeout(Duration::from_millis(millis));
            prop_assume!(options.check().is_ok());
            let url = options.to_string();
            prop_assert_eq!(MongoOptions::parse(&url).unwrap(), options, "{}", url);
        }

        #[test]
        fn nothing_panics(
            rest in prop_oneof!["\\PC{0,40}", "[a-z/%?&=0-9:@,]{0,30}", "[a-z%é]{0,5}(:[a-z%é]{0,5})?@h(/\\?[a-z%é]{0,9})?"],
            key in "(maxStalenessSeconds|readPreference|tls|authMechanism|compressors|maxPoolSize|timeout|w|appName)",
            value in prop_oneof!["-?[0-9]{0,20}", "\\PC{0,9}"],
        ) {
            let _ = MongoOptions::parse(&format!("mongodb://{rest}"));
            let _ = MongoOptions::parse(&format!("mongodb://h/?readPreference=nearest&{key}={value}"));
        }
    }
}
