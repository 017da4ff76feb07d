//! The table, its rows, and the SQL that touches them.
//!
//! Statements are plain text with every value in them: nothing is prepared, so nothing depends on a
//! connection's state, and each is one round trip. Names are written as hexadecimal, numbers as digits, so no
//! `sql_mode` reads them differently.
//!
//! Names are bytes (`VARBINARY`): every collation that MySQL and MariaDB have in common
//! takes some names for others.

use std::fmt::{self, Write};

use mysql_async::prelude::FromValue;
use mysql_async::{Row, Value};

use crate::error::{Error, ErrorKind, Operation, Result};
use crate::name::SequenceName;
use crate::store::{Bounds, GiveBack, Identity, Page, Reserve, SequenceInfo};

pub(super) const DEFAULT_TABLE: &str = "idmill_sequences";
/// The layout of a row. Another version's rows are refused.
const FORMAT: u64 = 1;
const COLUMNS: &str = "`name`, `next`, `start`, `max`, `incarnation`, `epoch`, `format`";
/// As `information_schema.COLUMNS` has them, in so far as MySQL and MariaDB say the same.
pub(super) const LAYOUT: &str = "name varbinary, next bigint unsigned, start bigint unsigned, max bigint unsigned, \
                                 incarnation bigint unsigned, epoch bigint unsigned, format tinyint unsigned";
/// MySQL's own limit for names.
const LONGEST_NAME: usize = 64;

/// What is the same for all reserves of a sequence until somebody changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) bounds: Bounds,
    pub(super) identity: Identity,
}

impl Known {
    pub(super) fn of(info: &SequenceInfo) -> Self {
        Self { bounds: info.bounds, identity: info.identity }
    }

    /// Between which values `next` has to be for all that was asked for to be there, and more than nothing to
    /// be left: the numbers that need no special treatment. `None` if there are no such values.
    ///
    /// Not 0, which an answer to `LAST_INSERT_ID` cannot be told from: no answer is 0 too.
    pub(super) fn room(self, request: &Reserve) -> Option<(u64, u64)> {
        let by_max = self.bounds.max().checked_sub(request.count)?;
        let by_ceiling = request.ceiling.checked_sub(request.count.max(1) - 1)?;
        let (low, high) = (self.bounds.start().max(1), by_max.min(by_ceiling));
        (low <= high).then_some((low, high))
    }

    fn unchanged(self) -> String {
        let (bounds, identity) = (self.bounds, self.identity);
        format!(
            "`start` = {} AND `max` = {} AND `incarnation` = {} AND `epoch` = {} AND `format` = {FORMAT}",
            bounds.start(),
            bounds.max(),
            identity.incarnation,
            identity.epoch
        )
    }
}

/// A table, named so that it is the same one whatever database a connection has come to use. Its name was
/// checked, since it becomes part of the SQL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Table {
    /// Empty for that of the connection.
    database: Box<str>,
    name: Box<str>,
}

impl Table {
    /// Of whatever database a connection uses.
    pub(super) fn new(name: &str) -> Result<Self> {
        let mut bytes = name.bytes();
        let begins = bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_');
        let goes_on = bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if begins && goes_on && name.len() <= LONGEST_NAME {
            return Ok(Self { database: "".into(), name: name.into() });
        }
        let rule = "up to 64 ASCII letters, digits and _, not beginning with a digit";
        Err(Error::invalid(format!("{name:?} cannot be the table: {rule}")).during(Operation::Connect))
    }

    /// The same in this database.
    pub(super) fn within(self, database: &str) -> Self {
        Self { database: database.into(), ..self }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// One statement, so that a crash leaves all of it or nothing.
    pub(super) fn create(&self) -> String {
        format!(
            "CREATE TABLE IF NOT EXISTS {self} (
  `name` VARBINARY(200) NOT NULL PRIMARY KEY COMMENT 'UTF-8',
  `next` BIGINT UNSIGNED NULL COMMENT 'the next id to reserve; NULL: max has been reserved',
  `start` BIGINT UNSIGNED NOT NULL,
  `max` BIGINT UNSIGNED NOT NULL,
  `incarnation` BIGINT UNSIGNED NOT NULL,
  `epoch` BIGINT UNSIGNED NOT NULL,
  `format` TINYINT UNSIGNED NOT NULL,
  CHECK (`next` BETWEEN `start` AND `max`),
  CHECK (`start` <= `max` AND `incarnation` > 0 AND `format` = {FORMAT})
) ENGINE = InnoDB"
        )
    }

