//! How a URL says where it is.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use idmill::store::{Store, StoreFuture};
use idmill::{Error, Result, SequenceName};
use idmill_kit::Mode;
use idmill_kit::history::{FAILOVER, Failover};
use idmill_kit::options::{FILE, TIMEOUT, Table as Options, option, words};
use idmill_kit::{ColumnPath, Largest, Target};
use idmill_kit::{query, refuse};
use idmill_sql::Asked;
use idmill_sql::mysql::{DEFAULT_TABLE, NAME, Table, end_reads_after, largest, refused};
use idmill_url::StoreUrl;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::{MysqlOptions, PORT, bracketed};
use crate::MysqlStore;

pub(super) const OPTIONS: Options<MysqlOptions> = Options(&[
    option("table", NAME, DEFAULT_TABLE)
        .means("the table; a database can hold several, each its own namespace")
        .field(|o| &mut o.table),
    option("mode", words::<Mode>(), "rwc").means("what opening may do to the table").field(|o| &mut o.mode),
    option("failover", FAILOVER, "")
        .means("what is granted of a sequence that was last written by another server, see below. The default is `refuse`")
        .field(|o| &mut o.failover),
    option("tls", words::<bool>(), "false")
        .means(
            "whether connections are encrypted; the server's certificate must then be valid for the host in \
             the URL",
        )
        .field(|o| &mut o.tls),
    option("ca", FILE, "")
        .means("with `tls=true`: a PEM file with the authorities to trust in place of the well-known ones")
        .field(|o| &mut o.ca),
    option("timeout", TIMEOUT, "10s")
        .means(
            "how long one statement may take before its outcome is unknown, and how long connecting may \
             take. The server stops waiting for a lock after half of it",
        )
        .field(|o| &mut o.timeout),
]);
/// What stands for a password where a URL is printed.
const HIDDEN: &str = "***";

impl MysqlOptions {
    /// Reads a URL. Touches no network.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput), saying what is wrong with
    /// it; never with the password.
    pub fn parse(url: &str) -> Result<Self> {
        let known =
            |scheme: &str| scheme.eq_ignore_ascii_case("mysql") || scheme.eq_ignore_ascii_case("mariadb");
        match url.split_once(':').filter(|(scheme, _)| known(scheme)) {
            Some((_, rest)) => Self::parse_rest(rest),
            None => Err(refuse("a MySQL URL begins with `mysql://` or `mariadb://`")),
        }
    }

    /// Reads what follows `mysql:` in a URL.
    pub(crate) fn parse_rest(rest: &str) -> Result<Self> {
        let Some(rest) = rest.strip_prefix("//") else {
            return Err(refuse("a MySQL URL begins with two slashes: `mysql://HOST/DATABASE`"));
        };
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = place.split_once('/').unwrap_or((place, ""));
        let (login, host) = match authority.rsplit_once('@') {
            Some((login, host)) => (Some(login), host),
            None => (None, authority),
        };
        // Before anything of it could be printed: what comes here may be the end of a password.
        if database.contains('@') || query.contains('@') || login.is_some_and(|login| login.contains('@')) {
            return Err(refuse(
                "the URL has an `@` too many: write it as %40, and in user name and password also `/` as %2F, `?` as %3F \
                 and `:` as %3A",
            ));
        }
        let (host, port) = split_port(host)?;
        let mut options = Self::new(host, query::decoded(database)?).port(port);
        if let Some(login) = login {
            let (user, password) = match login.split_once(':') {
                Some((user, password)) => (user, Some(query::decoded(password)?)),
                None => (login, None),
            };
            (options.user, options.password) = (Some(query::decoded(user)?), password);
        }
        let options = OPTIONS.read(query, options)?;
        options.check()?;
        Ok(options)
    }
}

