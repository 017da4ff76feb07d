//! The location of the PostgreSQL table or sequences, how to reach it, and its URL form.

mod connecting;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use idmill::store::{Store, StoreFuture};
use idmill::{Error, Operation, Result, SequenceName};
use idmill_kit::history::Failover;
use idmill_kit::options::{FILE, Kind, Options as _, Word, text, whole, words};
use idmill_kit::{Authority, CONNECT_TIMEOUT, ColumnPath, Largest, Mode, Target, query, refuse};
use idmill_sql::postgres::native::Values;
use idmill_sql::postgres::{Keeps, NAME, Table, largest, lookalikes, refused};
use tokio_postgres::Config;

use super::session::to_scan;
use super::tls::SslMode;

const MOST_INCREMENT: u64 = 1 << 31;
const MOST_SECONDS: u64 = 24 * 60 * 60;
const APPLICATION: Kind = text("NAME", "any text", |_| true);
const SETTINGS: Kind = text("TEXT", "command-line options of the server", |_| true);

/// The kind of object that holds the sequences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Storage {
    /// `table`: rows of idmill's own table, see [`PostgresStore`](crate::PostgresStore).
    #[default]
    Table,
    /// `native`: PostgreSQL's own `SEQUENCE`s, see [`NativeSequences`](super::NativeSequences).
    Native,
}

impl Word for Storage {
    const WORDS: &'static [(Self, &'static str, &'static str)] = &[
        (Self::Table, "table", "rows of idmill's own table"),
        (Self::Native, "native", "PostgreSQL's own sequences"),
    ];
}

/// Which of several hosts to accept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum TargetSession {
    #[default]
    Any,
    ReadWrite,
}

impl Word for TargetSession {
    const WORDS: &'static [(Self, &'static str, &'static str)] =
        &[(Self::Any, "any", ""), (Self::ReadWrite, "read-write", "a server that accepts writes")];
}

/// Whether a password is bound to the encrypted connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Binding {
    Disable,
    #[default]
    Prefer,
    Require,
}

impl Word for Binding {
    const WORDS: &'static [(Self, &'static str, &'static str)] =
        &[(Self::Disable, "disable", ""), (Self::Prefer, "prefer", ""), (Self::Require, "require", "")];
}

idmill_sql::options! {
    /// The location of sequences in a PostgreSQL database, and how to reach it. Creating options opens no
    /// connection.
    ///
    /// As a URL: `postgres://USER:PASSWORD@HOST:PORT/DATABASE?table=NAME&sequences=native`; `postgresql:` is
    /// the same. The other options are `schema=NAME`, `increment=N`, `values=first|last`, `mode=ro|rw|rwc`,
    /// `durability=disk|trust`, `failover=refuse|allow|skip:N`, `timeout=10s`, `sslmode=verify-full`,
    /// `sslrootcert=FILE`, `sslcert=FILE`, `sslkey=FILE`, `channel_binding=require`,
    /// `connect_timeout=SECONDS`, `options=-c%20NAME%3DVALUE`, `target_session_attrs=read-write` and
    /// `application_name=NAME`. Commas separate several hosts. The directory of a Unix socket is given as a
    /// percent-encoded host, as in `postgres://app@%2Fvar%2Frun%2Fpostgresql/shop`, which is the same as
    /// `postgres://app@/shop`.
    ///
    /// Printing hides the password.
    ///
    /// ```
    /// use idmill_postgres::PostgresOptions;
    ///
    /// let options: PostgresOptions = "postgres://app:secret@db1/shop?table=numbers".parse()?;
    /// assert_eq!(options.to_string(), "postgres://app:***@db1/shop?table=numbers");
    /// # Ok::<(), idmill::Error>(())
    /// ```
    pub struct PostgresOptions at hosts "postgres" | "postgresql" as "postgres://USER:PASSWORD@HOST/DATABASE" {
        /// The hosts, percent-encoded, and the user to log in as.
        pub authority: Authority,
        /// The name of the database; if empty, the name of the user.
        pub database: String,
    }

    sql table in postgres;
    /// The schema of the table or the sequences. Default: they are looked up on the `search_path`.
    ///
    /// By default, missing tables and sequences are created in the first schema of the `search_path`.
    pub schema: Option<String> = "" in NAME;
    /// The kind of object that holds a sequence.
    pub sequences: Storage = "table" in words::<Storage>();
    /// `INCREMENT BY` of the native sequences that idmill creates.
    ///
    /// The number of ids that a `nextval` takes. Existing sequences keep their increment.
    pub increment: u64 = "1" in whole(1, MOST_INCREMENT);
    /// Whether a value of a native sequence is the first or the last id of its block, if the increment is
    /// above 1. Required for such a sequence unless idmill created it.
    ///
    /// Sequences that idmill creates have [`Values::Last`] unless this option is set. A store with another
    /// value then rejects them.
    pub values: Option<Values> = "" in words::<Values>();
    sql opening in postgres;
    /// As in PostgreSQL.
    pub ssl_mode ("sslmode"): SslMode = "prefer" in words::<SslMode>();
    /// With `verify-full`: a file of root certificates to trust, instead of the system's.
    pub ssl_root ("sslrootcert"): Option<PathBuf> = "" in FILE;
    /// A file with the client's certificate, if the server requires one.
    pub ssl_cert ("sslcert"): Option<PathBuf> = "" in FILE;
    /// A file with the private key of `sslcert`.
    pub ssl_key ("sslkey"): Option<PathBuf> = "" in FILE;
    /// Whether a password is bound to the encrypted connection, as in PostgreSQL.
    channel_binding: Binding = "prefer" in words::<Binding>();
    /// How many seconds connecting to one host may take, at most half of `timeout`; 0 for no other limit.
    connect_timeout: Option<u64> = "" in whole(0, MOST_SECONDS);
    /// The server's settings for the session, such as `-c search_path=shop`.
    server_options ("options"): Option<String> = "" in SETTINGS;
    /// The name in `pg_stat_activity`.
    pub application_name: String = "idmill" in APPLICATION;
    /// Which of the hosts to use.
    session ("target_session_attrs"): TargetSession = "any" in words::<TargetSession>();
}

