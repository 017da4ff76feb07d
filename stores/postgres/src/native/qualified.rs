//! Names as `nextval` writes them, with the schema before the name: in a store, the schema is an option.

use idmill::{Error, Result, SequenceName};
use idmill_sql::postgres::failed;
use idmill_sql::{Asked, Executor, Statement};

/// The sequence of this name with its schema. Parameter: the name, as it is written in SQL.
const LOOK: &str = "SELECT n.nspname::text, c.relname::text FROM pg_catalog.pg_class c \
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
    WHERE c.relkind = 'S' AND n.nspname || '.' || c.relname IN (replace($1, '\"', ''), lower($1))";

/// Refuses to create a sequence under the name that another has with its schema.
///
/// # Errors
/// [`InvalidInput`](idmill::ErrorKind::InvalidInput), with the name and the option that lead to the other.
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
        "there is a sequence {sequence:?} in the schema {schema:?}: name it {sequence}, with schema={schema} in the store's URL"
    );
    Err(Error::invalid(message))
}
