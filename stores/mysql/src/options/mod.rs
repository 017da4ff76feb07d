//! The location of a server, how to reach it, and its URL form.

mod connecting;

use std::time::Duration;

use idmill::store::StoreFuture;
use idmill::{Error, Result, SequenceName};
use idmill_kit::history::Failover;
use idmill_kit::options::{Options as _, Tls};
use idmill_kit::{Address, Authority, CONNECT_TIMEOUT, ColumnPath, Largest, Mode, Target, query, refuse};
use idmill_sql::Asked;
use idmill_sql::mysql::{Table, end_reads_after, largest, refused};

use super::MysqlStore;

const PORT: u16 = 3306;
/// MySQL's limit for names.
const LONGEST_DATABASE: usize = 64;

idmill_sql::options! {
    /// The location of a MySQL or MariaDB server, and how to reach it. Creating options opens no connection.
    ///
    /// As a URL: `mysql://USER:PASSWORD@HOST:PORT/DATABASE?table=NAME&mode=ro|rw|rwc&timeout=10s`;
    /// `mariadb://` means the same. The other options are `failover=refuse`, `tls=true` and `ca=FILE`. The
    /// user, the password and the database are percent-encoded. Printing hides the password.
    ///
    /// ```
    /// use idmill_mysql::MysqlOptions;
    ///
    /// let options = MysqlOptions::new("db1", "billing").credentials("app", "secret").table("numbers");
    /// assert_eq!(options.to_string(), "mysql://app:***@db1/billing?table=numbers");
    /// ```
    pub struct MysqlOptions at hosts "mysql" | "mariadb" as "mysql://HOST/DATABASE" {
        /// The host, and the user to log in as.
        pub authority: Authority,
        /// The name of the database.
        pub database: String,
        /// How connections are encrypted; the server's certificate must be valid for the host.
        ///
        /// By default connections are unencrypted: passwords are sent in a form that hides them, everything
        /// else in the clear. With TLS, if the process has no default cryptography for `rustls` yet,
        /// connecting makes `aws-lc-rs` the default.
        pub tls: Tls,
    }

    sql table in mysql;
    sql opening in mysql;

    use tls as |entry| entry.among(&["tls", "ca"]);
}

impl MysqlOptions {
    /// Creates options for this database on this host, with all defaults.
    pub fn new(host: impl Into<String>, database: impl Into<String>) -> Self {
        let host = host.into();
        let host = if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host };
        Self::with_defaults(Authority::of([host]), database.into(), Tls::default())
    }

    /// Sets the port. Default 3306.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        for host in &mut self.authority.hosts {
            // Search after the brackets of an IPv6 address.
            let end = host.rfind(']').unwrap_or_default();
            let bare = host[end..].find(':').map_or(host.len(), |colon| end + colon);
            host.truncate(bare);
            if port != PORT {
                host.extend([":", &port.to_string()]);
            }
        }
        self
    }

    /// Sets the user and password.
    #[must_use]
    pub fn credentials(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.authority.log_in(user, password);
        self
    }

    idmill_kit::tls_setters!([tls] optional, ca);

    /// Returns the table of the sequences.
    pub fn table_name(&self) -> &str {
        &self.table
    }

    fn at(_: &str, place: &str) -> Result<Self> {
        let (authority, database) = place.split_once('/').unwrap_or((place, ""));
        let (authority, database) = (Authority::parse(authority)?, query::decoded(database)?);
        Ok(Self::with_defaults(authority, database, Tls::default()))
    }

    fn place(&self) -> String {
        format!("mysql://{}/{}", self.authority, query::encoded(&self.database))
    }

    fn address(&self) -> Result<Address> {
        match &self.authority.hosts[..] {
            [host] if !host.is_empty() => Authority::address(host, PORT),
            _ => Err(refuse("a MySQL URL needs exactly one host; write `mysql://HOST:PORT/DATABASE`")),
        }
    }

    /// Checks everything that needs no network access.
    fn check(&self) -> Result<(Address, Table)> {
        let address = self.address()?;
        let length = self.database.chars().count();
        if length == 0 || length > LONGEST_DATABASE || self.database.contains('\0') {
            return Err(refuse(
                "a MySQL URL needs a database, of up to 64 characters; write `mysql://HOST/DATABASE`",
            ));
        }
        self.tls.check("tls=false", "tls=true")?;
        Ok((address, self.checked_table()?))
    }

    /// Checks the values of all options.
    pub(super) fn checked_table(&self) -> Result<Table> {
        self.check_values()?;
        Table::new(&self.table)
    }
}

