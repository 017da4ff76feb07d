//! The cluster that holds the sequences, and its URL form.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use idmill::store::{Store, StoreFuture};
use idmill::{Error, Result};
use idmill_kit::Target;
use idmill_kit::options::{FILE, Kind, TIMEOUT, Table, option, text, words};
use idmill_kit::secrets::check_login;
use idmill_kit::{Address, query, refuse};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::EtcdStore;

const PORT: u16 = 2379;
const PREFIX: Kind =
    text("/NAME/", "up to 1000 bytes without control characters, with a `/` at the end", |prefix| {
        prefix.ends_with('/') && prefix.len() <= 1000 && !prefix.contains(char::is_control)
    });
const OPTIONS: Table<EtcdOptions> = Table(&[
    option("prefix", PREFIX, "/idmill/")
        .means("the prefix of the keys; each prefix is separate, even one within another")
        .field(|o| &mut o.prefix),
    // etcd itself gives up after 7 s, while it looks for a leader; an election takes 1 to 2.
    option("timeout", TIMEOUT, "5s")
        .means(
            "how long to wait for one answer. An unanswered request is repeated for as long, if that is \
             harmless, so a call can take twice this",
        )
        .field(|o| &mut o.timeout),
    option("tls", words::<bool>(), "")
        .means("whether connections are encrypted; without it, they are if a file is named")
        .field(|o| &mut o.tls),
    option("ca", FILE, "")
        .means("a PEM file with the authorities that sign etcd's certificates, in place of the system's")
        .field(|o| &mut o.ca),
    option("cert", FILE, "")
        .means("a PEM file with the client's certificate, if etcd requires one (`--client-cert-auth`)")
        .field(|o| &mut o.cert),
    option("key", FILE, "").means("a PEM file with the key of that certificate").field(|o| &mut o.key),
]);

/// The cluster that holds the sequences, and how to reach it. Options are checked when it is opened.
///
/// As a URL:
/// `etcd://USER:PASSWORD@HOST:PORT,HOST:PORT?prefix=/idmill/&timeout=5s&tls=true&ca=FILE&cert=FILE&key=FILE`.
/// Passwords are never printed.
///
/// ```
/// use idmill_etcd::EtcdOptions;
///
/// let options = EtcdOptions::new(["etcd1", "etcd2:2379"]).prefix("/billing/").credentials("app", "secret");
/// assert_eq!(options.to_string(), "etcd://app:***@etcd1,etcd2:2379?prefix=/billing/");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct EtcdOptions {
    pub(super) endpoints: Vec<String>,
    pub(super) user: Option<(String, String)>,
    pub(super) prefix: String,
    pub(super) timeout: Duration,
    tls: Option<bool>,
    pub(super) ca: Option<PathBuf>,
    pub(super) cert: Option<PathBuf>,
    pub(super) key: Option<PathBuf>,
}

impl EtcdOptions {
    /// The cluster of these members (`HOST` or `HOST:PORT`), with every option at its default.
    pub fn new<E: Into<String>>(endpoints: impl IntoIterator<Item = E>) -> Self {
        let (prefix, timeout) = Default::default();
        OPTIONS.with_defaults(Self {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            user: None,
            prefix,
            timeout,
            tls: None,
            ca: None,
            cert: None,
            key: None,
        })
    }

    /// The user and password to log in with. Without them and without a certificate, etcd's authentication
    /// must be off.
    #[must_use]
    pub fn credentials(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.user = Some((user.into(), password.into()));
        self
    }

    /// The prefix of the keys: up to 1000 bytes, with a slash at the end. Default `/idmill/`. Each prefix is
    /// its own namespace, even one within another.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// How long to wait for the answer to one request, 1 ms to a day. Default 5 s. An unanswered request is
    /// repeated for as long, if that is harmless, so a call can take twice this.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Whether connections are encrypted. Default: only if a certificate is named. Trusts the system's
    /// authorities, unless [`ca`](Self::ca) names others.
    #[must_use]
    pub fn tls(mut self, tls: bool) -> Self {
        self.tls = Some(tls);
        self
    }

    /// A PEM file with the authorities that sign etcd's certificates. Read when the store is opened.
    #[must_use]
    pub fn ca(mut self, file: impl Into<PathBuf>) -> Self {
        self.ca = Some(file.into());
        self
    }

