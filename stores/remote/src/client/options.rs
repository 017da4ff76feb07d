//! The servers, and how they are asked, and their URL form.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use idmill::store::{Store, StoreFuture};
use idmill::{Error, Result};
use idmill_kit::Target;
use idmill_kit::options::{FILE, Kind, Table, duration, option, text};
use idmill_kit::refuse;
use idmill_kit::secrets::{check_login, trimmed};

use super::RemoteStore;
use super::place::{self, Place, Token};

const VARIABLE: Kind = text("NAME", "the name of a variable of the environment", |name| {
    !name.is_empty() && !name.contains(['=', '\0'])
});
const OPTIONS: Table<RemoteOptions> = Table(&[
    option("timeout", duration("10ms", "24h"), "5s")
        .means("how long a call may take; up to half of it for connecting, to all servers together")
        .field(|o| &mut o.timeout),
    option("token_file", FILE, "")
        .means("a file with the token, in place of one in the URL; read again for every connection")
        .field(|o| &mut o.token_file),
    option("token_env", VARIABLE, "")
        .means("a variable of the environment with the token, in place of one in the URL")
        .field(|o| &mut o.token_env),
    option("ca", FILE, "")
        .means(
            "with `idmills://`: a PEM file with the authorities to trust in place of the system's, read again for every \
             connection",
        )
        .field(|o| &mut o.ca),
    option("cert", FILE, "")
        .means("with `idmills://`: a PEM file with the client's certificate, if the servers require one")
        .field(|o| &mut o.cert),
    option("key", FILE, "").means("a PEM file with the key of that certificate").field(|o| &mut o.key),
]);

/// The servers to reserve from, and how to reach them. Options are checked when the store is opened.
///
/// As a URL: `idmill://:TOKEN@HOST:PORT,HOST:PORT?timeout=5s&token_file=FILE&token_env=NAME`, or
/// `idmills://…?ca=FILE&cert=FILE&key=FILE` over TLS. Tokens are never printed.
///
/// ```
/// use idmill_remote::RemoteOptions;
///
/// let options: RemoteOptions = "idmills://:idm_secret@ids1,ids2:7390?timeout=2s".parse()?;
/// assert_eq!(options.to_string(), "idmills://:***@ids1:7380,ids2:7390?timeout=2s");
/// # Ok::<(), idmill::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteOptions {
    pub(super) place: Place,
    pub(super) timeout: Duration,
    token_file: Option<PathBuf>,
    token_env: Option<String>,
    pub(super) ca: Option<String>,
    pub(super) cert: Option<PathBuf>,
    pub(super) key: Option<PathBuf>,
}

impl RemoteOptions {
    /// These servers (`HOST` or `HOST:PORT`) over one store, with every option at its default.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) if one of these is no address, or there is none.
    pub fn new<S: AsRef<str>>(servers: impl IntoIterator<Item = S>) -> Result<Self> {
        let servers: Vec<_> =
            servers.into_iter().map(|server| place::server(server.as_ref())).collect::<Result<_>>()?;
        if servers.is_empty() {
            return Err(refuse("no server is named: `idmill://HOST:PORT`"));
        }
        Ok(Self::of(Place { tls: false, servers, token: None }))
    }

    fn of(place: Place) -> Self {
        let (timeout, token_file, token_env) = Default::default();
        OPTIONS.with_defaults(Self { place, timeout, token_file, token_env, ca: None, cert: None, key: None })
    }

