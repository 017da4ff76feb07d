//! The options for opening a database, and their URL form.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use idmill::store::{Store, StoreFuture};
use idmill::{Error, ErrorKind, Result};
use idmill_kit::Mode;
use idmill_kit::options::{Table as Options, duration, option, words};
use idmill_kit::query;
use idmill_kit::query::ESCAPED;
use idmill_kit::refuse;
use idmill_kit::{ColumnPath, Largest, Target};
use idmill_sql::sqlite::{DEFAULT_TABLE, NAME, Settings, Table, largest};
use percent_encoding::{percent_decode_str, percent_encode};
use rusqlite::InterruptHandle;
use tokio::sync::oneshot;

use super::database::open_to_look;
use super::{SqliteStore, look};

const OPTIONS: Options<SqliteOptions> = Options(&[
    option("table", NAME, DEFAULT_TABLE)
        .means("the table; a database can hold several, each its own namespace")
        .field(|o| &mut o.table),
    // SQLite counts milliseconds in 31 bits.
    option("busy_timeout", duration("0s", "2147483647ms"), "5s")
        .means("how long a writer waits for another before it fails with `Unavailable`")
        .field(|o| &mut o.busy_timeout),
    option("mode", words::<Mode>(), "rwc")
        .means("what opening may do to the file and to the table")
        .field(|o| &mut o.mode),
]);

/// The location of an SQLite database and how to open it. Options are checked when the database is opened.
///
/// As a URL: `sqlite:PATH?table=NAME&busy_timeout=5s&mode=rwc`. In the path, `%3F` is a question mark and
/// `%25` is a percent sign. `sqlite://PATH` means the same.
///
/// ```
/// use idmill_sqlite::SqliteOptions;
///
/// let options = SqliteOptions::new("ids.db").table("billing_sequences");
/// assert_eq!(options.to_string(), "sqlite:ids.db?table=billing_sequences");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqliteOptions {
    path: PathBuf,
    table: String,
    busy_timeout: Duration,
    mode: Mode,
}

impl SqliteOptions {
    /// The database at this path, with every option at its default.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let (table, busy_timeout) = Default::default();
        OPTIONS.with_defaults(Self { path: path.into(), table, busy_timeout, mode: Mode::default() })
    }

    /// The table to keep sequences in: `[A-Za-z_][A-Za-z0-9_]{0,62}`, not beginning with `sqlite_`. Default
    /// `idmill_sequences`. Each table is its own namespace.
    #[must_use]
    pub fn table(mut self, table: impl Into<String>) -> Self {
        self.table = table.into();
        self
    }

    /// How long a call waits for other writers before it fails with
    /// [`Unavailable`](idmill::ErrorKind::Unavailable). Default 5 s, at most 2³¹ − 1 ms, rounded up to whole
    /// milliseconds.
    #[must_use]
    pub fn busy_timeout(mut self, timeout: Duration) -> Self {
        let millis = timeout.as_nanos().div_ceil(1_000_000);
        self.busy_timeout = Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX));
        self
    }

    /// What opening may do. Default [`Mode::Create`].
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// The table that sequences are kept in.
    pub fn table_name(&self) -> &str {
        &self.table
    }

    /// The path of the database, as given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads what follows `sqlite:` in a URL.
    pub(crate) fn parse(rest: &str) -> Result<Self> {
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let path = path.strip_prefix("//").unwrap_or(path);
        if path != path.trim() {
            return Err(refuse(
                "the path begins or ends with white space; take it out, or write it as %20 where it belongs to the name",
            ));
        }
        let path = decode(path)?;
        let options = OPTIONS.read(query, Self::new(path))?;
        options.check_values()?;
        Ok(options)
    }

    /// Options that can be opened.
    pub(super) fn check(&self) -> Result<Settings> {
        let table = self.check_values()?;
        // Absolute, so that SQLite can take no path for anything else (`:x:`, `file:x`), nor a later change
        // of the working directory for another file.
        let path = std::path::absolute(&self.path).map_err(|error| {
            refuse(format!("the path `{}` cannot be resolved", self.path.display())).because(error)
        })?;
        Ok(Settings { path, table, busy_timeout: self.busy_timeout, mode: self.mode })
    }

    /// Everything that can be known to be wrong without asking the operating system.
    fn check_values(&self) -> Result<Table> {
        OPTIONS.check(self)?;
        check_path(&self.path)?;
        Table::new(&self.table)
    }
}

impl Target for SqliteOptions {
    fn scheme(&self) -> &'static str {
        "sqlite"
    }

    fn file(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn existing(&self) -> Arc<dyn Target> {
        Arc::new(self.clone().mode(self.mode.existing()))
    }

    fn is_remote(&self) -> bool {
        false
    }

    fn ddl(&self) -> Result<Option<String>> {
        Ok(Some(Table::new(&self.table)?.ddl()))
    }

    fn largest<'a>(&'a self, column: &'a ColumnPath) -> StoreFuture<'a, Result<Largest>> {
        Box::pin(async {
            let (settings, column) = (self.check()?, column.clone());
            let (tell, opened) = oneshot::channel();
            let scan = look(move || {
                let mut own = open_to_look(&settings)?;
                // Nobody waits any more.
                if tell.send(own.0.get_interrupt_handle()).is_err() {
                    return Err(Error::from(ErrorKind::Unavailable));
                }
                idmill_sql::at_once(largest(&mut own, &column))
            });
            let _interrupt = Interrupt(opened);
            scan.await
        })
    }

    fn witness_ddl(&self) -> Result<Option<String>> {
        Table::new(&self.table)?.witness_ddl().map(Some)
    }

    fn connect(&self) -> StoreFuture<'_, Result<Arc<dyn Store>>> {
        Box::pin(async { Ok(Arc::new(SqliteStore::open_with(self.clone()).await?) as Arc<dyn Store>) })
    }
}