    /// The engine of the table, should there be one: of a view, NULL.
    pub(super) fn engine(&self) -> String {
        format!("SELECT ENGINE FROM information_schema.TABLES WHERE {}", self.named())
    }

    /// The columns, as in [`LAYOUT`], and which of them is the key.
    pub(super) fn columns(&self) -> String {
        format!(
            "SELECT COLUMN_NAME, CONCAT(DATA_TYPE, IF(COLUMN_TYPE LIKE '%unsigned%', ' unsigned', '')), COLUMN_KEY \
             FROM information_schema.COLUMNS WHERE {} ORDER BY ORDINAL_POSITION",
            self.named()
        )
    }

    fn named(&self) -> String {
        format!("TABLE_SCHEMA = CONVERT({} USING utf8) AND TABLE_NAME = '{}'", hex(&self.database), self.name)
    }

    pub(super) fn select(&self, name: &SequenceName) -> String {
        format!("{} WHERE `name` = {}", self.select_all(), hex(name))
    }

    /// The last state, even where other statements are answered by a replica or out of a snapshot: it is what
    /// the next write is decided by.
    pub(super) fn select_to_write(&self, name: &SequenceName) -> String {
        self.select(name) + " FOR UPDATE"
    }

    fn select_all(&self) -> String {
        format!("SELECT {COLUMNS} FROM {self}")
    }

    /// A page. Where it ended are the bytes of a name, which may be no UTF-8.
    pub(super) fn select_page(&self, page: &Page) -> Result<String> {
        let after = match &page.after {
            Some(after) => format!("`name` > {}", hex_bytes(&after.bytes()?)),
            None => format!("`name` >= {}", hex(&page.prefix)),
        };
        let end = page.end().map(|end| format!(" AND `name` < {}", hex(&end))).unwrap_or_default();
        let select = self.select_all();
        Ok(format!("{select} WHERE {after}{end} ORDER BY `name` LIMIT {}", page.rows()))
    }

    /// Takes `count` ids if there is room for them, and says in `LAST_INSERT_ID` which is the first.
    pub(super) fn advance(&self, request: &Reserve, known: Known, (low, high): (u64, u64)) -> String {
        format!(
            "{} AND `next` >= {low} AND `next` <= {high} AND {}",
            self.advance_by(request.count, &request.name),
            known.unchanged()
        )
    }

    /// The same for whatever is stored: the first of the ids is `floor` or more, the last `ceiling` or less.
    pub(super) fn advance_any(&self, request: &Reserve, floor: u64) -> Option<String> {
        let (low, high) = (floor.max(1), request.ceiling.checked_sub(request.count.max(1) - 1)?);
        let update = self.advance_by(request.count, &request.name);
        // As decimals: an unsigned subtraction can fail, and what it is depends on `sql_mode`.
        let left = "CAST(`max` AS DECIMAL(20)) - CAST(`next` AS DECIMAL(20))";
        let whole = format!("`next` >= `start` AND `incarnation` > 0 AND `format` = {FORMAT}");
        Some(format!(
            "{update} AND `next` >= {low} AND `next` <= {high} AND {left} >= {} AND {whole}",
            request.count
        ))
    }

    fn advance_by(&self, count: u64, name: &SequenceName) -> String {
        format!("UPDATE {self} SET `next` = LAST_INSERT_ID(`next`) + {count} WHERE `name` = {}", hex(name))
    }

    /// Writes `after`, if there still is what was `seen`. No rows are affected either
    /// way if the two are the same.
    pub(super) fn replace(&self, seen: &SequenceInfo, after: &SequenceInfo) -> String {
        format!(
            "UPDATE {self} SET `next` = {}, `max` = {}, `epoch` = {} WHERE `name` = {} AND `next` <=> {} AND {}",
            nullable(after.next),
            after.bounds.max(),
            after.identity.epoch,
            hex(&seen.name),
            nullable(seen.next),
            Known::of(seen).unchanged()
        )
    }

    pub(super) fn insert(&self, info: &SequenceInfo) -> String {
        let (bounds, identity) = (info.bounds, info.identity);
        format!(
            "INSERT INTO {self} ({COLUMNS}) VALUES ({}, {}, {}, {}, {}, {}, {FORMAT})",
            hex(&info.name),
            nullable(info.next),
            bounds.start(),
            bounds.max(),
            identity.incarnation,
            identity.epoch
        )
    }