impl Target for MysqlOptions {
    fn scheme(&self) -> &'static str {
        "mysql"
    }

    fn existing(&self) -> Arc<dyn Target> {
        Arc::new(self.clone().mode(self.mode.existing()))
    }

    fn ddl(&self) -> Result<Option<String>> {
        Ok(Some(Table::new(&self.table)?.ddl()))
    }

    fn largest<'a>(&'a self, column: &'a ColumnPath) -> StoreFuture<'a, Result<Largest>> {
        Box::pin(async {
            let (database, _) = self.clone().mode(Mode::ReadOnly).database()?;
            let mut session = database.connect(Asked::Read).await?;
            end_reads_after(&mut session, self.timeout.min(StoreUrl::CONNECT_TIMEOUT)).await?;
            largest(&mut session, column).await
        })
    }

    fn refused(&self) -> StoreFuture<'_, Result<Vec<(SequenceName, Error)>>> {
        Box::pin(async {
            // Who says `failover` otherwise is refused nothing.
            if !matches!(self.failover, None | Some(Failover::Refuse)) {
                return Ok(Vec::new());
            }
            let (database, _) = self.clone().mode(Mode::ReadOnly).database()?;
            refused(&mut database.connect(Asked::Read).await?, &Table::new(&self.table)?).await
        })
    }

    fn witness_ddl(&self) -> Result<Option<String>> {
        Table::new(&self.table)?.witness_ddl().map(Some)
    }

    fn connect(&self) -> StoreFuture<'_, Result<Arc<dyn Store>>> {
        Box::pin(async { Ok(Arc::new(MysqlStore::open_with(self.clone()).await?) as Arc<dyn Store>) })
    }
}

/// Reads what [`Display`](fmt::Display) prints, a URL; but for the password.
impl FromStr for MysqlOptions {
    type Err = Error;

    fn from_str(url: &str) -> Result<Self> {
        Self::parse(url)
    }
}

impl fmt::Display for MysqlOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("mysql://")?;
        if let Some(user) = &self.user {
            let hidden = if self.password.is_some() { format!(":{HIDDEN}") } else { String::new() };
            write!(f, "{}{hidden}@", encode(user))?;
        }
        f.write_str(&bracketed(&self.host))?;
        if self.port != PORT {
            write!(f, ":{}", self.port)?;
        }
        let options = OPTIONS.print(self);
        write!(f, "/{}{options}", encode(&self.database))
    }
}

/// As it is printed.
impl fmt::Debug for MysqlOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MysqlOptions").field(&self.to_string()).finish()
    }
}

/// The host, without the brackets of an IPv6 address, and the port. Neither is printed where it cannot be
/// read: it could be the middle of a password.
fn split_port(host: &str) -> Result<(&str, u16)> {
    let (host, port) = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, "")) => (address, None),
        Some((address, port)) => (address, Some(port.strip_prefix(':').unwrap_or("none"))),
        None => match host.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (host, None),
        },
    };
    let Some(port) = port else { return Ok((host, PORT)) };
    let number = port.bytes().all(|byte| byte.is_ascii_digit()).then(|| port.parse().ok()).flatten();
    number.map(|port| (host, port)).ok_or_else(|| {
        refuse(
            "what follows the host's colon is not a port; a user's password is followed by `@` and the host",
        )
    })
}

