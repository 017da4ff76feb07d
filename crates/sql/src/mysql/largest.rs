//! The largest id in a column of a user's table.

use std::time::Duration;

use idmill::Result;
use idmill_kit::{ColumnPath, Largest};

use super::classify::failed;
use super::history::UNKNOWN_VARIABLE;
use super::run::{read, text, try_read, unsigned};
use super::table::hex;
use crate::column::{largest_sql, of_digits, of_precision};
use crate::{Asked, Executor};

/// Returns the largest id in a column. If the path has no schema, the table is in the database of the
/// connection.
///
/// # Errors
/// [`NotFound`](idmill::ErrorKind::NotFound) if there is no such column;
/// [`Unsupported`](idmill::ErrorKind::Unsupported) if it holds no integers; the errors of reading.
pub async fn largest<E: Executor>(executor: &mut E, path: &ColumnPath) -> Result<Largest> {
    let (table, column) = path.table_and_column(quoted)?;
    let rows = read(executor, &look(path)).await?;
    let row = rows.first().ok_or_else(|| path.missing("table"))?;
    let of_type = text(row, 0).ok_or_else(|| path.missing("column"))?;
    let is_unsigned = text(row, 1).is_some_and(|whole| whole.contains("unsigned"));
    let digits = unsigned(row, 2).and_then(|digits| digits.try_into().ok());
    let holds = holds(of_type, is_unsigned, digits).ok_or_else(|| path.not_of_integers(of_type))?;
    let hidden_by = text(row, 3).filter(|kind| kind.contains("VIEW"));
    let default =
        text(row, 4).filter(|default| default.contains("auto_increment") || default.contains("nextval("));
    let of_type = if is_unsigned { format!("{of_type} unsigned") } else { of_type.to_owned() };
    let sql = largest_sql(&table, &column, |number| format!("CAST({number} AS CHAR)"));
    let rows = read(executor, &sql).await?;
    let digits = [0, 1].map(|column| rows.first().and_then(|row| text(row, column)));
    let largest = of_digits(path, digits, &of_type, holds)?;
    let hidden_by = hidden_by.map(|_| "it is a view, which may hide rows of the underlying table".to_owned());
    Ok(largest.hidden_by(hidden_by).default_value(default.map(str::to_owned)))
}

/// Makes the server end each read of this connection before `limit`: otherwise the read does not stop when
/// the client stops waiting. MariaDB and MySQL have different variables for this; MariaDB's is in seconds.
///
/// # Errors
/// The errors of the executor.
pub async fn end_reads_after<E: Executor>(executor: &mut E, limit: Duration) -> Result<()> {
    let limit = limit.mul_f64(0.9);
    let (seconds, millis) = (limit.as_secs_f64(), limit.as_millis().max(1));
    for set in [format!("max_statement_time = {seconds:.3}"), format!("max_execution_time = {millis}")] {
        match try_read(executor, &format!("SET SESSION {set}")).await {
            Err(fault) if fault.code() == Some(UNKNOWN_VARIABLE) => {}
            outcome => return outcome.map(drop).map_err(|fault| failed(fault, Asked::Read)),
        }
    }
    Ok(())
}

/// The query for the table and the type of the column.
fn look(path: &ColumnPath) -> String {
    let [table, column] = path
        .parts()
        .last_chunk()
        .map(|parts: &[String; 2]| parts.each_ref().map(|part| utf8(part)))
        .expect("a column has at least two parts");
    let schema = match path.parts() {
        [schema, _, _] => utf8(schema),
        _ => "DATABASE()".to_owned(),
    };
    format!(
        "SELECT c.DATA_TYPE, c.COLUMN_TYPE, c.NUMERIC_PRECISION - c.NUMERIC_SCALE, t.TABLE_TYPE, \
         COALESCE(NULLIF(c.EXTRA, ''), c.COLUMN_DEFAULT) \
         FROM information_schema.TABLES t LEFT JOIN information_schema.COLUMNS c \
         ON c.TABLE_SCHEMA = t.TABLE_SCHEMA AND c.TABLE_NAME = t.TABLE_NAME AND c.COLUMN_NAME = {column} \
         WHERE t.TABLE_SCHEMA = {schema} AND t.TABLE_NAME = {table}"
    )
}

fn utf8(text: &str) -> String {
    format!("CONVERT({} USING utf8)", hex(text))
}

/// The largest id that a type holds, `Some(None)` if any id fits; `None` for a type without
/// integers.
#[expect(clippy::option_option, reason = "`Some(None)` is a type without a limit, `None` an unknown type")]
fn holds(of_type: &str, unsigned: bool, digits: Option<u32>) -> Option<Option<u64>> {
    let bits = match of_type.to_ascii_lowercase().as_str() {
        "tinyint" => 8,
        "smallint" => 16,
        "mediumint" => 24,
        "int" => 32,
        "bigint" => 64,
        "decimal" => return Some(digits.and_then(of_precision)),
        _ => return None,
    };
    Some(Some(u64::MAX >> (64 - bits + u32::from(!unsigned))))
}

fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_written_so_that_no_text_ends_them() {
        let path: ColumnPath = r#""sh`op"."or'ders".id"#.parse().unwrap();
        assert_eq!(path.table_and_column(quoted).unwrap().0, "`sh``op`.`or'ders`");
        let sql = look(&path);
        assert!(!sql.contains("or'ders") && sql.contains("x'6f7227646572"), "{sql}");
    }

    #[test]
    fn integer_type_holds_the_ids_of_its_bits() {
        assert_eq!(holds("int", false, None), Some(Some(2_147_483_647)));
        assert_eq!(holds("int", true, None), Some(Some(4_294_967_295)));
        assert_eq!(holds("bigint", true, None), Some(Some(u64::MAX)));
        assert_eq!((holds("tinyint", false, None), holds("varchar", false, None)), (Some(Some(127)), None));
        assert_eq!(holds("decimal", false, Some(5)), Some(Some(99_999)));
    }
}