    /// The token to show, as `idmill token` made it.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.place.token = Some(Token(token.into()));
        self
    }

    /// A file with the token. It is read for every connection, so that a token can be exchanged under a
    /// running process.
    #[must_use]
    pub fn token_file(mut self, file: impl Into<PathBuf>) -> Self {
        self.token_file = Some(file.into());
        self
    }

    /// A variable of the environment with the token.
    #[must_use]
    pub fn token_env(mut self, name: impl Into<String>) -> Self {
        self.token_env = Some(name.into());
        self
    }

    /// How long a call may take, 10 ms to 24 h. Default 5 s.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Uses TLS, and trusts the system's authorities.
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.place.tls = true;
        self
    }

    /// Uses TLS, and trusts the authorities in this PEM file in place of the system's.
    #[must_use]
    pub fn ca(mut self, file: impl Into<String>) -> Self {
        (self.place.tls, self.ca) = (true, Some(file.into()));
        self
    }

    /// Uses TLS, and shows the certificate in this PEM file, whose key is in the other.
    #[must_use]
    pub fn client_certificate(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.place.tls = true;
        (self.cert, self.key) = (Some(certificate.into()), Some(key.into()));
        self
    }

    /// The token as it is now; `None` for none. Blocks where a file has it.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) where it is not where it should be.
    pub(super) fn token_now(&self) -> Result<Option<Token>> {
        if let Some(file) = &self.token_file {
            let read = std::fs::read_to_string(file);
            let token = read.map_err(|error| {
                let message = format!("token_file={:?} cannot be read: {error}", file.display().to_string());
                refuse(message).because(error)
            })?;
            return given(&token, || format!("token_file={:?}", file.display().to_string())).map(Some);
        }
        if let Some(name) = &self.token_env {
            let token = std::env::var(name).unwrap_or_default();
            return given(&token, || format!("token_env={name}")).map(Some);
        }
        Ok(self.place.token.clone())
    }

    /// Everything that can be known to be wrong without asking anybody.
    pub(super) fn check(&self) -> Result<()> {
        OPTIONS.check(self)?;
        let tokens = [self.place.token.is_some(), self.token_file.is_some(), self.token_env.is_some()];
        if tokens.into_iter().filter(|given| *given).count() > 1 {
            return Err(refuse("the token is given twice: keep one of the URL's, token_file and token_env"));
        }
        if self.cert.is_some() != self.key.is_some() {
            return Err(refuse("a certificate and its key go together: cert=FILE&key=FILE"));
        }
        if !self.place.tls && (self.ca.is_some() || self.cert.is_some()) {
            return Err(refuse("ca=, cert= and key= are looked at with idmills:// only: write that"));
        }
        Ok(())
    }
}

/// What was found there, without the end of its line. Not shown.
fn given(token: &str, place: impl Fn() -> String) -> Result<Token> {
    let token = token.trim();
    if token.is_empty() || token.contains(char::is_whitespace) {
        return Err(refuse(format!("{} has no token; one is a word, as `idmill token` prints it", place())));
    }
    Ok(Token(token.to_owned()))
}

impl Target for RemoteOptions {
    fn scheme(&self) -> &'static str {
        if self.place.tls { "idmills" } else { "idmill" }
    }

    /// Nothing is created by opening it.
    fn existing(&self) -> Arc<dyn Target> {
        Arc::new(self.clone())
    }

    fn connect(&self) -> StoreFuture<'_, Result<Arc<dyn Store>>> {
        Box::pin(async { Ok(Arc::new(RemoteStore::open_with(self.clone()).await?) as Arc<dyn Store>) })
    }
}

/// Reads a URL, as [`Display`](fmt::Display) prints it except for the token.
impl FromStr for RemoteOptions {
    type Err = Error;

    fn from_str(url: &str) -> Result<Self> {
        let (tls, rest) = split_scheme(trimmed(url)?)?;
        check_login(rest)?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let options = OPTIONS.read(query, Self::of(Place::parse(tls, place)?))?;
        options.check()?;
        Ok(options)
    }
}

/// Whether a URL asks for TLS, and what follows its scheme. Never the text itself in an error: it may hold a
/// token.
fn split_scheme(url: &str) -> Result<(bool, &str)> {
    let (scheme, rest) = url.split_once(':').unwrap_or((url, ""));
    match scheme.to_ascii_lowercase().as_str() {
        "idmill" => Ok((false, rest)),
        "idmills" => Ok((true, rest)),
        _ => Err(refuse("the URL of servers of idmill begins with `idmill://`, or `idmills://` for TLS")),
    }
}

impl fmt::Display for RemoteOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.place, OPTIONS.print(self))
    }
}

#[cfg(test)]
mod tests {
    use idmill::ErrorKind;
    use proptest::prelude::*;

    use super::*;

    fn servers(servers: &[&str]) -> RemoteOptions {
        RemoteOptions::new(servers).unwrap()
    }