/// Options without a host and a database, for a store over the caller's pool.
impl Default for MysqlOptions {
    fn default() -> Self {
        Self::new("", "")
    }
}

impl Target for MysqlOptions {
    idmill_kit::target!(
        |options| "mysql" => MysqlStore::open_with, existing options.mode = options.mode.existing()
    );

    fn ddl(&self) -> Result<Option<String>> {
        Ok(Some(Table::new(&self.table)?.ddl()))
    }

    fn largest<'a>(&'a self, column: &'a ColumnPath) -> StoreFuture<'a, Result<Largest>> {
        Box::pin(async {
            let (database, _) = self.clone().mode(Mode::ReadOnly).open_database()?;
            let mut session = database.connect(Asked::Read).await?;
            end_reads_after(&mut session, self.timeout.min(CONNECT_TIMEOUT)).await?;
            largest(&mut session, column).await
        })
    }

    fn refused(&self) -> StoreFuture<'_, Result<Vec<(SequenceName, Error)>>> {
        Box::pin(async {
            // Only `failover=refuse`, the default, rejects reserves.
            if !matches!(self.failover, None | Some(Failover::Refuse)) {
                return Ok(Vec::new());
            }
            let (database, _) = self.clone().mode(Mode::ReadOnly).open_database()?;
            refused(&mut database.connect(Asked::Read).await?, &Table::new(&self.table)?).await
        })
    }

    fn witness_ddl(&self) -> Result<Option<String>> {
        Table::new(&self.table)?.witness_ddl().map(Some)
    }
}

#[cfg(test)]
mod tests {
    use idmill::ErrorKind;
    use idmill_testing::OptionsPage as _;
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
        assert!(options == expected, "{options}");
        let six = MysqlOptions::parse("mysql://root@[::1]/ids").unwrap();
        assert_eq!(six.timeout, Duration::from_secs(10));
        let address = six.address().unwrap();
        assert_eq!((address.host(), address.port(), six.authority.password.as_deref()), ("::1", 3306, None));
        assert_eq!(MysqlOptions::parse("mysql://[::1]:7/ids").unwrap().to_string(), "mysql://[::1]:7/ids");
    }

    #[test]
    fn the_page_has_the_options() {
        MysqlOptions::new("h", "ids")
            .documented(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md"), "options");
    }

    #[test]
    fn invalid_options_are_rejected_with_the_remedy() {
        for (url, remedy) in [
            ("mysql:localhost/ids", "two slashes"),
            ("postgres://h/ids", "mysql://"),
            ("mysql://", "one host"),
            ("mysql:///ids", "one host"),
            ("mysql://h", "needs a database"),
            ("mysql://h/", "needs a database"),
            ("mysql://a,b/ids", "one host"),
            ("mysql://h:x/ids", "HOST:PORT"),
            ("mysql://h:70000/ids", "HOST:PORT"),
            ("mysql://h:+1/ids", "HOST:PORT"),
            ("mysql://h:0/ids", "HOST:PORT"),
            ("mysql://[::1]x/ids", "HOST:PORT"),
            ("mysql://h/%ff", "UTF-8"),
            ("mysql://h/ids?tabel=a", "table=idmill_sequences, mode=ro|rw|rwc"),
            ("mysql://h/ids?table=a%60b", "cannot be used: write up to 64 ASCII letters"),
            ("mysql://h/ids?table=1a", "cannot be used: write up to 64 ASCII letters"),
            ("mysql://h/ids?mode=rwx", "rwc (may create)"),
            ("mysql://h/ids?failover=skip:0", "or `skip:N`"),
            ("mysql://h/ids?tls=maybe", "true, false"),
            ("mysql://h/ids?tls=false&ca=x", "tls=true"),
            ("mysql://h/ids?timeout=5", "ms, s, m or h), 1ms to 24h, such as timeout=10s"),
            ("mysql://h/ids?timeout=0s", "1ms to 24h"),
            ("mysql://h/ids?timeout=1441m", "1ms to 24h"),
            ("mysql://h/ids?mode=rw&mode=rw", "duplicate option"),
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
                    let database = options.open_database().unwrap();
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
            options.authority.user = user.filter(|user| !user.is_empty());
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
