//! The table and its SQL.
//!
//! Statements are plain text with all values included, so each takes one round trip. The connection's state
//! matters only for an unqualified table, which is in the current database. Names are written as hexadecimal
//! and numbers as digits, so that no `sql_mode` changes their meaning. Only the usual statement of reserves
//! has placeholders, which [`whole`] replaces by the values. A long-lived connection can keep it prepared:
//! parsing takes the server as long as executing.
//!
//! Names are bytes (`VARBINARY`): every collation that MySQL and MariaDB share treats some
//! different names as equal.

use std::borrow::Cow;
use std::fmt::{self, Write};

use idmill::store::{Bounds, GiveBack, Identity, Page, Reserve, SequenceInfo};
use idmill::{Result, SequenceName};
use idmill_kit::history::Failover;
use idmill_kit::options::{Kind, text};
use idmill_kit::{paging, refuse};

use super::history::{HERE, in_transaction};
use crate::column::{is_plain, no_name};
use crate::history::History;
use crate::rows::FORMAT;
use crate::{Statement, Value};

/// The option for the name of a table.
pub const NAME: Kind = text("NAME", RULE, is_name);
const RULE: &str = "up to 64 ASCII letters, digits and _, not beginning with a digit";
const COLUMNS: &str = "`name`, `next`, `start`, `max`, `incarnation`, `epoch`, `format`";
/// The column of the history.
pub(super) const HISTORY: &str = "`history`";
/// The last column, which tables of earlier versions lack.
const ADDED: &str = "`history` VARBINARY(100) NULL COMMENT 'which server wrote this last'";
/// The columns in `information_schema.COLUMNS`, as far as MySQL and MariaDB agree.
pub(super) const LAYOUT: &str = "name varbinary, next bigint unsigned, start bigint unsigned, max bigint unsigned, \
                                 incarnation bigint unsigned, epoch bigint unsigned, format tinyint unsigned, \
                                 history varbinary";
/// The columns of an earlier version.
pub(super) const EARLIER_LAYOUT: &str = "name varbinary, next bigint unsigned, start bigint unsigned, max bigint unsigned, \
                                         incarnation bigint unsigned, epoch bigint unsigned, format tinyint unsigned";
/// The columns of the table of the records.
pub(super) const RECORDS_LAYOUT: &str = "name varbinary, record varbinary";
/// MySQL's limit for names.
pub(super) const LONGEST_NAME: usize = 64;

/// The properties of a sequence that stay the same over reserves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fixed {
    pub(super) bounds: Bounds,
    pub(super) identity: Identity,
}

impl Fixed {
    pub(super) fn of(info: &SequenceInfo) -> Self {
        Self { bounds: info.bounds, identity: info.identity }
    }

    /// Returns the range of `next` in which [`Table::advance`] works: all requested ids fit, and at least one
    /// is left. `None` if there is no such range.
    ///
    /// The range excludes 0: in an answer, a `LAST_INSERT_ID` of 0 means that there is no id.
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

/// A table. A [qualified](Self::within) table stays the same if the connection changes to another database.
/// Its name was checked, since it becomes part of the SQL.
///
/// ```
/// let table = idmill_sql::mysql::Table::new("numbers")?;
/// assert!(table.ddl().starts_with("CREATE TABLE IF NOT EXISTS `numbers` ("));
/// # Ok::<(), idmill::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Empty for the database of the connection.
    database: Box<str>,
    name: Box<str>,
}

impl Table {
    /// A table of another name, in the same database.
    pub(super) fn beside(&self, name: &str) -> Self {
        Self { database: self.database.clone(), name: name.into() }
    }

    /// Names a table in the connection's current database. The name is up to 64 ASCII letters, digits and
    /// `_`, and does not begin with a digit.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for another name.
    pub fn new(name: &str) -> Result<Self> {
        let table = Self { database: "".into(), name: name.into() };
        if is_name(name) { Ok(table) } else { Err(no_name("table", name, RULE)) }
    }

    /// Qualifies the table by this database.
    #[must_use]
    pub fn within(self, database: &str) -> Self {
        Self { database: database.into(), ..self }
    }