    #[test]
    fn every_option_is_read() {
        let url =
            "idmills://:s%40c%3A%2F@a,b:1,[::1],[::1]:5?timeout=250ms&ca=/a%20b.pem&cert=c.pem&key=k.pem";
        let expected = servers(&["a:7380", "b:1", "[::1]:7380", "[::1]:5"]).token("s@c:/");
        let expected = expected.timeout(Duration::from_millis(250)).ca("/a b.pem");
        assert_eq!(url.parse::<RemoteOptions>().unwrap(), expected.client_certificate("c.pem", "k.pem"));
        for (url, options) in [
            ("IDMILL://x/", servers(&["x"])),
            (" 'idmills://x' ", servers(&["x"]).tls()),
            ("idmill://x?token_file=/t", servers(&["x"]).token_file("/t")),
            ("idmill://x?token_env=T", servers(&["x"]).token_env("T")),
        ] {
            assert_eq!(url.parse::<RemoteOptions>().unwrap(), options, "{url}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_remedy_and_without_the_token() {
        for (url, remedy) in [
            ("http://x", "begins with `idmill://`"),
            ("idmill:x", "two slashes"),
            ("idmill://", "HOST:PORT"),
            ("idmill://a,,b", "HOST:PORT"),
            ("idmill://x:0", "7380"),
            ("idmill://x:99999", "7380"),
            ("idmill://::1", "HOST:PORT"),
            ("idmill://a b", "HOST:PORT"),
            ("idmill://x/y", "no path"),
            ("idmill://secret@x", ":TOKEN@"),
            ("idmill://app:secret@x", ":TOKEN@"),
            ("idmill://:@x", ":TOKEN@"),
            ("idmill://:sec@ret@x", "%40"),
            ("idmill://:sec/ret@x", "%2F"),
            ("idmill://:%ffsecret@x", "UTF-8"),
            ("idmill://:secret@x?token_env=T", "given twice"),
            ("idmill://x?token_env=T&token_file=f", "given twice"),
            ("idmill://x?token_env=", "name of a variable"),
            ("idmill://x?timeout=1ms", "10ms to 24h"),
            ("idmill://x?ca=/x.pem", "idmills://"),
            ("idmill://x?cert=a&key=b", "idmills://"),
            ("idmills://x?cert=a", "go together"),
            ("idmill://x?failover=refuse", "has no option `failover`"),
            ("idmill://x?token=secret", "there are timeout=5s, token_file=FILE, token_env=NAME"),
        ] {
            let error = url.parse::<RemoteOptions>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{url}");
            assert!(error.to_string().contains(remedy), "{url}: {error}");
            assert!(!format!("{error:?}").contains("ret"), "{error}");
        }
        assert!(RemoteOptions::new(Vec::<String>::new()).unwrap_err().to_string().contains("no server"));
    }

    #[test]
    fn a_token_in_a_file_is_read_each_time_and_not_shown() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        let options = servers(&["x"]).token_file(&file);
        let error = options.token_now().unwrap_err();
        assert!(
            error.to_string().contains("token_file=") && error.kind() == ErrorKind::InvalidInput,
            "{error}"
        );
        for token in ["idm_one", "idm_two"] {
            std::fs::write(&file, format!("{token}\n")).unwrap();
            assert_eq!(options.token_now().unwrap(), Some(Token(token.to_owned())));
        }
        for none in ["", " \n", "idm_one idm_two"] {
            std::fs::write(&file, none).unwrap();
            let error = options.token_now().unwrap_err().to_string();
            assert!(error.contains("has no token") && !error.contains("idm_"), "{error}");
        }
        // There is such a variable wherever tests run.
        assert!(servers(&["x"]).token_env("PATH").token_now().unwrap().is_some());
        let missing = servers(&["x"]).token_env("IDMILL_NO_SUCH_VARIABLE").token_now().unwrap_err();
        assert!(missing.to_string().contains("token_env=IDMILL_NO_SUCH_VARIABLE"), "{missing}");
    }

    #[test]
    fn the_page_has_the_options() {
        OPTIONS.documented(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md"), "options");
    }

    proptest! {
        #[test]
        fn display_reads_back_but_for_the_token(
            hosts in prop::collection::vec("[a-y]{1,9}(:[1-9][0-9]{0,3})?", 1..4), millis in 10..3_600_000_u64, tls: bool,
            ca in prop::option::of("[^z]\\PC{0,9}"), token in "zz\\PC{0,9}",
        ) {
            let options = RemoteOptions::new(hosts).unwrap().timeout(Duration::from_millis(millis));
            let options = if tls { options.tls() } else { options };
            let options = match &ca { Some(ca) => options.ca(ca), None => options };
            prop_assume!(options.check().is_ok());
            prop_assert_eq!(&options.to_string().parse::<RemoteOptions>().unwrap(), &options);
            let printed = options.token(token).to_string();
            prop_assert!(!printed.contains("zz") || ca.is_some_and(|ca| ca.contains("zz")));
            prop_assert_eq!(printed.parse::<RemoteOptions>().unwrap().place.token, Some(Token("***".to_owned())));
        }
    }
}