    pub(super) fn delete(&self, name: &SequenceName) -> String {
        format!("DELETE FROM {self} WHERE `name` = {}", hex(name))
    }

    /// Moves `next` back to the start of the rest, if nothing was reserved after it.
    pub(super) fn give_back(&self, back: &GiveBack) -> String {
        let (rest, identity) = (back.rest, back.identity);
        let start = rest.start();
        let last = u64::try_from(rest.end() - 1).unwrap_or(u64::MAX);
        let reached = match u64::try_from(rest.end()) {
            Ok(end) => format!("(`next` = {end} OR (`next` IS NULL AND `max` = {last}))"),
            Err(_) => format!("`next` IS NULL AND `max` = {last}"),
        };
        format!(
            "UPDATE {self} SET `next` = {start} WHERE `name` = {} AND {reached} AND `start` <= {start} AND \
             `incarnation` = {} AND `epoch` = {} AND `format` = {FORMAT}",
            hex(&back.name),
            identity.incarnation,
            identity.epoch
        )
    }

    /// A row as a sequence, or what is wrong with it.
    pub(super) fn decode(&self, row: Row) -> Result<SequenceInfo> {
        let values = row.unwrap();
        let name = text(values.first());
        decode(&values).map_err(|fault| {
            let kind = if fault == LATER { ErrorKind::Unsupported } else { ErrorKind::StoreViolation };
            Error::new(
                kind,
                format!("the row {name:?} of `{}` {fault}; nothing is reserved from it", self.name),
            )
        })
    }
}

/// As SQL names it.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.database.is_empty() {
            write!(f, "`{}`.", self.database.replace('`', "``"))?;
        }
        write!(f, "`{}`", self.name)
    }
}

pub(super) fn fresh(name: &SequenceName, bounds: Bounds) -> SequenceInfo {
    SequenceInfo { name: name.clone(), next: Some(bounds.start()), bounds, identity: Identity::fresh() }
}

const LATER: &str = "is in another format, perhaps a later version's";

fn decode(values: &[Value]) -> Result<SequenceInfo, String> {
    let value = |column: usize| values.get(column).cloned().unwrap_or(Value::NULL);
    let integer = |column: usize, what: &str| {
        u64::from_value_opt(value(column)).map_err(|_| format!("has no whole number for {what}"))
    };
    if integer(6, "format")? != FORMAT {
        return Err(LATER.to_owned());
    }
    let Value::Bytes(name) = value(0) else { return Err("has no bytes for its name".to_owned()) };
    let name = String::from_utf8(name).map_err(|_| "has a name that is not UTF-8".to_owned())?;
    let name = SequenceName::new(&name).map_err(|error| format!("has no valid name: {error}"))?;
    let (start, max) = (integer(2, "start")?, integer(3, "max")?);
    let bounds = Bounds::new(start, max).map_err(|_| format!("has bounds {start}..={max} without ids"))?;
    let next = match value(1) {
        Value::NULL => None,
        _ => Some(integer(1, "next")?),
    };
    if let Some(next) = next.filter(|next| !(start..=max).contains(next)) {
        return Err(format!("has next {next} outside its bounds {start}..={max}"));
    }
    let identity = Identity { incarnation: integer(4, "incarnation")?, epoch: integer(5, "epoch")? };
    if identity.incarnation == 0 {
        return Err("has incarnation 0, which never is".to_owned());
    }
    Ok(SequenceInfo { name, next, bounds, identity })
}

/// Text as it is, or whatever else there is, legibly.
/// The name of a row, in its bytes.
pub(super) fn name(row: &Row) -> Vec<u8> {
    match row.as_ref(0) {
        Some(Value::Bytes(bytes)) => bytes.clone(),
        _ => Vec::new(),
    }
}

fn text(value: Option<&Value>) -> String {
    match value {
        Some(Value::Bytes(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
        other => format!("{other:?}"),
    }
}

fn nullable(value: Option<u64>) -> String {
    value.map_or_else(|| "NULL".to_owned(), |value| value.to_string())
}

fn hex(text: &str) -> String {
    hex_bytes(text.as_bytes())
}

fn hex_bytes(text: &[u8]) -> String {
    let mut hex = String::with_capacity(3 + 2 * text.len());
    hex.push_str("x'");
    for byte in text {
        let _ = write!(hex, "{byte:02x}");
    }
    hex.push('\'');
    hex
}
