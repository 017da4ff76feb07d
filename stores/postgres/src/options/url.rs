//! How a URL says where they are.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use idmill::store::Target;
use idmill::store::kit::query::{self, Printed};
use idmill::store::kit::refuse;
use idmill::store::kit::secrets::check_login;
use idmill::store::{Mode, Store, StoreFuture};
use idmill::{Error, Operation, Result};
use idmill_sql::postgres::{DEFAULT_TABLE, Keeps, Table};

use super::{APPLICATION, PostgresOptions, Sequences, SslMode};
use crate::{DEFAULT_TIMEOUT, native};

const KNOWN: &str = "table=NAME, schema=NAME, sequences=table|native, increment=N, mode=ro|rw|rwc, \
                     durability=disk|trust, timeout=10s, sslmode=disable|prefer|require|verify-full, sslrootcert=FILE, application_name=NAME, \
                     target_session_attrs=any|read-write";
/// What stands for a password where a URL is printed.
const HIDDEN: &str = "***";

impl PostgresOptions {
    /// Reads a URL. Touches no network.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput), saying what is wrong with
    /// it; never with the password.
    pub fn parse(url: &str) -> Result<Self> {
        let known = url.split_once(':').filter(|(scheme, _)| {
            scheme.eq_ignore_ascii_case("postgres") || scheme.eq_ignore_ascii_case("postgresql")
        });
        known.map_or_else(
            || Err(refuse("a PostgreSQL URL begins with `postgres://`")),
            |(_, rest)| Self::parse_rest(rest),
        )
    }

    /// Reads what follows `postgres:` in a URL.
    pub(crate) fn parse_rest(rest: &str) -> Result<Self> {
        let Some(rest) = rest.strip_prefix("//") else {
            return Err(refuse("a PostgreSQL URL begins with two slashes: `postgres://HOST/DATABASE`"));
        };
        check_login(rest)?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = place.split_once('/').unwrap_or((place, ""));
        let options = Self {
            authority: authority.to_owned(),
            database: database.to_owned(),
            table: DEFAULT_TABLE.to_owned(),
            schema: None,
            sequences: Sequences::default(),
            increment: 1,
            mode: Mode::default(),
            keeps: Keeps::default(),
            timeout: DEFAULT_TIMEOUT,
            ssl_mode: SslMode::default(),
            ssl_root: None,
            application: APPLICATION.to_owned(),
            writable: false,
        };
        let options = query::read(query, options, Self::set)?;
        options.check()?;
        Ok(options)
    }

    fn set(mut self, key: &str, value: &str) -> Result<Self> {
        match key {
            "table" => value.clone_into(&mut self.table),
            "schema" => self.schema = Some(value.to_owned()),
            "sequences" => self.sequences = Sequences::parse(value)?,
            "increment" => self.increment = native::parse_increment(value)?,
            "mode" => self.mode = Mode::parse(value)?,
            "durability" => self.keeps = Keeps::parse(value)?,
            "timeout" => self.timeout = query::duration(key, value, "500ms, 10s, 1m")?,
            "sslmode" => self.ssl_mode = SslMode::parse(value)?,
            "sslrootcert" => self.ssl_root = Some(value.to_owned()),
            "application_name" => value.clone_into(&mut self.application),
            "target_session_attrs" => {
                self.writable = match value {
                    "any" => false,
                    "read-write" => true,
                    _ => {
                        let message =
                            format!("target_session_attrs={value:?} is unknown; there are any, read-write");
                        return Err(refuse(message));
                    }
                };
            }
            _ => return Err(query::unknown(key, KNOWN)),
        }
        Ok(self)
    }
}

impl Target for PostgresOptions {
    fn scheme(&self) -> &'static str {
        "postgres"
    }

    fn existing(&self) -> Arc<dyn Target> {
        Arc::new(self.clone().mode(self.mode.existing()))
    }

    fn ddl(&self) -> Result<Option<String>> {
        match self.sequences {
            Sequences::Table => Ok(Some(Table::new(self.schema.as_deref(), &self.table)?.ddl())),
            Sequences::Native => Ok(None),
        }
    }

    fn connect(&self) -> StoreFuture<'_, Result<Arc<dyn Store>>> {
        Box::pin(async {
            let during = |error: Error| error.during(Operation::Connect);
            Ok(match self.sequences {
                Sequences::Table => Arc::new(self.open().await.map_err(during)?) as Arc<dyn Store>,
                Sequences::Native => Arc::new(self.open_native().await.map_err(during)?) as Arc<dyn Store>,
            })
        })
    }
}

impl FromStr for PostgresOptions {
    type Err = Error;

    fn from_str(url: &str) -> Result<Self> {
        Self::parse(url)
    }
}