    /// PEM files with the client's certificate and its key, if etcd requires one (`--client-cert-auth`). Read
    /// when the store is opened.
    #[must_use]
    pub fn client_certificate(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        (self.cert, self.key) = (Some(certificate.into()), Some(key.into()));
        self
    }

    pub(super) fn is_encrypted(&self) -> bool {
        self.tls.unwrap_or(self.ca.is_some() || self.cert.is_some())
    }

    /// Each with a port.
    pub(super) fn addresses(&self) -> Result<Vec<Address>> {
        self.endpoints.iter().map(|host| address(host)).collect()
    }

    /// Reads what follows `etcd:` in a URL.
    pub(crate) fn parse(rest: &str) -> Result<Self> {
        let rest =
            rest.strip_prefix("//").ok_or_else(|| refuse("hosts follow two slashes: `etcd://HOST:PORT`"))?;
        check_login(rest)?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (user, hosts) = match place.rsplit_once('@') {
            Some((user, hosts)) => (Some(parse_user(user)?), hosts),
            None => (None, place),
        };
        let hosts = hosts.strip_suffix('/').unwrap_or(hosts);
        if hosts.contains('/') {
            return Err(refuse(
                "no path follows the hosts; where the keys are is said by `?prefix=/billing/`",
            ));
        }
        let options = Self { user, ..Self::new(hosts.split(',')) };
        let options = OPTIONS.read(query, options)?;
        options.check()?;
        Ok(options)
    }

    /// Everything that can be known to be wrong without asking anybody.
    pub(super) fn check(&self) -> Result<()> {
        if self.endpoints.is_empty() {
            return Err(refuse("no host is named: `etcd://HOST:PORT`"));
        }
        self.addresses()?;
        if self.user.as_ref().is_some_and(|(user, _)| user.is_empty()) {
            return Err(refuse("the user's name is empty; credentials are written `USER:PASSWORD@`"));
        }
        OPTIONS.check(self)?;
        self.check_files()
    }

    fn check_files(&self) -> Result<()> {
        if self.cert.is_some() != self.key.is_some() {
            return Err(refuse("a certificate and its key go together: cert=FILE&key=FILE"));
        }
        if self.tls == Some(false) && (self.ca.is_some() || self.cert.is_some()) {
            return Err(refuse("tls=false has no use for certificates; leave it out, or them"));
        }
        Ok(())
    }
}

impl FromStr for EtcdOptions {
    type Err = Error;

    fn from_str(url: &str) -> Result<Self> {
        Self::parse(query::after("etcd", url)?)
    }
}

impl Target for EtcdOptions {
    fn scheme(&self) -> &'static str {
        "etcd"
    }

    /// Opening never creates anything here: a key is created with its sequence.
    fn existing(&self) -> Arc<dyn Target> {
        Arc::new(self.clone())
    }

    fn connect(&self) -> StoreFuture<'_, Result<Arc<dyn Store>>> {
        Box::pin(async { Ok(Arc::new(EtcdStore::open_with(self.clone()).await?) as Arc<dyn Store>) })
    }
}

impl fmt::Display for EtcdOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("etcd://")?;
        if let Some((user, _)) = &self.user {
            write!(f, "{}:***@", utf8_percent_encode(user, NON_ALPHANUMERIC))?;
        }
        write!(f, "{}{}", self.endpoints.join(","), OPTIONS.print(self))
    }
}

impl fmt::Debug for EtcdOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EtcdOptions({self})")
    }
}

fn parse_user(user: &str) -> Result<(String, String)> {
    // Not echoed: it may be the password alone.
    let (user, password) = user.split_once(':').ok_or_else(|| {
        refuse("credentials are written `USER:PASSWORD@`; percent-encode what has a meaning in a URL")
    })?;
    Ok((query::decoded(user)?, query::decoded(password)?))
}

fn address(host: &str) -> Result<Address> {
    Address::parse(host, Some(PORT)).ok_or_else(|| {
        refuse(format!("the host {host:?} cannot be; write HOST or HOST:PORT, with commas between several"))
    })
}