fn encode(text: &str) -> impl fmt::Display + '_ {
    static ESCAPED: &percent_encoding::AsciiSet =
        &NON_ALPHANUMERIC.remove(b'_').remove(b'-').remove(b'.').remove(b'~');
    utf8_percent_encode(text, ESCAPED)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use idmill::ErrorKind;
    use proptest::prelude::*;

    use super::*;
    use crate::Failover;

    #[test]
    fn every_option_is_read() {
        let url = "MariaDB://a%3Ab:p%40s%3As@h.example:13306/my%20ids?table=t_1&mode=rw&failover=skip:9&tls=true&ca=/etc/ca.pem&timeout=250ms";
        let expected = MysqlOptions::new("h.example", "my ids")
            .port(13306)
            .credentials("a:b", "p@s:s")
            .table("t_1")
            .mode(Mode::ReadWrite)
            .failover(Failover::Skip(9))
            .ca("/etc/ca.pem")
            .timeout(Duration::from_millis(250));
        let options = MysqlOptions::parse(url).unwrap();
        assert!(options == expected && options.password == expected.password, "{options}");
        let six = MysqlOptions::parse("mysql://root@[::1]/ids").unwrap();
        assert_eq!(six.timeout, crate::DEFAULT_TIMEOUT);
        assert_eq!((six.host.as_str(), six.port, six.password.as_deref()), ("::1", 3306, None));
        assert_eq!(MysqlOptions::parse("mysql://[::1]:7/ids").unwrap().to_string(), "mysql://[::1]:7/ids");
    }

    #[test]
    fn the_page_has_the_options() {
        OPTIONS.documented(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md"), "options");
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_remedy() {
        for (url, remedy) in [
            ("mysql:localhost/ids", "two slashes"),
            ("postgres://h/ids", "mysql://"),
            ("mysql://", "one host"),
            ("mysql:///ids", "one host"),
            ("mysql://h", "names a database"),
            ("mysql://h/", "names a database"),
            ("mysql://a,b/ids", "one host"),
            ("mysql://h:x/ids", "not a port"),
            ("mysql://h:70000/ids", "not a port"),
            ("mysql://h:+1/ids", "not a port"),
            ("mysql://h:0/ids", "port from 1"),
            ("mysql://[::1]x/ids", "not a port"),
            ("mysql://h/%ff", "UTF-8"),
            ("mysql://h/ids?tabel=a", "table=idmill_sequences, mode=ro|rw|rwc"),
            ("mysql://h/ids?table=a%60b", "cannot be used: write up to 64 ASCII letters"),
            ("mysql://h/ids?table=1a", "cannot be used: write up to 64 ASCII letters"),
            ("mysql://h/ids?mode=rwx", "rwc (may create)"),
            ("mysql://h/ids?failover=skip:0", "or `skip:N`"),
            ("mysql://h/ids?tls=maybe", "true, false"),
            ("mysql://h/ids?ca=x", "tls=true"),
            ("mysql://h/ids?timeout=5", "ms, s, m or h), 1ms to 24h, such as timeout=10s"),
            ("mysql://h/ids?timeout=0s", "1ms to 24h"),
            ("mysql://h/ids?timeout=1441m", "1ms to 24h"),
            ("mysql://h/ids?mode=rw&mode=rw", "twice"),
            ("mysql://h/ids?x=a@b", "%40"),
        ] {
            let error = MysqlOptions::parse(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{url}: {error}");
            assert!(error.to_string().contains(remedy), "{url}: {error}");
        }
    }

    #[test]
    fn passwords_are_never_printed() {
        for url in [
            "mysql://app:hunter2@h/ids",
            "mysql://app:hunter2@x@h/ids",
            "mysql://app:x@hunter2@h/ids",
            "mysql://app:hunter2/x@h/ids",
            "mysql://app:x/hunter2@h/ids",
            "mysql://app:x?hunter2@h/ids",
            "mysql://app:x/y?hunter2@h/ids",
            "mysql://app:hunter2:y@h:port/ids",
            "mysql://app:hunter2@h/ids?nonsense=1",
            "mysql://app:hunter2@h/ids?timeout=1",
            "mysql://app:hunter2@/ids",
            "mysql://app:hunter2@a,b/ids",
            "mysql://app:hunter2%ff@h/ids",
            "mysql://app:hunter2",
            "mysql:app:hunter2@h/ids",
        ] {
            let shown = match MysqlOptions::parse(url) {
                Ok(options) => {
                    let database = options.database().unwrap();
                    format!("{options} {options:?} {database:?}")
                }
                Err(error) => format!("{error} {error:?}"),
            };
            assert!(!shown.contains("hunter2"), "{url}: {shown}");
        }
    }

    proptest! {
        #[test]
        fn display_reads_back(
            host in "[a-z0-9.]{1,12}", port in 1..=u16::MAX, user in proptest::option::of("\\PC{0,9}"),
            database in "\\PC{1,20}", table in "[A-Za-z_][A-Za-z0-9_]{0,63}", millis in 1..=86_400_000_u64, tls: bool,
            ca in proptest::option::of("\\PC{1,9}"),
        ) {
            let mut options =
                MysqlOptions::new(host, database).port(port).table(table).timeout(Duration::from_millis(millis));
            options.user = user;
            if tls { options = options.tls(true) }
            if let Some(ca) = ca { options = options.ca(ca) }
            let url = options.to_string();
            prop_assert_eq!(MysqlOptions::parse(&url).unwrap(), options, "{}", url);
        }

        #[test]
        fn nothing_panics(rest in prop_oneof!["\\PC{0,40}", "[a-z/%?&=0-9:@,\\[\\]]{0,30}"]) {
            let _ = MysqlOptions::parse(&format!("mysql://{rest}"));
        }
    }
}