impl fmt::Display for PostgresOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let options = Printed::default()
            .differing("table", self.table.as_str(), DEFAULT_TABLE)
            .given("schema", self.schema.as_ref())
            .differing("sequences", self.sequences.as_str(), Sequences::default().as_str())
            .differing("increment", self.increment, 1)
            .differing("mode", self.mode.as_str(), Mode::default().as_str())
            .differing("durability", self.keeps.as_str(), Keeps::default().as_str())
            .duration("timeout", self.timeout, DEFAULT_TIMEOUT)
            .differing("sslmode", self.ssl_mode.as_str(), SslMode::default().as_str())
            .given("sslrootcert", self.ssl_root.as_ref())
            .differing("application_name", self.application.as_str(), APPLICATION)
            .given("target_session_attrs", self.writable.then_some("read-write"));
        write!(f, "postgres://{}/{}{options}", without_password(&self.authority), self.database)
    }
}

/// As it is printed.
impl fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresOptions").field("url", &self.to_string()).finish_non_exhaustive()
    }
}

/// `user:***@hosts`.
fn without_password(authority: &str) -> String {
    let Some((credentials, hosts)) = authority.rsplit_once('@') else { return authority.to_owned() };
    match credentials.split_once(':') {
        Some((user, _)) => format!("{user}:{HIDDEN}@{hosts}"),
        None => authority.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use idmill::ErrorKind;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_option_is_read_and_the_driver_gets_its_part() {
        let url = "postgresql://u:p%40ss@a:1,b:2/shop?table=t&schema=s&sequences=native&increment=50&mode=ro&durability=trust&timeout=250ms\
                   &sslmode=verify-full&sslrootcert=/x.pem&application_name=app&target_session_attrs=read-write";
        let options = PostgresOptions::parse(url).unwrap();
        let config = options.check().unwrap();
        assert_eq!((config.get_user(), config.get_password()), (Some("u"), Some(&b"p@ss"[..])));
        assert_eq!((config.get_ports(), config.get_dbname()), (&[1, 2][..], Some("shop")));
        assert_eq!(config.get_ssl_mode(), tokio_postgres::config::SslMode::Require);
        assert_eq!(PostgresOptions::place(&config), "a:1,b:2");
        let printed = url.replace("postgresql", "postgres").replace("p%40ss", "***");
        assert_eq!(options.to_string(), printed);
        let short = PostgresOptions::parse("postgres://localhost").unwrap();
        assert_eq!(short.to_string(), "postgres://localhost/");
        let socket = PostgresOptions::parse("postgres://app@%2Frun%2Fpostgresql/shop").unwrap();
        assert_eq!(PostgresOptions::place(&socket.check().unwrap()), "/run/postgresql/.s.PGSQL.5432");
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_remedy() {
        for (url, remedy) in [
            ("postgres:localhost", "two slashes"),
            ("mysql://h/", "begins with `postgres://`"),
            ("postgres:///db", "USER:PASSWORD@HOST"),
            ("postgres://h:port/", "USER:PASSWORD@HOST"),
            ("postgres://h/?tabel=a", "table=NAME"),
            ("postgres://h/?table=a-b", "cannot be the table"),
            ("postgres://h/?schema=pg_catalog", "cannot be the schema"),
            ("postgres://h/?table=a&table=b", "twice"),
            ("postgres://h/?mode=rwx", "rwc (may create)"),
            ("postgres://h/?sequences=x", "native"),
            ("postgres://h/?increment=0", "write 1 to"),
            ("postgres://h/?durability=process", "disk (fsync has to be on) and trust"),
            ("postgres://h/?timeout=0s", "at least 1ms"),
            ("postgres://h/?sslmode=verify-ca", "verify-full"),
            ("postgres://h/?sslrootcert=x", "sslmode=verify-full"),
            ("postgres://h/?target_session_attrs=x", "read-write"),
        ] {
            let error = PostgresOptions::parse(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{url}: {error}");
            assert!(error.to_string().contains(remedy), "{url}: {error}");
        }
    }

    #[test]
    fn passwords_are_never_printed() {
        for url in [
            "postgres://app:hunter2@h/",
            "postgres://app:hunter2@x@h/",
            "postgres://app:hunter2/x@h/",
            "postgres://app:x/hunter2@h/",
            "postgres://app:x?hunter2@h/",
            "postgres://app:hunter2:y@h:port/",
            "postgres://app:hunter2@h/?nonsense=1",
        ] {
            let shown = match PostgresOptions::parse(url) {
                Ok(options) => format!("{options} {options:?}"),
                Err(error) => format!("{error} {error:?}"),
            };
            assert!(!shown.contains("hunter2"), "{url}: {shown}");
        }
    }

    proptest! {
        #[test]
        fn nothing_panics_and_what_is_printed_reads_back(rest in "\\PC{0,40}|//[a-z0-9:@,%./]{1,20}(\\?[a-z=&0-9]{0,20})?") {
            if let Ok(options) = PostgresOptions::parse_rest(&rest) {
                let again = PostgresOptions::parse(&options.to_string());
                prop_assert!(again.is_ok_and(|again| again.to_string() == options.to_string()));
            }
        }
    }
}
