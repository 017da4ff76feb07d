//! Statements of reserves, prepared by SQL: planning one takes as long as the rest of its
//! execution.
//!
//! Prepared statements of the protocol do not work: drivers number them, and behind a pooler the
//! next statement may run in another session, where that number is another client's statement. A
//! name derived from the text stands for this text in every session, or is undefined. A statement
//! that fails with [`PREPARED_IS_MISSING`] changed nothing, and is sent unprepared from then on.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::history::SYSTEM;
use crate::{Statement, Value};

/// `invalid_sql_statement_name`.
pub const PREPARED_IS_MISSING: &str = "26000";
/// Returns the session's cluster. Run it in the transaction that prepares a statement.
pub const SYSTEM_IDENTIFIER: &str = "SELECT system_identifier::text FROM pg_control_system()";

/// A statement that a session keeps prepared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepared {
    name: String,
    sql: String,
    types: String,
}

impl Prepared {
    /// Returns `None` for a statement that is not kept prepared. Otherwise, returns whether it
    /// reads the cluster's identifier, which does not change in a session: see
    /// [`SYSTEM_IDENTIFIER`].
    pub fn wants(statement: &Statement<'_>) -> Option<bool> {
        let all = statement.often && statement.values.iter().all(|value| of_type(value).is_some());
        all.then(|| statement.sql.contains(SYSTEM))
    }

    /// Creates the statement for sessions of this cluster. The text contains the cluster's
    /// identifier, so its name is undefined in sessions of other clusters.
    pub fn new(statement: &Statement<'_>, cluster: Option<&str>) -> Self {
        let types: Vec<_> = statement.values.iter().filter_map(of_type).collect();
        let cluster = cluster.map(|cluster| literal(cluster) + "::text");
        let sql = cluster.map_or_else(|| statement.sql.to_string(), |it| statement.sql.replace(SYSTEM, &it));
        let (mut hash, types) = (DefaultHasher::new(), types.join(", "));
        (&sql, &types).hash(&mut hash);
        Self { name: format!("idmill_{:016x}", hash.finish()), sql, types }
    }

    /// Returns the `PREPARE` statement.
    pub fn prepare(&self) -> String {
        format!("PREPARE {} ({}) AS {}", self.name, self.types, self.sql)
    }

    /// Returns the `EXECUTE` statement with these values and this lock timeout.
    pub fn execute(&self, values: &[Value], timeout: &str) -> String {
        let mut sql = format!("EXECUTE {}", self.name);
        for (place, value) in values.iter().enumerate() {
            sql.push_str(if place == 0 { " (" } else { ", " });
            push(&mut sql, value, timeout);
        }
        sql + if values.is_empty() { "" } else { ")" }
    }
}

/// Returns `None` for types that no statement of reserves has.
fn of_type(value: &Value) -> Option<&'static str> {
    match value {
        Value::Text(_) | Value::Timeout => Some("text"),
        Value::Texts(_) => Some("text[]"),
        _ => None,
    }
}

fn push(sql: &mut String, value: &Value, timeout: &str) {
    match value {
        Value::Text(text) => sql.push_str(&literal(text)),
        Value::Texts(texts) => {
            let texts: Vec<_> = texts.iter().map(|text| literal(text)).collect();
            sql.extend(["ARRAY[", &texts.join(", "), "]::text[]"]);
        }
        Value::Timeout => sql.push_str(&literal(timeout)),
        other => unreachable!("reserves do not bind the value {other:?}"),
    }
}

/// Returns a text as an SQL literal. With `E`, its meaning does not depend on
/// `standard_conforming_strings`.
pub(super) fn literal(text: &str) -> String {
    format!("E'{}'", text.replace('\'', "''").replace('\\', "\\\\"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reserve(values: impl Into<Vec<Value>>) -> Statement<'static> {
        Statement::write(format!("UPDATE t SET a = 'cluster ' || {SYSTEM}"), values).often()
    }

    #[test]
    fn prepared_values_are_complete_literals() {
        let texts = Value::Texts(vec!["a'".to_owned(), "b\\".to_owned()]);
        let statement = reserve(["x'); DROP".into(), texts, Value::Timeout]);
        let prepared = Prepared::new(&statement, Some("7"));
        let sql = "PREPARE NAME (text, text[], text) AS UPDATE t SET a = 'cluster ' || E'7'::text";
        assert_eq!(prepared.prepare(), sql.replace("NAME", &prepared.name));
        let sql = r"EXECUTE NAME (E'x''); DROP', ARRAY[E'a''', E'b\\']::text[], E'100ms')";
        assert_eq!(prepared.execute(&statement.values, "100ms"), sql.replace("NAME", &prepared.name));
        assert_eq!(prepared.execute(&[], ""), format!("EXECUTE {}", prepared.name));
    }

    /// A known name must stand for this statement and this cluster.
    #[test]
    fn names_are_those_of_the_text() {
        let name = |values: &[Value], cluster| Prepared::new(&reserve(values), Some(cluster)).name;
        let (one, two) = (["a".into()], ["a".into(), "b".into()]);
        assert_eq!(name(&one, "7"), name(&["b".into()], "7"));
        assert!(name(&one, "7") != name(&one, "8") && name(&one, "7") != name(&two, "7"));
    }

    #[test]
    fn only_reserves_stay_prepared() {
        assert_eq!(Prepared::wants(&reserve(["a".into()])), Some(true));
        assert_eq!(Prepared::wants(&Statement::write("UPDATE t", []).often()), Some(false));
        assert_eq!(Prepared::wants(&Statement::write("UPDATE t", [])), None);
        assert_eq!(Prepared::wants(&reserve([Value::Null])), None);
    }
}