/// Ends a scan when its future is dropped: a thread cannot be cancelled otherwise.
struct Interrupt(oneshot::Receiver<InterruptHandle>);

impl Drop for Interrupt {
    fn drop(&mut self) {
        self.0.close();
        if let Ok(scan) = self.0.try_recv() {
            scan.interrupt();
        }
    }
}

/// Parses a URL, as [`Display`](fmt::Display) prints it.
impl FromStr for SqliteOptions {
    type Err = Error;

    fn from_str(url: &str) -> Result<Self> {
        Self::parse(query::after("sqlite", url)?)
    }
}

impl fmt::Display for SqliteOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sqlite:{}{}", encode(&self.path), OPTIONS.print(self))
    }
}

fn check_path(path: &Path) -> Result<()> {
    let bytes = path.as_os_str().as_encoded_bytes();
    if bytes.is_empty() || bytes.starts_with(b":memory:") {
        let remedy =
            "for a store in memory, in tests, use `memory:`; else name a file, as in `sqlite:ids.db`";
        return Err(refuse(format!(
            "an SQLite database in memory or without a name loses its ids; {remedy}"
        )));
    }
    if bytes.starts_with(b"file:") {
        return Err(refuse(format!(
            "`{}` is an SQLite URI; give the path alone, as in `sqlite:ids.db`",
            path.display()
        )));
    }
    if bytes.contains(&0) {
        return Err(refuse(format!("the path `{}` holds a NUL", path.display())));
    }
    Ok(())
}

#[cfg(unix)]
#[allow(clippy::unnecessary_wraps)] // elsewhere a path is text
fn decode(path: &str) -> Result<OsString> {
    use std::os::unix::ffi::OsStringExt;
    Ok(OsString::from_vec(percent_decode_str(path).collect()))
}

#[cfg(not(unix))]
fn decode(path: &str) -> Result<OsString> {
    let text = percent_decode_str(path).decode_utf8();
    text.map(|text| OsString::from(&*text)).map_err(|_| refuse(format!("the path `{path}` is not UTF-8")))
}

fn encode(path: &Path) -> String {
    let encoded = percent_encode(path.as_os_str().as_encoded_bytes(), ESCAPED).to_string();
    // Two slashes at the beginning would be read as those of a URL.
    if encoded.starts_with("//") { encoded.replacen("//", "/%2F", 1) } else { encoded }
}

#[cfg(test)]
mod tests {
    use idmill::ErrorKind;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_option_is_read() {
        let options =
            SqliteOptions::parse("/var/lib/a%20b%3F.db?table=t_1&busy_timeout=250ms&mode=rw").unwrap();
        let expected = SqliteOptions::new("/var/lib/a b?.db")
            .table("t_1")
            .busy_timeout(Duration::from_millis(250))
            .mode(Mode::ReadWrite);
        assert_eq!(options, expected);
        assert_eq!(SqliteOptions::parse("//ids.db").unwrap(), SqliteOptions::new("ids.db"));
        assert_eq!(SqliteOptions::parse("///srv/ids.db").unwrap(), SqliteOptions::new("/srv/ids.db"));
        assert_eq!(SqliteOptions::parse("100%.db").unwrap(), SqliteOptions::new("100%.db"));
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_remedy() {
        for (url, remedy) in [
            ("", "`memory:`"),
            (":memory:", "`memory:`"),
            ("//:memory:", "`memory:`"),
            ("file:x.db?mode=memory", "mode=\"memory\""),
            ("file:x.db", "path alone"),
            ("a%00b", "NUL"),
            ("x?tabel=a", "table=idmill_sequences, busy_timeout=5s, mode=ro|rw|rwc"),
            ("x?mode=rwx", "rwc (may create)"),
            ("x?mode=rw&mode=ro", "twice"),
            ("x?busy_timeout=5", "ms, s, m or h), 0s to 2147483647ms, such as busy_timeout=5s"),
            ("x?busy_timeout=-5s", "ms, s, m or h), 0s to 2147483647ms, such as busy_timeout=5s"),
            (
                "x?busy_timeout=99999999999999999999s",
                "ms, s, m or h), 0s to 2147483647ms, such as busy_timeout=5s",
            ),
            (
                "x?busy_timeout=99999999999999999m",
                "ms, s, m or h), 0s to 2147483647ms, such as busy_timeout=5s",
            ),
            ("x?busy_timeout=2147483648ms", "0s to 2147483647ms"),
            ("x?table=", "table"),
            ("x?table=a%22b", "table"),
            ("x?table=sqlite_master", "sqlite_"),
        ] {
            let error = SqliteOptions::parse(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{url}");
            assert!(error.to_string().contains(remedy), "{url}: {error}");
        }
    }

    #[test]
    fn the_page_has_the_options() {
        OPTIONS.documented(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md"), "options");
    }

    proptest! {
        #[test]
        fn display_reads_back(
            path in prop_oneof!["[^\0]{1,40}", "[/?%:&=a+# ]{1,9}"],
            table in "[A-Za-z_][A-Za-z0-9_]{0,62}",
            millis in 0..=i32::MAX as u64,
            mode in prop_oneof![Just(Mode::ReadOnly), Just(Mode::ReadWrite), Just(Mode::Create)],
        ) {
            let timeout = Duration::from_millis(millis);
            let options = SqliteOptions::new(path).table(table).busy_timeout(timeout).mode(mode);
            prop_assume!(options.check_values().is_ok());
            let url = options.to_string();
            let read = SqliteOptions::parse(url.strip_prefix("sqlite:").unwrap()).unwrap();
            prop_assert_eq!(read, options, "{}", url);
        }
    }
}