    /// Returns the name without the database.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the statement that creates the table unless it exists. A crash leaves no partial table, since
    /// the statement is a single one.
    pub fn ddl(&self) -> String {
        format!(
            "CREATE TABLE IF NOT EXISTS {self} (
  `name` VARBINARY(200) NOT NULL PRIMARY KEY COMMENT 'UTF-8',
  `next` BIGINT UNSIGNED NULL COMMENT 'the next id to reserve; NULL: max has been reserved',
  `start` BIGINT UNSIGNED NOT NULL,
  `max` BIGINT UNSIGNED NOT NULL,
  `incarnation` BIGINT UNSIGNED NOT NULL,
  `epoch` BIGINT UNSIGNED NOT NULL,
  `format` TINYINT UNSIGNED NOT NULL,
  {ADDED},
  CHECK (`next` BETWEEN `start` AND `max`),
  CHECK (`start` <= `max` AND `incarnation` > 0 AND `format` = {FORMAT})
) ENGINE = InnoDB"
        )
    }

    /// The statement that upgrades a table of an earlier version.
    pub(super) fn altered(&self) -> String {
        format!("ALTER TABLE {self} ADD COLUMN {ADDED}")
    }

    /// The query for the table's engine. A view has NULL; there are no rows if there is no table.
    pub(super) fn engine(&self) -> String {
        format!("SELECT ENGINE FROM information_schema.TABLES WHERE {}", self.named())
    }

    /// The query for the columns, as in [`LAYOUT`], and for the key.
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

    /// The query for the last state of a row, as the basis of a write: FOR UPDATE reads it even if
    /// a replica or a snapshot answers other reads. The columns of the sequence are followed by the
    /// server that wrote the row, and the current server.
    pub(super) fn select_to_write(&self, name: &SequenceName) -> String {
        let from = format!("{self} WHERE `name` = {} FOR UPDATE", hex(name));
        format!("SELECT {COLUMNS}, `history`, {HERE} FROM {from}")
    }

    /// The query for up to `limit` rows that another server wrote last: their names, and both
    /// servers.
    pub(super) fn select_moved(&self, limit: usize) -> String {
        format!(
            "SELECT `name`, `history`, {HERE} FROM {self} WHERE `history` <> {HERE} ORDER BY `name` LIMIT {limit}"
        )
    }

    fn select_all(&self) -> String {
        format!("SELECT {COLUMNS} FROM {self}")
    }

    /// The query for a page. The cursor is the bytes of a name, which may be invalid UTF-8.
    pub(super) fn select_page(&self, page: &Page) -> Result<String> {
        Ok(self.select_all() + &within(page)?)
    }

    /// Takes `count` ids if they fit, and passes the first to `LAST_INSERT_ID`.
    pub(super) fn advance(
        &self,
        request: &Reserve,
        known: Fixed,
        (low, high): (u64, u64),
        history: History,
    ) -> Statement<'static> {
        let sql = format!(
            "UPDATE {self} SET `next` = LAST_INSERT_ID(`next`) + ?{} WHERE `name` = ? AND `next` >= ? AND `next` <= ? \
             AND `start` = ? AND `max` = ? AND `incarnation` = ? AND `epoch` = ? AND `format` = {FORMAT}{}",
            history.sets(),
            history.writable() + &history.holds(HISTORY)
        );
        let (bounds, identity) = (known.bounds, known.identity);
        let numbers = [low, high, bounds.start(), bounds.max(), identity.incarnation, identity.epoch];
        let mut values = vec![Value::Unsigned(request.count), Value::Bytes(request.name.as_bytes().to_vec())];
        values.extend(numbers.map(Value::Unsigned));
        Statement::write(sql, values).often()
    }

    /// Like [`advance`](Self::advance), with any bounds and identity: the first id is at least `floor`, the
    /// last at most `ceiling`.
    pub(super) fn advance_any(&self, request: &Reserve, floor: u64, history: History) -> Option<String> {
        let high = request.ceiling.checked_sub(request.count.max(1) - 1)?;
        Some(self.advance_within(&hex(&request.name), request.count, (floor.max(1), high), history))
    }

    /// Returns the statement that draws `count` ids inside a transaction of any driver. Its parameter is the
    /// name. It leaves at least one id of the sequence.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for a count of 0.
    pub fn published(&self, count: u64) -> Result<String> {
        let Some(more) = count.checked_sub(1) else {
            return Err(refuse("the number of ids is 0; draw at least 1"));
        };
        let history = in_transaction(Failover::default());
        Ok(self.advance_within("?", count, (1, u64::MAX - more), history))
    }

    fn advance_within(&self, name: &str, count: u64, (low, high): (u64, u64), history: History) -> String {
        let sets = history.sets();
        let update = format!(
            "UPDATE {self} SET `next` = LAST_INSERT_ID(`next`) + {count}{sets} WHERE `name` = {name}"
        );
        let holds = history.writable() + &history.holds(HISTORY);
        // Subtract as decimals: an unsigned subtraction can fail, and its result depends on `sql_mode`.
        let left = "CAST(`max` AS DECIMAL(20)) - CAST(`next` AS DECIMAL(20))";
        let whole = format!("`next` >= `start` AND `incarnation` > 0 AND `format` = {FORMAT}");
        format!("{update} AND `next` >= {low} AND `next` <= {high} AND {left} >= {count} AND {whole}{holds}")
    }

    /// Writes `after` if the row is still as in `seen`. If `after` equals `seen`, no rows count as changed,
    /// unless the assignments in `besides` change the row.
    pub(super) fn replace(
        &self,
        seen: &SequenceInfo,
        after: &SequenceInfo,
        besides: &str,
        history: History,
    ) -> String {
        format!(
            "UPDATE {self} SET `next` = {}, `max` = {}, `epoch` = {}{besides} WHERE `name` = {} AND `next` <=> {} AND {}{}",
            nullable(after.next),
            after.bounds.max(),
            after.identity.epoch,
            hex(&seen.name),
            nullable(seen.next),
            Fixed::of(seen).unchanged(),
            history.writable()
        )
    }

    /// Moves a row of another history to the current one, if the row and its history are still as
    /// they were read.
    pub(super) fn adopt(
        &self,
        seen: &SequenceInfo,
        after: &SequenceInfo,
        was: &str,
        history: History,
    ) -> String {
        format!("{} AND `history` = {}", self.replace(seen, after, &history.sets(), history), hex(was))
    }

    pub(super) fn insert(&self, info: &SequenceInfo, history: History) -> String {
        let (bounds, identity) = (info.bounds, info.identity);
        let values = format!(
            "{}, {}, {}, {}, {}, {}, {FORMAT}, {}",
            hex(&info.name),
            nullable(info.next),
            bounds.start(),
            bounds.max(),
            identity.incarnation,
            identity.epoch,
            history.value()
        );
        format!("INSERT INTO {self} ({COLUMNS}, `history`) {}", history.values(&values))
    }

    /// Removes a row, if it has the expected identity.
    pub(super) fn delete(&self, name: &SequenceName, expected: Option<Identity>, history: History) -> String {
        let has_identity = expected.map_or_else(String::new, |Identity { incarnation, epoch }| {
            format!(" AND `incarnation` = {incarnation} AND `epoch` = {epoch}")
        });
        format!("DELETE FROM {self} WHERE `name` = {}{has_identity}{}", hex(name), history.writable())
    }

    /// Moves `next` back to the start of the rest, if nothing was reserved after it and no other
    /// server wrote the row.
    pub(super) fn give_back(&self, back: &GiveBack, history: History) -> String {
        let (rest, identity) = (back.rest, back.identity);
        let start = rest.start();
        let last = u64::try_from(rest.end() - 1).unwrap_or(u64::MAX);
        let reached = match u64::try_from(rest.end()) {
            Ok(end) => format!("(`next` = {end} OR (`next` IS NULL AND `max` = {last}))"),
            Err(_) => format!("`next` IS NULL AND `max` = {last}"),
        };
        format!(
            "UPDATE {self} SET `next` = {start} WHERE `name` = {} AND {reached} AND `start` <= {start} AND \
             `incarnation` = {} AND `epoch` = {} AND `format` = {FORMAT}{}",
            hex(&back.name),
            identity.incarnation,
            identity.epoch,
            history.writable() + &history.holds(HISTORY)
        )
    }
}

