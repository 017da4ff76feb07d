//! The table, its rows, and the statements on them.
//!
//! Two layouts are supported. The store detects the layout from the columns of each reply, so a table may
//! be altered while it is in use:
//!
//! - *full*, as created by this crate;
//! - *plain*, as in published designs for Spanner, with only a name and the next value. In a table that was
//!   altered from plain to full, each row stays plain until its max or epoch is changed.
//!
//! A `u64` is stored as the signed integer with the same 64 bits. SQL never compares or adds these values.

use gcloud_googleapis::spanner::v1::struct_type::Field;
use gcloud_googleapis::spanner::v1::{Mutation, TypeCode};
use gcloud_spanner::key::Key;
use gcloud_spanner::mutation;
use gcloud_spanner::row::Row;
use gcloud_spanner::statement::{Statement, ToKind};
use idmill::store::{Bounds, Cursor, Identity, Page, SequenceInfo};
use idmill::{Error, ErrorKind, Result, SequenceName};
use idmill_kit::options::{Kind, text};
use idmill_kit::{InvalidRow, Numbers, paging};

pub(super) const DEFAULT_TABLE: &str = "idmill_sequences";
/// The name of a table, as an option.
pub(super) const NAME: Kind =
    text("NAME", "up to 128 ASCII letters, digits and _, beginning with a letter", is_name);
/// Spanner's limit for names.
pub(super) const LONGEST_NAME: usize = 128;
/// The columns of the full layout that the plain layout lacks.
const ADDED: [&str; 4] = ["start_value", "max_value", "incarnation", "epoch"];
/// The last id of a plain row: one below the largest integer, which `next_value` must hold once all ids are
/// reserved.
const PLAIN_MAX: u64 = i64::MAX as u64 - 1;
/// The identity of every plain row. A plain row cannot show that it was created again, so this crate does not
/// remove rows of a plain table.
const PLAIN_IDENTITY: Identity = Identity { incarnation: 1, epoch: 0 };

/// A table name that was checked, because it becomes part of the SQL.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Table(pub(super) Box<str>);

/// The decoded reply for one sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    /// The layout of the table.
    pub(super) layout: Layout,
    /// The sequence, if there is one.
    pub(super) info: Option<SequenceInfo>,
}

/// The columns and rows of a reply.
pub(super) type Found = (Vec<Field>, Vec<Row>);

/// The mutations of a transaction.
pub(super) type Mutations = Vec<Mutation>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    Full,
    Plain,
}

fn is_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && name.len() <= LONGEST_NAME
}

impl Table {
    pub(super) fn new(name: &str) -> Result<Self> {
        NAME.check("table", name)?;
        Ok(Self(name.into()))
    }

