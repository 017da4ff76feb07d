//! A statement as a diesel query, and its rows.

use diesel::deserialize::{self, QueryableByName};
use diesel::pg::Pg;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::result::QueryResult;
use diesel::row::NamedRow;
use diesel::sql_types::{Array, BigInt, Binary, Nullable, Text, Untyped};
use idmill_sql::postgres::parts;
use idmill_sql::{Answer, Fault, Row, Statement, Value};

const NULL: &Option<String> = &None;

/// A statement whose placeholders diesel renumbers in their order in the text. A value with two
/// placeholders is sent twice. In return, diesel can keep the statement prepared, which it never
/// does with raw SQL text.
#[derive(Debug)]
pub(super) struct Sent<'a> {
    parts: Vec<(&'a str, Option<&'a Value>)>,
    again: bool,
}

impl<'a> Sent<'a> {
    /// # Errors
    /// [`Fault::Refused`] for a text that PostgreSQL cannot store.
    pub(super) fn new(statement: &'a Statement<'_>) -> Result<Self, Fault> {
        Ok(Self { parts: parts(statement)?, again: statement.again })
    }
}

impl QueryFragment<Pg> for Sent<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        if !self.again {
            out.unsafe_to_cache_prepared();
        }
        self.parts.iter().try_for_each(|(text, value)| {
            out.push_sql(text);
            value.map_or(Ok(()), |value| push(&mut out, value))
        })
    }
}

/// Binds a value with its type. The statement ignores the lock timeout: that of the caller's transaction
/// applies.
fn push<'b>(out: &mut AstPass<'_, 'b, Pg>, value: &'b Value) -> QueryResult<()> {
    match value {
        Value::Null => out.push_bind_param::<Nullable<Text>, _>(NULL),
        Value::Integer(integer) => out.push_bind_param::<BigInt, _>(integer),
        Value::Text(text) => out.push_bind_param::<Text, _>(text),
        Value::Bytes(bytes) => out.push_bind_param::<Binary, _>(bytes),
        Value::Texts(texts) => out.push_bind_param::<Array<Text>, _>(texts),
        Value::Timeout => out.push_bind_param::<Text, str>(""),
        _ => unreachable!("statements for PostgreSQL do not bind this value"),
    }
}

/// The query's id is its text.
impl QueryId for Sent<'_> {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

impl Query for Sent<'_> {
    type SqlType = Untyped;
}

impl<Connection> diesel::RunQueryDsl<Connection> for Sent<'_> {}

/// A row whose columns are all text.
#[derive(Debug)]
pub(super) struct Texts(Row);

impl QueryableByName<Pg> for Texts {
    fn build<'a>(row: &impl NamedRow<'a, Pg>) -> deserialize::Result<Self> {
        let text = |column| row.get_value::<Nullable<Text>, Option<String>, usize>(column);
        let columns = (0..row.field_count()).map(|column| Ok(text(column)?.map_or(Value::Null, Value::Text)));
        Ok(Self(Row::new(columns.collect::<deserialize::Result<_>>()?)))
    }
}

pub(super) fn answer(rows: Vec<Texts>) -> Answer {
    Answer::rows(rows.into_iter().map(|row| row.0).collect())
}

#[cfg(test)]
mod tests {
    use diesel::debug_query;
    use idmill::ErrorKind;

    use super::*;

    fn shown(sql: &str, values: impl Into<Vec<Value>>) -> String {
        let statement = Statement::read(sql, values);
        debug_query::<Pg, _>(&Sent::new(&statement).unwrap()).to_string()
    }

    #[test]
    fn values_take_their_places_in_the_order_of_the_text() {
        assert_eq!(shown("$2, $1, $2", ["a".into(), 7.into()]), "$1, $2, $3 -- binds: [7, \"a\", 7]");
        let ten: Vec<Value> = (0..10).map(|number| Value::from(number.to_string())).collect();
        assert_eq!(shown("$10,$1", ten), "$1,$2 -- binds: [\"9\", \"0\"]");
        let values = [Value::Null, Value::Timeout, Value::Texts(vec!["a".into()]), Value::Bytes(vec![1])];
        assert_eq!(shown("$1 $2 $3 $4", values), "$1 $2 $3 $4 -- binds: [None, \"\", [\"a\"], [1]]");
    }

    #[test]
    fn quoted_placeholders_are_ignored() {
        for quoted in ["'$1'", "\"a$1\"", "'it''s $1'", "\"b\"\"$1\""] {
            let sql = format!("SELECT {quoted}, $1");
            assert_eq!(shown(&sql, ["x".into()]), format!("{sql} -- binds: [\"x\"]"));
        }
    }

    #[test]
    fn a_nul_would_end_the_transaction_and_is_refused() {
        let statement = Statement::read("$1", ["a\0b".into()]);
        let fault = Sent::new(&statement).unwrap_err();
        assert!(matches!(fault, Fault::Refused(error) if error.kind() == ErrorKind::InvalidInput));
    }
}
