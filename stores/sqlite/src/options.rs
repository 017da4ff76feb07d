//! The options for opening a database, and their URL form.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use idmill::store::StoreFuture;
use idmill::{Error, ErrorKind, Result};
use idmill_kit::options::Options as _;
use idmill_kit::query::ESCAPED;
use idmill_kit::{ColumnPath, Largest, Mode, Target, refuse};
use idmill_sql::sqlite::{Settings, Table, largest};
use percent_encoding::{percent_decode_str, percent_encode};
use rusqlite::InterruptHandle;
use tokio::sync::oneshot;

use super::database::open_to_look;
use super::{SqliteStore, look};

idmill_sql::options! {
    /// The location of an SQLite database and how to open it. Options are checked when a URL is parsed and
    /// when the database is opened.
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
    pub struct SqliteOptions at path "sqlite" as "sqlite:PATH" {
        /// The file.
        pub path: PathBuf,
    }

    sql table in sqlite;
    sql opening in sqlite;
}

impl SqliteOptions {
    /// Creates options for the database at this path, with all defaults.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self::with_defaults(path.into())
    }

    /// Returns the table of the sequences.
    pub fn table_name(&self) -> &str {
        &self.table
    }

    /// Returns the path of the database, as given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn at(_: &str, path: &str) -> Result<Self> {
        let path = path.strip_prefix("//").unwrap_or(path);
        if path != path.trim() {
            return Err(refuse("the path begins or ends with white space; remove it, or write it as %20"));
        }
        Ok(Self::new(decode(path)?))
    }

    fn place(&self) -> String {
        format!("sqlite:{}", encode(&self.path))
    }

    /// Checks the options, and converts them to settings.
    pub(super) fn checked(&self) -> Result<Settings> {
        let table = self.check()?;
        // Absolute, so that SQLite cannot interpret the path (`:x:`, `file:x`) and a later change
        // of the working directory cannot select another file.
        let path = std::path::absolute(&self.path).map_err(|error| {
            refuse(format!("the path `{}` cannot be resolved", self.path.display())).because(error)
        })?;
        let millis = self.busy_timeout.as_nanos().div_ceil(1_000_000);
        let millis = u64::try_from(millis).unwrap_or(u64::MAX);
        Ok(Settings { path, table, busy_timeout: Duration::from_millis(millis), mode: self.mode })
    }

    /// Checks everything that needs no access to the operating system.
    fn check(&self) -> Result<Table> {
        self.check_values()?;
        check_path(&self.path)?;
        Table::new(&self.table)
    }
}

impl Target for SqliteOptions {
    idmill_kit::target!(
        |options| "sqlite" => SqliteStore::open_with, existing options.mode = options.mode.existing()
    );

    fn file(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn is_remote(&self) -> bool {
        false
    }

    fn ddl(&self) -> Result<Option<String>> {
        Ok(Some(Table::new(&self.table)?.ddl()))
    }

    fn largest<'a>(&'a self, column: &'a ColumnPath) -> StoreFuture<'a, Result<Largest>> {
        Box::pin(async {
            let (settings, column) = (self.checked()?, column.clone());
            let (tell, opened) = oneshot::channel();
            let scan = look(move || {
                let mut own = open_to_look(&settings)?;
                // The caller has stopped waiting.
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
}

/// Ends a scan when its future is dropped, since a thread cannot be cancelled otherwise.
struct Interrupt(oneshot::Receiver<InterruptHandle>);

impl Drop for Interrupt {
    fn drop(&mut self) {
        self.0.close();
        if let Ok(scan) = self.0.try_recv() {
            scan.interrupt();
        }
    }
}

fn check_path(path: &Path) -> Result<()> {
    let bytes = path.as_os_str().as_encoded_bytes();
    if bytes.is_empty() || bytes.starts_with(b":memory:") {
        let remedy = "name a file (`sqlite:ids.db`), or use `memory:` in tests";
        return Err(refuse(format!(
            "an SQLite database in memory or without a name loses its ids; {remedy}"
        )));
    }
    if bytes.starts_with(b"file:") {
        return Err(refuse(format!(
            "`{}` is an SQLite URI; write only the path, as in `sqlite:ids.db`",
            path.display()
        )));
    }
    if bytes.contains(&0) {
        return Err(refuse(format!("the path `{}` contains a NUL", path.display())));
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
    // Two leading slashes would be read as the start of a URL's host.
    if encoded.starts_with("//") { encoded.replacen("//", "/%2F", 1) } else { encoded }
}

#[cfg(test)]
mod tests {
    use idmill::ErrorKind;
    use idmill_testing::OptionsPage as _;
    use proptest::prelude::*;

    use super::*;

    fn parse(rest: &str) -> Result<SqliteOptions> {
        SqliteOptions::parse(&format!("sqlite:{rest}"))
    }

    #[test]
    fn every_option_is_read() {
        let options = parse("/var/lib/a%20b%3F.db?table=t_1&busy_timeout=250ms&mode=rw").unwrap();
        let expected = SqliteOptions::new("/var/lib/a b?.db")
            .table("t_1")
            .busy_timeout(Duration::from_millis(250))
            .mode(Mode::ReadWrite);
        assert_eq!(options, expected);
        assert_eq!(parse("//ids.db").unwrap(), SqliteOptions::new("ids.db"));
        assert_eq!(parse("///srv/ids.db").unwrap(), SqliteOptions::new("/srv/ids.db"));
        assert_eq!(parse("100%.db").unwrap(), SqliteOptions::new("100%.db"));
    }

    #[test]
    fn invalid_options_are_rejected_with_the_remedy() {
        for (url, remedy) in [
            ("", "`memory:`"),
            (":memory:", "`memory:`"),
            ("//:memory:", "`memory:`"),
            ("file:x.db?mode=memory", "mode=\"memory\""),
            ("file:x.db", "only the path"),
            ("a%00b", "NUL"),
            ("x?tabel=a", "table=idmill_sequences, busy_timeout=5s, mode=ro|rw|rwc"),
            ("x?mode=rwx", "rwc (may create)"),
            ("x?mode=rw&mode=ro", "duplicate option"),
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
            let error = parse(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{url}");
            assert!(error.to_string().contains(remedy), "{url}: {error}");
        }
    }

    #[test]
    fn the_page_has_the_options() {
        SqliteOptions::new("ids.db").documented(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md"), "options");
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
            prop_assume!(options.check().is_ok());
            let url = options.to_string();
            let read = SqliteOptions::parse(&url).unwrap();
            prop_assert_eq!(read, options, "{}", url);
        }
    }
}