impl PostgresOptions {
    /// Returns the table of the sequences.
    pub fn table_name(&self) -> &str {
        &self.table
    }

    /// Returns the schema, if one was set.
    pub fn schema_name(&self) -> Option<&str> {
        self.schema.as_deref()
    }

    fn at(_: &str, place: &str) -> Result<Self> {
        let (authority, database) = place.split_once('/').unwrap_or((place, ""));
        Ok(Self::with_defaults(Authority::parse(authority)?, query::decoded(database)?))
    }

    fn place(&self) -> String {
        self.with_login(&self.authority.to_string())
    }

    fn with_login(&self, authority: &str) -> String {
        format!("postgres://{authority}/{}", query::encoded(&self.database))
    }

    /// Checks everything that needs no network access.
    fn check(&self) -> Result<Config> {
        self.check_options()?;
        self.config()
    }

    /// Checks everything except the location.
    fn check_options(&self) -> Result<()> {
        self.check_values()?;
        if self.ssl_root.is_some() && self.ssl_mode != SslMode::VerifyFull {
            return Err(refuse("sslrootcert= needs `sslmode=verify-full`; add it"));
        }
        if self.ssl_cert.is_some() != self.ssl_key.is_some() {
            return Err(refuse(
                "the certificate or its key is missing; set both, `sslcert=FILE&sslkey=FILE`",
            ));
        }
        if self.failover.is_some() && self.sequences == Storage::Native {
            return Err(refuse(
                "failover= is not supported with sequences=native, which has no row for the last writer; use \
                 `guard=URL` instead",
            ));
        }
        Ok(())
    }
}

