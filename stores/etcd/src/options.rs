//! The cluster that holds the sequences, and its URL form.

use std::time::Duration;

use idmill::Result;
use idmill_kit::options::{Kind, Options as _, TIMEOUT, Tls, text};
use idmill_kit::{Address, Authority, Target, refuse};

use super::EtcdStore;

const PORT: u16 = 2379;
const PREFIX: Kind =
    text("/NAME/", "up to 1000 bytes without control characters, with a `/` at the end", |prefix| {
        prefix.ends_with('/') && prefix.len() <= 1000 && !prefix.contains(char::is_control)
    });

idmill_kit::options! {
    /// The cluster that holds the sequences, and how to reach it. Options are checked when the store is
    /// opened.
    ///
    /// As a URL:
    /// `etcd://USER:PASSWORD@HOST:PORT,HOST:PORT?prefix=/idmill/&timeout=5s&tls=true&ca=FILE&cert=FILE&key=FILE`.
    /// Passwords are never printed.
    ///
    /// ```
    /// use idmill_etcd::EtcdOptions;
    ///
    /// let options =
    ///     EtcdOptions::new(["etcd1", "etcd2:2379"]).prefix("/billing/").credentials("app", "secret");
    /// assert_eq!(options.to_string(), "etcd://app:***@etcd1,etcd2:2379?prefix=/billing/");
    /// ```
    pub struct EtcdOptions at hosts "etcd" as "etcd://HOST:PORT" {
        /// The members, and the user to log in as.
        pub authority: Authority,
        /// How connections are encrypted.
        pub tls: Tls,
    }

    /// The prefix of the keys. Each prefix is a separate namespace, even if it begins with another one.
    /// `PREFIXwitness/` holds the records of a witness at PREFIX.
    ///
    /// Up to 1000 bytes, with a slash at the end.
    pub prefix: String = "/idmill/" in PREFIX;
    /// How long to wait for one reply. An unanswered request that is safe to repeat is resent for at most
    /// another `timeout`. A call can take longer than two timeouts if some members reject the request or are
    /// unreachable.
    ///
    /// The election of a leader takes 1 to 2 s. A request that an election interrupts gets etcd's own timeout
    /// after 7 s.
    pub timeout: Duration = "5s" in TIMEOUT;

    use tls;
}

impl EtcdOptions {
    /// Options for the cluster of these members (`HOST` or `HOST:PORT`), with every option at its default.
    pub fn new<E: Into<String>>(endpoints: impl IntoIterator<Item = E>) -> Self {
        Self::with_defaults(Authority::of(endpoints), Tls::default())
    }

    /// Sets the user and password to log in with. Without them and without a certificate, etcd's
    /// authentication must be off.
    #[must_use]
    pub fn credentials(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.authority.log_in(user, password);
        self
    }

    idmill_kit::tls_setters!([tls] optional, ca, client_certificate);

    /// The members' addresses, each with a port.
    pub(super) fn addresses(&self) -> Result<Vec<Address>> {
        self.authority.addresses(PORT)
    }

    fn at(_: &str, place: &str) -> Result<Self> {
        let place = place.strip_suffix('/').unwrap_or(place);
        if place.contains('/') {
            return Err(refuse(
                "the hosts must not be followed by a path; set the prefix with `?prefix=/billing/`",
            ));
        }
        Ok(Self::with_defaults(Authority::parse(place)?, Tls::default()))
    }

    fn place(&self) -> String {
        format!("etcd://{}", self.authority)
    }

    /// Checks everything that needs no connection.
    pub(super) fn check(&self) -> Result<()> {
        self.addresses()?;
        self.authority.login()?;
        self.check_values()?;
        self.tls.check("tls=false", "tls=true")
    }
}

/// Opening creates nothing: a key is created with its sequence.
impl Target for EtcdOptions {
    idmill_kit::target!(|options| "etcd" => EtcdStore::open_with);
}

#[cfg(test)]
mod tests {
    use idmill::ErrorKind;
    use idmill_testing::OptionsPage as _;
    use proptest::prelude::*;

    use super::*;

    fn parse(rest: &str) -> Result<EtcdOptions> {
        EtcdOptions::parse(&format!("etcd:{rest}"))
    }

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
        assert_eq!(parse(url).unwrap(), expected);
        let addresses: Vec<_> = expected.addresses().unwrap().iter().map(Address::to_string).collect();
        assert_eq!(addresses, ["a:2379", "b:1", "[::1]:2379", "[::1]:5"]);
        assert_eq!(parse("//a/").unwrap(), EtcdOptions::new(["a"]));
    }

    #[test]
    fn tls_is_enabled_by_option_or_certificate() {
        for (url, encrypted) in [
            ("//a", false),
            ("//a?tls=false", false),
            ("//a?tls=true", true),
            ("//a?ca=x", true),
            ("//a?cert=x&key=y", true),
        ] {
            assert_eq!(parse(url).unwrap().tls.is_on(), encrypted, "{url}");
        }
    }

    #[test]
    fn invalid_options_are_rejected_with_the_remedy() {
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
            ("//a?cert=x", "set both"),
            ("//a?key=x", "set both"),
            ("//a?ca=", "ca=\"\" cannot be used: write the path of a file"),
            ("//a?tls=false&ca=x", "certificates are not used"),
            ("//a?prefix=/a/&prefix=/b/", "duplicate option"),
            (
                "//a?prefixes=/a/",
                "use one of: prefix=/idmill/, timeout=5s, tls=true|false, ca=FILE, cert=FILE, key=FILE",
            ),
        ] {
            let error = parse(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{url}");
            assert!(error.to_string().contains(remedy), "{url}: {error}");
            assert!(!error.to_string().contains("secret"), "{url}: {error}");
        }
        let error = EtcdOptions::new(Vec::<String>::new()).check().unwrap_err().to_string();
        assert!(error.contains("the host is missing"), "{error}");
    }

    #[test]
    fn passwords_are_never_shown() {
        let options = parse("//app:s3cret@a?prefix=/x/").unwrap();
        assert_eq!(options.to_string(), "etcd://app:***@a?prefix=/x/");
        assert!(!format!("{options:?}").contains("s3cret"));
    }

    #[test]
    fn the_page_has_the_options() {
        EtcdOptions::new(["etcd1"]).documented(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md"), "options");
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
            options.tls.ca = ca.map(Into::into);
            prop_assume!(options.check().is_ok());
            let url = options.to_string();
            let read = EtcdOptions::parse(&url).unwrap();
            prop_assert_eq!(read, options, "{}", url);
        }
    }
}