/// Formats the table as SQL names it.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.database.is_empty() {
            write!(f, "`{}`.", self.database.replace('`', "``"))?;
        }
        write!(f, "`{}`", self.name)
    }
}

/// Returns the text of a statement, with its values in place of the placeholders. The quoted name of a
/// database may contain `?`.
pub fn whole<'a>(statement: &'a Statement<'_>) -> Cow<'a, str> {
    if statement.values.is_empty() {
        return Cow::Borrowed(&statement.sql);
    }
    let mut quoted = false;
    let mut pieces = statement.sql.split(|next| {
        quoted ^= next == '`';
        next == '?' && !quoted
    });
    let mut sql = pieces.next().unwrap_or_default().to_owned();
    for (value, piece) in statement.values.iter().zip(pieces) {
        match value {
            Value::Unsigned(number) => sql.push_str(&number.to_string()),
            Value::Bytes(bytes) => sql.push_str(&hex_bytes(bytes)),
            other => unreachable!("statements for MySQL do not bind the value {other:?}"),
        }
        sql.push_str(piece);
    }
    Cow::Owned(sql)
}

/// The conditions and the order of a page.
pub(super) fn within(page: &Page) -> Result<String> {
    let after = match &page.after {
        Some(after) => format!("`name` > {}", hex_bytes(&paging::bytes(after)?)),
        None => format!("`name` >= {}", hex(&page.prefix)),
    };
    let end = paging::end(&page.prefix).map(|end| format!(" AND `name` < {}", hex(&end))).unwrap_or_default();
    Ok(format!(" WHERE {after}{end} ORDER BY `name` LIMIT {}", paging::limit(page)))
}

