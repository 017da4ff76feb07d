//! The options of the store: the database, how to reach it, and the URL form.

use idmill::Result;
use idmill_kit::options::{ADDRESS, Options as _, words};
use idmill_kit::{Mode, Target, refuse};

use super::SpannerStore;
use super::schema::{DEFAULT_TABLE, NAME, Table};

const FORM: &str = "write `spanner://projects/PROJECT/instances/INSTANCE/databases/DATABASE`";
/// The environment variable with the emulator's address, which Google's clients also read.
const EMULATOR_VARIABLE: &str = "SPANNER_EMULATOR_HOST";

idmill_kit::options! {
    /// A Spanner database and how to open it. Options are checked when the database is opened.
    ///
    /// As a URL: `spanner://projects/P/instances/I/databases/D?table=NAME&emulator=HOST:PORT&mode=rwc`.
    ///
    /// ```
    /// use idmill_spanner::SpannerOptions;
    ///
    /// let options = SpannerOptions::new("projects/p/instances/i/databases/d").table("sequences");
    /// assert_eq!(options.to_string(), "spanner://projects/p/instances/i/databases/d?table=sequences");
    /// ```
    pub struct SpannerOptions at path "spanner" as "spanner://projects/P/instances/I/databases/D" {
        /// The full name, `projects/P/instances/I/databases/D`.
        pub database: String,
    }

    /// The table. Each table is a separate namespace.
    pub table: String = DEFAULT_TABLE in NAME;
    /// The emulator to use instead of the cloud. Default: the environment variable `SPANNER_EMULATOR_HOST`.
    pub emulator: Option<String> = "" in ADDRESS;
    /// How the table is opened. On an emulator, `rwc` also creates the instance and the database.
    pub mode: Mode = "rwc" in words::<Mode>();
}

impl SpannerOptions {
    /// Creates options for the database with this full name, `projects/P/instances/I/databases/D`. Every
    /// other option has its default.
    pub fn new(database: impl Into<String>) -> Self {
        Self::with_defaults(database.into())
    }

    /// Returns the name of the table of sequences.
    pub fn table_name(&self) -> &str {
        &self.table
    }

    #[expect(clippy::unnecessary_wraps, reason = "`options!` expects the same signature in each store")]
    fn at(_: &str, place: &str) -> Result<Self> {
        Ok(Self::new(place.strip_prefix("//").unwrap_or(place)))
    }

    fn place(&self) -> String {
        format!("spanner://{}", self.database)
    }

    /// Checks the options without a connection, and parses the names.
    fn check(&self) -> Result<(DatabaseName, Table)> {
        Ok((DatabaseName::new(&self.database)?, self.checked_table()?))
    }

    /// Checks the values of all options.
    pub(super) fn checked_table(&self) -> Result<Table> {
        self.check_values()?;
        Table::new(&self.table)
    }

    /// Checks the options. An explicit emulator overrides the environment variable.
    pub(super) fn checked(&self) -> Result<Checked> {
        let (database, table) = self.check()?;
        let environment = || std::env::var(EMULATOR_VARIABLE).ok().filter(|value| !value.is_empty());
        let emulator = self.emulator.clone().or_else(environment);
        if let Some(emulator) = &emulator {
            ADDRESS.check(EMULATOR_VARIABLE, emulator)?;
        }
        Ok(Checked { database, table, emulator, mode: self.mode })
    }
}

/// Options without a database, for a store over the caller's client.
impl Default for SpannerOptions {
    fn default() -> Self {
        Self::new("")
    }
}

/// Checked options.
#[derive(Clone, Debug)]
pub(super) struct Checked {
    pub(super) database: DatabaseName,
    pub(super) table: Table,
    pub(super) emulator: Option<String>,
    pub(super) mode: Mode,
}

/// The parts of a database's full name.
#[derive(Clone, Debug)]
pub(super) struct DatabaseName {
    pub(super) project: String,
    pub(super) instance: String,
    pub(super) id: String,
}

