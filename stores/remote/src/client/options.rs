//! The options of the client: the servers, how to reach them, and the URL form.

use std::path::PathBuf;
use std::time::Duration;

use idmill::Result;
use idmill_kit::options::{FILE, Kind, Options as _, Tls, duration, text};
use idmill_kit::{Address, Authority, Target, refuse};

use super::RemoteStore;

const DEFAULT_PORT: u16 = 7380;
const TLS: &str = "idmills";
const VARIABLE: Kind = text("NAME", "the name of an environment variable", |name| {
    !name.is_empty() && !name.contains(['=', '\0'])
});

idmill_kit::options! {
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
    pub struct RemoteOptions at hosts "idmill" | "idmills" as "idmill://HOST:PORT" {
        /// The servers, and the token as a password without a user.
        authority: Authority,
        pub(super) servers: Vec<Address>,
        pub(super) tls: Tls,
    }

    /// How long a call may take. Connecting, with each server tried once, may take up to half of that time in
    /// total.
    pub timeout: Duration = "5s" in duration("10ms", "24h");
    /// A file with the token, instead of one in the URL. It is read for each new connection.
    ///
    /// So a token can be rotated without a restart.
    pub token_file: Option<PathBuf> = "" in FILE;
    /// An environment variable with the token, instead of one in the URL.
    pub token_env: Option<String> = "" in VARIABLE;

    use tls as |entry| entry.among(&["ca", "cert", "key"]);
}

impl RemoteOptions {
    /// Creates options for these servers (`HOST` or `HOST:PORT`), which must share one store. Every other
    /// option has its default.
    ///
    /// # Errors
    /// Returns [`InvalidInput`](idmill::ErrorKind::InvalidInput) if an address is invalid, or if there is
    /// no address.
    pub fn new<S: AsRef<str>>(servers: impl IntoIterator<Item = S>) -> Result<Self> {
        Self::of("", Authority::of(servers.into_iter().map(|server| server.as_ref().to_owned())))
    }

    fn of(scheme: &str, mut authority: Authority) -> Result<Self> {
        let servers = authority.addresses(DEFAULT_PORT)?;
        authority.hosts = servers.iter().map(Address::to_string).collect();
        Ok(Self::with_defaults(authority, servers, Tls::fixed(scheme == TLS)))
    }

    /// Sets the token, as created by `idmill token`.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.authority.password = Some(token.into());
        self
    }

    idmill_kit::tls_setters!([tls] tls, ca, client_certificate);

    fn at(scheme: &str, place: &str) -> Result<Self> {
        let place = place.strip_suffix('/').unwrap_or(place);
        let authority = Authority::parse(place)?;
        if authority.hosts.iter().any(|host| host.contains('/')) {
            return Err(refuse("the servers must not be followed by a path; remove it"));
        }
        let has_token = authority.password.as_ref().is_some_and(|token| !token.is_empty());
        if authority.user.is_some() || (place.contains('@') && !has_token) {
            return Err(refuse(
                "a token needs a colon before it, and no user; write `idmill://:TOKEN@HOST`, or set \
                 `token_file=FILE`",
            ));
        }
        Self::of(scheme, authority)
    }

    fn scheme_name(&self) -> &'static str {
        if self.tls.is_on() { TLS } else { "idmill" }
    }

    fn place(&self) -> String {
        format!("{}://{}", self.scheme_name(), self.authority)
    }

    /// Checks the options without a connection.
    pub(super) fn check(&self) -> Result<()> {
        self.check_values()?;
        let tokens = [self.authority.password.is_some(), self.token_file.is_some(), self.token_env.is_some()];
        if tokens.into_iter().filter(|given| *given).count() > 1 {
            return Err(refuse(
                "duplicate token; keep only one of `token_file`, `token_env` and the token in the URL",
            ));
        }
        self.tls.check("idmill://", "idmills://")
    }

    /// Reads the current token. Returns `None` if no token is configured. Blocks while it reads a file.
    ///
    /// # Errors
    /// Returns [`InvalidInput`](idmill::ErrorKind::InvalidInput) if the file or variable has no token.
    pub(super) fn token_now(&self) -> Result<Option<String>> {
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
        Ok(self.authority.password.clone())
    }
}