/// Options without a location, for a store over the caller's client, configuration or pool.
impl Default for PostgresOptions {
    fn default() -> Self {
        Self::with_defaults(Authority::default(), String::new())
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
            Storage::Table => Ok(Some(Table::new(self.schema.as_deref(), &self.table)?.ddl())),
            Storage::Native => Ok(None),
        }
    }

    fn largest<'a>(&'a self, column: &'a ColumnPath) -> StoreFuture<'a, Result<Largest>> {
        Box::pin(async {
            let limit = self.timeout.min(CONNECT_TIMEOUT);
            let mut sessions = to_scan(&self.sessions()?, limit).await?;
            largest(&mut sessions, column).await
        })
    }

    fn refused(&self) -> StoreFuture<'_, Result<Vec<(SequenceName, Error)>>> {
        Box::pin(async {
            // Native sequences have no history, and only `failover=refuse`, the default, rejects reserves.
            let refuses = matches!(self.failover, None | Some(Failover::Refuse));
            if !refuses || matches!(self.sequences, Storage::Native) {
                return Ok(Vec::new());
            }
            refused(&mut self.sessions()?, self.checked_table()?).await
        })
    }

    fn lookalikes(&self) -> StoreFuture<'_, Result<Option<String>>> {
        Box::pin(async {
            // Native sequences are in no table, and an explicit schema leaves no choice between tables.
            if self.schema.is_some() || matches!(self.sequences, Storage::Native) {
                return Ok(None);
            }
            let schemas = lookalikes(&mut self.sessions()?, &self.table).await?;
            let table = &self.table;
            Ok(schemas
                .map(|schemas| format!("{table:?} is also in schemas outside the search_path: {schemas}")))
        })
    }

    fn witness_ddl(&self) -> Result<Option<String>> {
        match self.sequences {
            Storage::Table => Table::new(self.schema.as_deref(), &self.table)?.witness_ddl().map(Some),
            Storage::Native => Ok(None),
        }
    }

    fn connect(&self) -> StoreFuture<'_, Result<Arc<dyn Store>>> {
        Box::pin(async {
            let during = |error: Error| error.during(Operation::Connect);
            Ok(match self.sequences {
                Storage::Table => Arc::new(self.open().await.map_err(during)?) as Arc<dyn Store>,
                Storage::Native => Arc::new(self.open_native().await.map_err(during)?) as Arc<dyn Store>,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use idmill::ErrorKind;
    use idmill_testing::OptionsPage as _;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_option_is_read_and_the_driver_gets_its_part() {
        let url = "postgresql://u:p%40ss@a:1,b:2/shop?table=t&schema=s&increment=50&mode=ro&durability=trust&failover=skip:9&timeout=250ms\
                   &sslmode=verify-full&sslrootcert=/x.pem&application_name=app&target_session_attrs=read-write";
        let options = PostgresOptions::parse(url).unwrap();
        let config = options.check().unwrap();
        assert_eq!((config.get_user(), config.get_password()), (Some("u"), Some(&b"p@ss"[..])));
        assert_eq!((config.get_ports(), config.get_dbname()), (&[1, 2][..], Some("shop")));
        assert_eq!(config.get_ssl_mode(), tokio_postgres::config::SslMode::Require);
        assert_eq!(PostgresOptions::servers(&config), "a:1,b:2");
        let printed = url.replace("postgresql", "postgres").replace("p%40ss", "***");
        assert_eq!(options.to_string(), printed);
        let short = PostgresOptions::parse("postgres://localhost").unwrap();
        assert_eq!(
            (short.to_string().as_str(), short.timeout),
            ("postgres://localhost/", Duration::from_secs(10))
        );
        let socket = PostgresOptions::parse("postgres://app@%2Frun%2Fpostgresql/shop").unwrap();
        assert_eq!(PostgresOptions::servers(&socket.check().unwrap()), "/run/postgresql/.s.PGSQL.5432");
    }

    /// tokio-postgres and libpq accept these URLs.
    #[test]
    fn options_of_the_driver_reach_it() {
        use tokio_postgres::config::{ChannelBinding, Host};
        let parse = |url: &str| PostgresOptions::parse(url).unwrap().check().unwrap();
        let local = parse("postgres:///shop");
        assert_eq!(local.get_dbname(), Some("shop"));
        #[cfg(unix)]
        assert_eq!(local.get_hosts(), [Host::Unix("/var/run/postgresql".into())]);
        let url = "postgres://h/?channel_binding=require&options=-c%20search_path%3Dshop&connect_timeout=";
        for (seconds, limit) in [(2, 2), (0, 5), (60, 5)] {
            let config = parse(&format!("{url}{seconds}"));
            assert_eq!(config.get_channel_binding(), ChannelBinding::Require);
            assert_eq!(config.get_options(), Some("-c search_path=shop"));
            assert_eq!(config.get_connect_timeout(), Some(&Duration::from_secs(limit)), "{seconds}");
        }
    }

    #[test]
    fn the_page_has_the_options() {
        PostgresOptions::parse("postgres://h")
            .unwrap()
            .documented(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md"), "options");
    }

    #[test]
    fn invalid_options_are_rejected_with_the_remedy() {
        for (url, remedy) in [
            ("postgres:localhost", "two slashes"),
            ("mysql://h/", "must begin with `postgres://`"),
            ("postgres://h/?sslcert=x", "sslcert=FILE&sslkey=FILE"),
            ("postgres://h/?channel_binding=x", "disable, prefer, require"),
            ("postgres://h/?connect_timeout=5s", "whole number, 0 to 86400"),
            ("postgres://h:port/", "USER:PASSWORD@HOST"),
            ("postgres://h/?tabel=a", "use one of: table=idmill_sequences, schema=NAME"),
            ("postgres://h/?table=a-b", "write up to 63 ASCII letters, digits and _"),
            (
                "postgres://h/?schema=pg_catalog",
                "schema=\"pg_catalog\" cannot be used: write up to 63 ASCII letters",
            ),
            ("postgres://h/?table=a&table=b", "duplicate option"),
            ("postgres://h/?mode=rwx", "rwc (may create)"),
            ("postgres://h/?sequences=x", "native"),
            ("postgres://h/?increment=0", "write a whole number, 1 to 2147483648"),
            (
                "postgres://h/?durability=process",
                "disk (`fsync` and `full_page_writes` have to be on), trust",
            ),
            ("postgres://h/?failover=skip:0", "or `skip:N`"),
            ("postgres://h/?failover=allow&sequences=native", "has no row for the last writer"),
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
        fn any_url_parses_without_panic_and_round_trips(rest in "\\PC{0,40}|//[a-z0-9:@,%./]{1,20}(\\?[a-z=&0-9]{0,20})?") {
            if let Ok(options) = PostgresOptions::parse(&format!("postgres:{rest}")) {
                let again = PostgresOptions::parse(&options.to_string());
                prop_assert!(again.is_ok_and(|again| again.to_string() == options.to_string()));
            }
        }
    }
}
