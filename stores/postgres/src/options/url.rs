//! How a URL says where they are.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use idmill::store::{Store, StoreFuture};
use idmill::{Error, Operation, Result, SequenceName};
use idmill_kit::Mode;
use idmill_kit::history::{FAILOVER, Failover};
use idmill_kit::options::{FILE, Kind, TIMEOUT, Table as Options, option, text, whole, words};
use idmill_kit::refuse;
use idmill_kit::secrets::check_login;
use idmill_kit::{ColumnPath, Largest, Target};
use idmill_sql::postgres::native::Values;
use idmill_sql::postgres::{DEFAULT_TABLE, Keeps, NAME, Table, largest, lookalikes, refused};
use idmill_url::StoreUrl;

use super::{PostgresOptions, Sequences, Session, SslMode};
use crate::native::MOST_INCREMENT;

pub(super) const OPTIONS: Options<PostgresOptions> = Options(&[
    option("table", NAME, DEFAULT_TABLE)
        .means("the table; each table is its own namespace")
        .field(|o| &mut o.table),
    option("schema", NAME, "")
        .means("the schema of the table or the sequences; without it, they are found along the `search_path`")
        .field(|o| &mut o.schema),
    option("sequences", words::<Sequences>(), "table")
        .means("what holds the sequences")
        .field(|o| &mut o.sequences),
    option("increment", whole(1, MOST_INCREMENT), "1")
        .means("`INCREMENT BY` of the native sequences that idmill creates")
        .field(|o| &mut o.increment),
    option("values", words::<Values>(), "")
        .means(
            "which id a value of a native sequence is, where its increment is above 1; without it, such a sequence is \
             refused unless idmill created it, see below",
        )
        .field(|o| &mut o.values),
    option("mode", words::<Mode>(), "rwc").means("what opening may do to the table").field(|o| &mut o.mode),
    option("durability", words::<Keeps>(), "disk")
        .means("what keeps a grant through a crash")
        .field(|o| &mut o.keeps),
    option("failover", FAILOVER, "")
        .means(
            "what is granted of a sequence that was last written on another cluster or timeline, see below. The \
             default is `refuse`, where the server tells which it is",
        )
        .field(|o| &mut o.failover),
    option("timeout", TIMEOUT, "10s")
        .means(
            "how long a statement may take before its outcome is unknown. Waiting for a lock, or for a \
             connection, is limited to half of it",
        )
        .field(|o| &mut o.timeout),
    option("sslmode", words::<SslMode>(), "prefer").means("as in PostgreSQL").field(|o| &mut o.ssl_mode),
    option("sslrootcert", FILE, "")
        .means("with `verify-full`: a file of root certificates in place of the system's")
        .field(|o| &mut o.ssl_root),
    option("application_name", APPLICATION, "idmill")
        .means("the name in `pg_stat_activity`")
        .field(|o| &mut o.application),
    option("target_session_attrs", words::<Session>(), "any")
        .means("which of several hosts is used")
        .field(|o| &mut o.session),
]);
const APPLICATION: Kind = text("NAME", "any text", |_| true);
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
        let (table, increment, timeout, application) = Default::default();
        let options = OPTIONS.with_defaults(Self {
            authority: authority.to_owned(),
            database: database.to_owned(),
            table,
            schema: None,
            sequences: Sequences::default(),
            increment,
            values: None,
            mode: Mode::default(),
            keeps: Keeps::default(),
            failover: None,
            timeout,
            ssl_mode: SslMode::default(),
            ssl_root: None,
            application,
            session: Session::default(),
        });
        let options = OPTIONS.read(query, options)?;
        options.check()?;
        Ok(options)
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

    fn largest<'a>(&'a self, column: &'a ColumnPath) -> StoreFuture<'a, Result<Largest>> {
        Box::pin(async {
            let sessions =
                crate::session::to_scan(&self.sessions()?, self.timeout.min(StoreUrl::CONNECT_TIMEOUT))
                    .await?;
            largest(&mut &sessions, column).await
        })
    }

    fn refused(&self) -> StoreFuture<'_, Result<Vec<(SequenceName, Error)>>> {
        Box::pin(async {
            // Native sequences do not tell, and who says `failover` otherwise is refused nothing.
            let refuses = matches!(self.failover, None | Some(Failover::Refuse));
            if !refuses || matches!(self.sequences, Sequences::Native) {
                return Ok(Vec::new());
            }
            refused(&mut &self.sessions()?, self.checked_table()?).await
        })
    }

    fn lookalikes(&self) -> StoreFuture<'_, Result<Option<String>>> {
        Box::pin(async {
            // A native sequence has a name of its own, and who names the schema means that one.
            if self.schema.is_some() || matches!(self.sequences, Sequences::Native) {
                return Ok(None);
            }
            let schemas = lookalikes(&mut &self.sessions()?, &self.table).await?;
            let table = &self.table;
            Ok(schemas.map(|schemas| {
                format!("{table:?} is also in schemas that the search_path does not lead to: {schemas}")
            }))
        })
    }

    fn witness_ddl(&self) -> Result<Option<String>> {
        match self.sequences {
            Sequences::Table => Table::new(self.schema.as_deref(), &self.table)?.witness_ddl().map(Some),
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
        let options = OPTIONS.print(self);
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
    use crate::DEFAULT_TIMEOUT;

    #[test]
    fn every_option_is_read_and_the_driver_gets_its_part() {
        let url = "postgresql://u:p%40ss@a:1,b:2/shop?table=t&schema=s&increment=50&mode=ro&durability=trust&failover=skip:9&timeout=250ms\
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
        assert_eq!((short.to_string().as_str(), short.timeout), ("postgres://localhost/", DEFAULT_TIMEOUT));
        let socket = PostgresOptions::parse("postgres://app@%2Frun%2Fpostgresql/shop").unwrap();
        assert_eq!(PostgresOptions::place(&socket.check().unwrap()), "/run/postgresql/.s.PGSQL.5432");
    }

    #[test]
    fn the_page_has_the_options() {
        OPTIONS.documented(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md"), "options");
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_remedy() {
        for (url, remedy) in [
            ("postgres:localhost", "two slashes"),
            ("mysql://h/", "begins with `postgres://`"),
            ("postgres:///db", "USER:PASSWORD@HOST"),
            ("postgres://h:port/", "USER:PASSWORD@HOST"),
            ("postgres://h/?tabel=a", "there are table=idmill_sequences, schema=NAME"),
            ("postgres://h/?table=a-b", "write up to 63 ASCII letters, digits and _"),
            (
                "postgres://h/?schema=pg_catalog",
                "schema=\"pg_catalog\" cannot be used: write up to 63 ASCII letters",
            ),
            ("postgres://h/?table=a&table=b", "twice"),
            ("postgres://h/?mode=rwx", "rwc (may create)"),
            ("postgres://h/?sequences=x", "native"),
            ("postgres://h/?increment=0", "write a whole number, 1 to 2147483648"),
            (
                "postgres://h/?durability=process",
                "disk (`fsync` and `full_page_writes` have to be on), trust",
            ),
            ("postgres://h/?failover=skip:0", "or `skip:N`"),
            ("postgres://h/?failover=allow&sequences=native", "has no row that says"),
            ("postgres://h/?timeout=0s", "1ms to 24h"),
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