impl DatabaseName {
    fn new(name: &str) -> Result<Self> {
        let parts: Vec<_> = name.split('/').collect();
        let ["projects", project, "instances", instance, "databases", id] = parts[..] else {
            return Err(refuse(format!("{name:?} is not the name of a Spanner database: {FORM}")));
        };
        for part in [project, instance, id] {
            let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
            if part.is_empty() || !part.chars().all(valid) {
                let message = format!("{part:?} cannot be part of the name of a Spanner database: {FORM}");
                return Err(refuse(message));
            }
        }
        Ok(Self { project: project.to_owned(), instance: instance.to_owned(), id: id.to_owned() })
    }

    pub(super) fn project_path(&self) -> String {
        format!("projects/{}", self.project)
    }

    pub(super) fn instance_path(&self) -> String {
        format!("projects/{}/instances/{}", self.project, self.instance)
    }

    pub(super) fn path(&self) -> String {
        format!("projects/{}/instances/{}/databases/{}", self.project, self.instance, self.id)
    }
}

impl Target for SpannerOptions {
    idmill_kit::target!(
        |options| "spanner" => SpannerStore::open_with, existing options.mode = options.mode.existing()
    );

    fn ddl(&self) -> Result<Option<String>> {
        Ok(Some(Table::new(&self.table)?.ddl()))
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

    fn parse(rest: &str) -> Result<SpannerOptions> {
        SpannerOptions::parse(&format!("spanner:{rest}"))
    }

    #[test]
    fn every_option_is_read() {
        let name = "projects/example.com:p/instances/i-1/databases/d_2";
        let url = format!("//{name}?table=sequences&emulator=localhost:9010&mode=ro");
        let expected =
            SpannerOptions::new(name).table("sequences").emulator("localhost:9010").mode(Mode::ReadOnly);
        assert_eq!(parse(&url).unwrap(), expected);
        assert_eq!(parse(name).unwrap(), SpannerOptions::new(name));
        let database = expected.checked().unwrap().database;
        assert_eq!(database.path(), name);
        assert_eq!(database.instance_path(), "projects/example.com:p/instances/i-1");
        assert_eq!(expected.checked().unwrap().emulator.as_deref(), Some("localhost:9010"));
    }

    #[test]
    fn invalid_options_are_rejected_with_the_remedy() {
        let d = "//projects/p/instances/i/databases/d";
        for (url, remedy) in [
            (String::new(), "databases/DATABASE"),
            ("//projects/p/instances/i".into(), "databases/DATABASE"),
            ("//projects//instances/i/databases/d".into(), "databases/DATABASE"),
            (format!("{d}/x"), "databases/DATABASE"),
            ("//projects/p/instances/i i/databases/d".into(), "databases/DATABASE"),
            (
                format!("{d}?tabel=a"),
                "use one of: table=idmill_sequences, emulator=HOST:PORT, mode=ro|rw|rwc",
            ),
            (format!("{d}?mode=rwx"), "rwc (may create)"),
            (format!("{d}?mode=rw&mode=ro"), "duplicate option"),
            (format!("{d}?emulator=localhost"), "localhost:9010"),
            (format!("{d}?emulator=http://localhost:9010"), "localhost:9010"),
            (format!("{d}?emulator=:9010"), "localhost:9010"),
            (format!("{d}?emulator=h:99999"), "localhost:9010"),
            (format!("{d}?table="), "table"),
            (format!("{d}?table=a`b"), "table"),
            (format!("{d}?table=_a"), "table"),
        ] {
            let error = parse(&url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{url}");
            assert!(error.to_string().contains(remedy), "{url}: {error}");
        }
    }

    #[test]
    fn the_page_has_the_options() {
        SpannerOptions::new("d").documented(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md"), "options");
    }

    proptest! {
        #[test]
        fn display_reads_back(
            part in "[a-z][a-z0-9._-]{0,20}",
            table in "[A-Za-z][A-Za-z0-9_]{0,62}",
            emulator in prop::option::of("([a-z][a-z0-9.-]{0,9}|\\[::1\\]):[1-9][0-9]{0,3}"),
            mode in prop_oneof![Just(Mode::ReadOnly), Just(Mode::ReadWrite), Just(Mode::Create)],
        ) {
            let mut options =
                SpannerOptions::new(format!("projects/{part}/instances/{part}/databases/{part}")).table(table).mode(mode);
            options.emulator = emulator;
            let url = options.to_string();
            let read = SpannerOptions::parse(&url).unwrap();
            prop_assert_eq!(read, options, "{}", url);
        }
    }
}