    /// Returns the statement that creates the table in the full layout.
    pub(super) fn ddl(&self) -> String {
        format!(
            "CREATE TABLE IF NOT EXISTS `{}` (
  name STRING(200) NOT NULL,
  next_value INT64,
  start_value INT64,
  max_value INT64,
  incarnation INT64,
  epoch INT64,
) PRIMARY KEY (name)",
            self.0
        )
    }

    /// Returns the statements that add these columns to a plain table.
    fn alterations(&self, missing: &[&str]) -> String {
        let alter = |column: &&str| format!("ALTER TABLE `{}` ADD COLUMN {column} INT64", self.0);
        missing.iter().map(alter).collect::<Vec<_>>().join("; ")
    }

    /// Reads one row and locks it. Other transactions that read the row for an update wait at this read,
    /// instead of aborting each other when they write.
    pub(super) fn select_for_update(&self, name: &SequenceName) -> Statement {
        self.named("@{LOCK_SCANNED_RANGES=exclusive} SELECT *", name)
    }

    /// Reads one row without a lock.
    pub(super) fn select(&self, name: &SequenceName) -> Statement {
        self.named("SELECT *", name)
    }

    pub(super) fn named(&self, select: &str, name: &SequenceName) -> Statement {
        let mut statement = Statement::new(format!("{select} FROM `{}` WHERE name = @name", self.0));
        statement.add_param("name", &name.as_str());
        statement
    }

    /// Reads these columns of a page of rows, sorted by name.
    pub(super) fn select_page(&self, columns: &str, page: &Page) -> Statement {
        let after = page.after.as_ref().map_or("", Cursor::as_str);
        let mut statement = Statement::new(format!(
            "SELECT {columns} FROM `{}` WHERE name > @after AND name >= @prefix AND STARTS_WITH(name, @prefix) \
             ORDER BY name LIMIT {}",
            self.0,
            paging::limit(page)
        ));
        statement.add_param("after", &after);
        statement.add_param("prefix", &page.prefix);
        statement
    }

    /// Matches no row; the reply has only the columns of the table.
    pub(super) fn select_none(&self) -> Statement {
        Statement::new(format!("SELECT * FROM `{}` WHERE name IS NULL LIMIT 1", self.0))
    }

    /// Finds the columns in a reply.
    pub(super) fn columns(&self, fields: &[Field]) -> Result<Columns> {
        let place = |name: &str| fields.iter().position(|field| field.name.eq_ignore_ascii_case(name));
        let needed = |name: &str, code| {
            let place = place(name).filter(|place| has_type(&fields[*place], code));
            place.ok_or_else(|| self.foreign(fields))
        };
        let (name, next) = (needed("name", TypeCode::String)?, needed("next_value", TypeCode::Int64)?);
        let missing: Vec<_> = ADDED.into_iter().filter(|name| place(name).is_none()).collect();
        let added = if missing.len() == ADDED.len() {
            None
        } else if missing.is_empty() {
            let mut places = [0; ADDED.len()];
            for (place, name) in places.iter_mut().zip(ADDED) {
                *place = needed(name, TypeCode::Int64)?;
            }
            Some(places)
        } else {
            let message = format!(
                "the table `{}` lacks some of idmill's columns; add them: {}",
                self.0,
                self.alterations(&missing)
            );
            return Err(Error::new(ErrorKind::Conflict, message));
        };
        Ok(Columns { name, next, added })
    }

    fn foreign(&self, fields: &[Field]) -> Error {
        let found: Vec<_> = fields.iter().map(|field| field.name.as_str()).collect();
        let message = format!(
            "the table `{}` has the columns {}, but needs `name` STRING and `next_value` INT64; name another \
             with `?table=NAME`",
            self.0,
            found.join(", ")
        );
        Error::new(ErrorKind::Conflict, message)
    }

    /// Returns the name in a row, or an empty text if it is missing.
    pub(super) fn name(row: &Row, columns: &Columns) -> String {
        row.column::<Option<String>>(columns.name).unwrap_or_default().unwrap_or_default()
    }

    /// Decodes a row.
    pub(super) fn decode(&self, row: &Row, columns: &Columns) -> Result<SequenceInfo> {
        let name = Self::name(row, columns);
        decode(row, columns, &name)
            .map_err(|fault| fault.of(format_args!("the row {name:?} of `{}`", self.0)))
    }

    /// Decodes the reply for one sequence.
    pub(super) fn stored(&self, (fields, found): &Found) -> Result<Stored> {
        let columns = self.columns(fields)?;
        let info = found.first().map(|row| self.decode(row, &columns)).transpose()?;
        Ok(Stored { layout: columns.layout(), info })
    }

    /// Returns the error for a request that needs the columns of the full layout.
    pub(super) fn lacks_columns(&self, name: &SequenceName, what: &str) -> Error {
        let message = format!(
            "the table `{}` has no columns for {what}; add them (the sequences stay unchanged): {}",
            self.0,
            self.alterations(&ADDED)
        );
        Error::new(ErrorKind::Unsupported, message).of(name)
    }

    /// Returns a new sequence, or an error if the layout cannot store its bounds.
    pub(super) fn fresh(&self, name: &SequenceName, bounds: Bounds, layout: Layout) -> Result<SequenceInfo> {
        if layout == Layout::Full {
            let next = Some(bounds.start());
            return Ok(SequenceInfo::stored(name.clone(), next, bounds, Identity::fresh()));
        }
        // Callers that set no bounds pass the largest value of their id type as max, and enforce it
        // themselves, so the row need not store it.
        let anyones = [PLAIN_MAX, i32::MAX as u64, u32::MAX.into(), i64::MAX as u64, u64::MAX];
        if bounds.start() != 1 || !anyones.contains(&bounds.max()) {
            return Err(self
                .lacks_columns(name, "a start other than 1, or a max that is not the largest id of a type"));
        }
        let (next, bounds) = (Some(1), plain_bounds(1));
        Ok(SequenceInfo::stored(name.clone(), next, bounds, PLAIN_IDENTITY))
    }

    /// Returns the mutations that write the state `after`; none if it is stored already.
    pub(super) fn write(
        &self,
        name: &SequenceName,
        Stored { layout, info: before }: &Stored,
        after: Option<&SequenceInfo>,
    ) -> Result<Mutations> {
        let needs = |what| match layout {
            Layout::Full => Ok(()),
            Layout::Plain => Err(self.lacks_columns(name, what)),
        };
        let fixed = |info: &SequenceInfo| (info.bounds, info.identity);
        Ok(vec![match (before, after) {
            (before, after) if before.as_ref() == after => return Ok(Vec::new()),
            (_, None) => {
                // If the sequence were created again, processes with ids in memory could not detect the
                // replacement.
                needs("the incarnation, which shows that a sequence was replaced")?;
                mutation::delete(&self.0, Key::new(&name.as_str()))
            }
            (None, Some(after)) => self.mutation(mutation::insert, after, *layout),
            (Some(before), Some(after)) if fixed(before) == fixed(after) => {
                // Only `next_value` is written.
                self.mutation(mutation::update, after, Layout::Plain)
            }
            (Some(_), Some(after)) => {
                needs("a new max, a step backwards or a revocation")?;
                self.mutation(mutation::update, after, *layout)
            }
        }])
    }

    fn mutation(&self, write: Writes, info: &SequenceInfo, layout: Layout) -> Mutation {
        let (name, (columns, numbers)) = (info.name.as_str(), row(info, layout));
        let mut values: Vec<&dyn ToKind> = vec![&name];
        values.extend(numbers.iter().map(|number| number as &dyn ToKind));
        write(&self.0, &columns, &values)
    }

    /// Inserts a row, visible to the same transaction.
    pub(super) fn insert_now(&self, info: &SequenceInfo, layout: Layout) -> Statement {
        let columns = row(info, layout).0.join(", ");
        let parameters = columns.replace(", ", ", @");
        with_parameters(format!("INSERT INTO `{}` ({columns}) VALUES (@{parameters})", self.0), info, layout)
    }

    /// Writes only `next_value`, visible to the same transaction.
    pub(super) fn advance_now(&self, info: &SequenceInfo) -> Statement {
        let sql = format!("UPDATE `{}` SET next_value = @next_value WHERE name = @name", self.0);
        with_parameters(sql, info, Layout::Plain)
    }
}