/// Trims a token. Errors do not contain the token.
fn given(token: &str, place: impl Fn() -> String) -> Result<String> {
    let token = token.trim();
    if token.is_empty() || token.contains(char::is_whitespace) {
        return Err(refuse(format!(
            "{} has no valid token; use one word, as `idmill token` prints it",
            place()
        )));
    }
    Ok(token.to_owned())
}

/// `existing` changes no option, because opening the store creates nothing.
impl Target for RemoteOptions {
    idmill_kit::target!(|options| options.scheme_name() => RemoteStore::open_with);
}

#[cfg(test)]
mod tests {
    use idmill::ErrorKind;
    use idmill_testing::OptionsPage as _;
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
    fn invalid_options_are_rejected_without_the_token() {
        for (url, remedy) in [
            ("http://x", "must begin with `idmill://`"),
            ("idmill:x", "two slashes"),
            ("idmill://", "HOST:PORT"),
            ("idmill://a,,b", "HOST:PORT"),
            ("idmill://x:0", "7380"),
            ("idmill://x:99999", "7380"),
            ("idmill://::1", "HOST:PORT"),
            ("idmill://a b", "HOST:PORT"),
            ("idmill://x/y", "by a path"),
            ("idmill://secret@x", ":TOKEN@"),
            ("idmill://app:secret@x", ":TOKEN@"),
            ("idmill://:@x", ":TOKEN@"),
            ("idmill://:sec@ret@x", "%40"),
            ("idmill://:sec/ret@x", "%2F"),
            ("idmill://:%ffsecret@x", "UTF-8"),
            ("idmill://:secret@x?token_env=T", "duplicate token"),
            ("idmill://x?token_env=T&token_file=f", "duplicate token"),
            ("idmill://x?token_env=", "name of an environment variable"),
            ("idmill://x?timeout=1ms", "10ms to 24h"),
            ("idmill://x?ca=/x.pem", "idmills://"),
            ("idmill://x?cert=a&key=b", "idmills://"),
            ("idmills://x?cert=a", "set both"),
            ("idmill://x?failover=refuse", "unknown option `failover`"),
            ("idmill://x?token=secret", "use one of: timeout=5s, token_file=FILE, token_env=NAME"),
        ] {
            let error = url.parse::<RemoteOptions>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{url}");
            assert!(error.to_string().contains(remedy), "{url}: {error}");
            assert!(!format!("{error:?}").contains("ret"), "{error}");
        }
        let error = RemoteOptions::new(Vec::<String>::new()).unwrap_err().to_string();
        assert!(error.contains("the host is missing"), "{error}");
    }

    #[test]
    fn token_file_is_read_each_time_and_never_shown() {
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
            assert_eq!(options.token_now().unwrap(), Some(token.to_owned()));
        }
        for none in ["", " \n", "idm_one idm_two"] {
            std::fs::write(&file, none).unwrap();
            let error = options.token_now().unwrap_err().to_string();
            assert!(error.contains("has no valid token") && !error.contains("idm_"), "{error}");
        }
        // The variable `PATH` is always set.
        assert!(servers(&["x"]).token_env("PATH").token_now().unwrap().is_some());
        let missing = servers(&["x"]).token_env("IDMILL_NO_SUCH_VARIABLE").token_now().unwrap_err();
        assert!(missing.to_string().contains("token_env=IDMILL_NO_SUCH_VARIABLE"), "{missing}");
    }

    #[test]
    fn the_page_has_the_options() {
        servers(&["x"]).documented(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md"), "options");
    }

    proptest! {
        #[test]
        fn display_round_trips_except_the_token(
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
            prop_assert_eq!(printed.parse::<RemoteOptions>().unwrap().authority.password, Some("***".to_owned()));
        }
    }
}
