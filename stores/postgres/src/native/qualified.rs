//! Detects names with a schema prefix, as `nextval` accepts them: in a store, the schema is an
//! option.

use idmill::{Error, Result, SequenceName};
use idmill_sql::postgres::failed;
use idmill_sql::{Asked, Executor, Statement};

/// Finds the sequence of this qualified name. Parameter: the name as written in SQL.
const LOOK: &str = "SELECT n.nspname::text, c.relname::text FROM pg_catalog.pg_class c \
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
    WHERE c.relkind = 'S' AND n.nspname || '.' || c.relname IN (replace($1, '\"', ''), lower($1))";

/// Rejects a new sequence whose name is the qualified name of an existing one.
///
/// # Errors
/// [`InvalidInput`](idmill::ErrorKind::InvalidInput), with the name and the option for the existing
/// sequence.
pub(super) async fn must_not_be<E: Executor>(executor: &mut E, name: &SequenceName) -> Result<()> {
    if !name.contains('.') {
        return Ok(());
    }
    let answer = executor.execute(Statement::read(LOOK, [name.as_str().into()])).await;
    let rows = answer.map_err(|fault| failed(fault, Asked::Read))?.rows;
    let Some((schema, sequence)) = rows.first().and_then(|row| Some((row.text(0)?, row.text(1)?))) else {
        return Ok(());
    };
    let message = format!(
        "the sequence {sequence:?} is in the schema {schema:?}; name it {sequence}, with `schema={schema}` \
         in the store's URL"
    );
    Err(Error::invalid(message))
}