type Writes = fn(&str, &[&str], &[&dyn ToKind]) -> Mutation;

/// Positions of the columns in a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Columns {
    name: usize,
    next: usize,
    added: Option<[usize; ADDED.len()]>,
}

impl Columns {
    pub(super) fn layout(&self) -> Layout {
        if self.added.is_some() { Layout::Full } else { Layout::Plain }
    }
}

/// Returns the columns of a row, and the values of all columns after the name.
fn row(info: &SequenceInfo, layout: Layout) -> (Vec<&'static str>, Vec<Option<i64>>) {
    let (mut columns, mut numbers) = (vec!["name", "next_value"], Vec::new());
    numbers.push(info.next.or_else(|| info.bounds.max().checked_add(1)).map(u64::cast_signed));
    if layout == Layout::Full {
        let (bounds, identity) = (info.bounds, info.identity);
        let added = [bounds.start(), bounds.max(), identity.incarnation, identity.epoch];
        columns.extend(ADDED);
        numbers.extend(added.map(|value| Some(value.cast_signed())));
    }
    (columns, numbers)
}

fn with_parameters(sql: String, info: &SequenceInfo, layout: Layout) -> Statement {
    let (columns, numbers) = row(info, layout);
    let mut statement = Statement::new(sql);
    statement.add_param("name", &info.name.as_str());
    for (column, number) in columns[1..].iter().zip(&numbers) {
        statement.add_param(column, number);
    }
    statement
}

fn has_type(field: &Field, code: TypeCode) -> bool {
    field.r#type.as_ref().is_some_and(|found| found.code == i32::from(code))
}

fn decode(row: &Row, columns: &Columns, name: &str) -> Result<SequenceInfo, InvalidRow> {
    let number = |place| row.column::<Option<i64>>(place).map_err(|error| format!("cannot be read: {error}"));
    let name = SequenceName::new(name).map_err(|error| format!("has no valid name: {error}"))?;
    let next = number(columns.next)?;
    let mut added = [None; ADDED.len()];
    for (value, place) in added.iter_mut().zip(columns.added.unwrap_or_default()) {
        *value = if columns.added.is_some() { number(place)? } else { None };
    }
    match added {
        [Some(start), Some(max), Some(incarnation), Some(epoch)] => {
            full(name, next, [start, max], [incarnation, epoch])
        }
        [None, None, None, None] => plain(name, next),
        _ => Err(format!("has only some of {}", ADDED.join(", ")).into()),
    }
}

fn full(
    name: SequenceName,
    next: Option<i64>,
    bounds: [i64; 2],
    identity: [i64; 2],
) -> Result<SequenceInfo, InvalidRow> {
    // The stored integer has the same 64 bits as the id.
    let id = |stored: i64| i128::from(stored.cast_unsigned());
    let ([start, max], [incarnation, epoch]) = (bounds.map(id), identity.map(i128::from));
    if next.is_none() && max != i128::from(u64::MAX) {
        return Err("has no next_value".into());
    }
    Numbers { next: next.map(id), start, max, incarnation, epoch }.or_used_up(name)
}

fn plain(name: SequenceName, next: Option<i64>) -> Result<SequenceInfo, InvalidRow> {
    let next = next.ok_or("has no next_value")?;
    let next = u64::try_from(next).map_err(|_| format!("has next_value {next}, which is negative"))?;
    let (bounds, next) = (plain_bounds(next), Some(next).filter(|next| *next <= PLAIN_MAX));
    Ok(SequenceInfo::stored(name, next, bounds, PLAIN_IDENTITY))
}

/// Returns the bounds of a plain row. The bounds begin with 0 if the next value is 0, otherwise with 1.
fn plain_bounds(next: u64) -> Bounds {
    Bounds::new(next.min(1), PLAIN_MAX).expect("0 and 1 are below PLAIN_MAX")
}