fn nullable(value: Option<u64>) -> String {
    value.map_or_else(|| "NULL".to_owned(), |value| value.to_string())
}

pub(super) fn hex(text: &str) -> String {
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

fn is_name(name: &str) -> bool {
    is_plain(name, LONGEST_NAME)
}

#[cfg(test)]
mod tests {
    use super::*;
    use idmill::ErrorKind;

    fn named(name: &str) -> SequenceName {
        SequenceName::new(name).unwrap()
    }

    #[test]
    fn a_name_that_could_be_anything_else_is_refused() {
        let longest = "a".repeat(64);
        for name in ["idmill_sequences", "_", "T1", &longest] {
            assert_eq!(Table::new(name).unwrap().to_string(), format!("`{name}`"));
        }
        let longer = "a".repeat(65);
        for name in ["", "1t", "a b", "a`b", "a.b", "a-b", "ä", "a\0", "$a", &longer] {
            let error = Table::new(name).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{name}");
            assert!(error.to_string().contains("is not a valid table"), "{error}");
        }
    }

    #[test]
    fn a_database_is_quoted_whatever_its_name() {
        let table = Table::new("t").unwrap().within("else`where");
        assert_eq!((table.to_string().as_str(), table.name()), ("`else``where`.`t`", "t"));
        assert!(
            table
                .engine()
                .ends_with("TABLE_SCHEMA = CONVERT(x'656c7365607768657265' USING utf8) AND TABLE_NAME = 't'")
        );
    }

    #[test]
    fn question_mark_in_a_database_is_no_placeholder() {
        let table = Table::new("t").unwrap().within("what?`?");
        let sql = format!("UPDATE {table} SET `next` = ? WHERE `name` = ?");
        let statement = Statement::write(sql, [Value::Unsigned(7), Value::Bytes(b"s".to_vec())]);
        assert_eq!(whole(&statement), "UPDATE `what?``?`.`t` SET `next` = 7 WHERE `name` = x'73'");
    }

    #[test]
    fn page_without_prefix_has_no_end_and_resumes_by_bytes() {
        let table = Table::new("t").unwrap();
        let all = table.select_page(&Page::default().limit(2)).unwrap();
        assert!(all.ends_with(" FROM `t` WHERE `name` >= x'' ORDER BY `name` LIMIT 2"), "{all}");
        let after = Page::of("b").after(paging::cursor(b"b\xff"));
        let after = table.select_page(&after.limit(1)).unwrap();
        assert!(
            after.ends_with(" WHERE `name` > x'62ff' AND `name` < x'63' ORDER BY `name` LIMIT 1"),
            "{after}"
        );
        let foreign = Page::default().after(idmill::store::Cursor::new("x"));
        assert_eq!(table.select_page(&foreign).unwrap_err().kind(), ErrorKind::InvalidInput);
    }

    #[test]
    fn row_fits_only_if_all_ids_fit_and_none_is_0() {
        let known = |start, max| Fixed::of(&SequenceInfo::new(named("s"), Bounds::new(start, max).unwrap()));
        let ask = |count, ceiling| Reserve::new(named("s"), count).ceiling(ceiling);
        for (start, max, count, ceiling, room) in [
            (1, 100, 10, u64::MAX, Some((1, 90))),
            (0, 100, 10, u64::MAX, Some((1, 90))),
            (1, 100, 10, 50, Some((1, 41))),
            (1, 100, 100, u64::MAX, None),
            (1, 100, 99, u64::MAX, Some((1, 1))),
            (0, u64::MAX, u64::MAX, u64::MAX, None),
            (0, u64::MAX, u64::MAX - 1, u64::MAX, Some((1, 1))),
            (1, 100, 10, 5, None),
            (1, 100, 0, 5, Some((1, 5))),
        ] {
            assert_eq!(
                known(start, max).room(&ask(count, ceiling)),
                room,
                "{start}..={max}: {count}, {ceiling}"
            );
        }
    }
}