#[cfg(test)]
mod tests {
    use idmill::ErrorKind;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_option_is_read() {
        let url = "//me%40x:s%2Fcret@a,b:1,[::1],[::1]:5?prefix=/x%20y/&timeout=250ms&tls=true&ca=/c.pem&cert=a.pem&key=b.pem";
        let expected = EtcdOptions::new(["a", "b:1", "[::1]", "[::1]:5"])
            .credentials("me@x", "s/cret")
            .prefix("/x y/")
            .timeout(Duration::from_millis(250))
            .tls(true)
            .ca("/c.pem")
            .client_certificate("a.pem", "b.pem");
        assert_eq!(EtcdOptions::parse(url).unwrap(), expected);
        let addresses: Vec<_> = expected.addresses().unwrap().iter().map(Address::to_string).collect();
        assert_eq!(addresses, ["a:2379", "b:1", "[::1]:2379", "[::1]:5"]);
        assert_eq!(EtcdOptions::parse("//a/").unwrap(), EtcdOptions::new(["a"]));
    }

    #[test]
    fn encryption_is_on_where_it_is_asked_for_or_a_certificate_named() {
        for (url, encrypted) in [
            ("//a", false),
            ("//a?tls=false", false),
            ("//a?tls=true", true),
            ("//a?ca=x", true),
            ("//a?cert=x&key=y", true),
        ] {
            assert_eq!(EtcdOptions::parse(url).unwrap().is_encrypted(), encrypted, "{url}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_remedy() {
        for (url, remedy) in [
            ("", "etcd://HOST:PORT"),
            ("a:2379", "etcd://HOST:PORT"),
            ("//", "HOST:PORT"),
            ("//a,,b", "HOST:PORT"),
            ("//a b", "HOST:PORT"),
            ("//::1", "HOST:PORT"),
            ("//[::1]x", "HOST:PORT"),
            ("//a:0", "HOST:PORT"),
            ("//a:65536", "HOST:PORT"),
            ("//a/billing", "prefix=/billing/"),
            ("//secret@a", "USER:PASSWORD@"),
            ("//:secret@a", "USER:PASSWORD@"),
            ("//u:%ffsecret@a", "UTF-8"),
            ("//a?prefix=x", "`/` at the end"),
            ("//a?prefix=", "`/` at the end"),
            ("//a?prefix=%00/", "control"),
            ("//a?timeout=5", "ms, s, m or h), 1ms to 24h, such as timeout=5s"),
            ("//a?timeout=0s", "1ms to 24h"),
            ("//a?timeout=25h", "1ms to 24h"),
            ("//a?tls=yes", "true, false"),
            ("//a?cert=x", "go together"),
            ("//a?key=x", "go together"),
            ("//a?ca=", "ca=\"\" cannot be used: write the path of a file"),
            ("//a?tls=false&ca=x", "no use for certificates"),
            ("//a?prefix=/a/&prefix=/b/", "twice"),
            (
                "//a?prefixes=/a/",
                "there are prefix=/idmill/, timeout=5s, tls=true|false, ca=FILE, cert=FILE, key=FILE",
            ),
        ] {
            let error = EtcdOptions::parse(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{url}");
            assert!(error.to_string().contains(remedy), "{url}: {error}");
            assert!(!error.to_string().contains("secret"), "{url}: {error}");
        }
        assert!(EtcdOptions::new(Vec::<String>::new()).check().unwrap_err().to_string().contains("no host"));
    }

    #[test]
    fn passwords_are_never_shown() {
        let options = EtcdOptions::parse("//app:s3cret@a?prefix=/x/").unwrap();
        assert_eq!(options.to_string(), "etcd://app:***@a?prefix=/x/");
        assert!(!format!("{options:?}").contains("s3cret"));
    }

    #[test]
    fn the_page_has_the_options() {
        OPTIONS.documented(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md"), "options");
    }

    proptest! {
        #[test]
        fn display_reads_back(
            hosts in prop::collection::vec("[a-z]{1,9}(:[1-9][0-9]{0,3})?", 1..4),
            prefix in "\\PC{0,20}/",
            millis in 1..3_600_000u64,
            tls: bool,
            ca in prop::option::of("\\PC{1,20}"),
        ) {
            let mut options = EtcdOptions::new(hosts).prefix(prefix).timeout(Duration::from_millis(millis)).tls(tls);
            options.ca = ca.map(Into::into);
            prop_assume!(options.check().is_ok());
            let url = options.to_string();
            let read = EtcdOptions::parse(url.strip_prefix("etcd:").unwrap()).unwrap();
            prop_assert_eq!(read, options, "{}", url);
        }
    }
}
