//! The largest id in a column of the user's own.

use idmill::Result;
use idmill::store::{ColumnPath, Largest};

use super::run::read;
use super::table::hex;
use crate::column::of_digits;
use crate::{Executor, Row, Value};

/// Looks for the largest id in a column. Without a schema, its table is in the database of the connection.
///
/// # Errors
/// [`NotFound`](idmill::ErrorKind::NotFound) if there is no such column;
/// [`Unsupported`](idmill::ErrorKind::Unsupported) if it holds no integers; those of reading.
pub async fn largest<E: Executor>(executor: &mut E, path: &ColumnPath) -> Result<Largest> {
    let (table, column) = path.table_and_column(quoted)?;
    let rows = read(executor, &look(path)).await?;
    let row = rows.first().ok_or_else(|| path.missing("table"))?;
    let of_type = text(row, 0).ok_or_else(|| path.missing("column"))?;
    let unsigned = text(row, 1).is_some_and(|whole| whole.contains("unsigned"));
    let holds = holds(&of_type, unsigned).ok_or_else(|| path.not_of_integers(&of_type))?;
    let of_type = if unsigned { format!("{of_type} unsigned") } else { of_type };
    let rows = read(executor, &format!("SELECT CAST(MAX({column}) AS CHAR) FROM {table}")).await?;
    let digits = rows.first().and_then(|row| text(row, 0));
    of_digits(path, digits.as_deref(), &of_type, holds)
}

/// The table, if it is there, and of which type the column is.
fn look(path: &ColumnPath) -> String {
    let [table, column] = path
        .parts()
        .last_chunk()
        .map(|parts: &[String; 2]| parts.each_ref().map(|part| utf8(part)))
        .expect("two parts or more");
    let schema = match path.parts() {
        [schema, _, _] => utf8(schema),
        _ => "DATABASE()".to_owned(),
    };
    format!(
        "SELECT c.DATA_TYPE, c.COLUMN_TYPE FROM information_schema.TABLES t LEFT JOIN information_schema.COLUMNS c \
         ON c.TABLE_SCHEMA = t.TABLE_SCHEMA AND c.TABLE_NAME = t.TABLE_NAME AND c.COLUMN_NAME = {column} \
         WHERE t.TABLE_SCHEMA = {schema} AND t.TABLE_NAME = {table}"
    )
}

fn utf8(text: &str) -> String {
    format!("CONVERT({} USING utf8)", hex(text))
}

/// The largest id that a type holds, as far as it matters; `None` for a type that holds no integers.
#[expect(clippy::option_option, reason = "a type of any size is no unknown type")]
fn holds(of_type: &str, unsigned: bool) -> Option<Option<u64>> {
    let bits = match of_type.to_ascii_lowercase().as_str() {
        "tinyint" => 8,
        "smallint" => 16,
        "mediumint" => 24,
        "int" => 32,
        "bigint" => 64,
        "decimal" => return Some(None),
        _ => return None,
    };
    Some(Some(u64::MAX >> (64 - bits + u32::from(!unsigned))))
}

/// Some servers answer with text, others with its bytes.
fn text(row: &Row, column: usize) -> Option<String> {
    match row.get(column) {
        Value::Text(text) => Some(text.clone()),
        Value::Bytes(bytes) => String::from_utf8(bytes.clone()).ok(),
        Value::Integer(number) => Some(number.to_string()),
        _ => None,
    }
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
    fn a_type_holds_what_its_bits_do() {
        assert_eq!(holds("int", false), Some(Some(2_147_483_647)));
        assert_eq!(holds("int", true), Some(Some(4_294_967_295)));
        assert_eq!(holds("bigint", true), Some(Some(u64::MAX)));
        assert_eq!((holds("tinyint", false), holds("varchar", false)), (Some(Some(127)), None));
    }
}
