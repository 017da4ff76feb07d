//! The largest id in a column of a user's table.

use idmill::Result;
use idmill_kit::{ColumnPath, Largest};

use super::quoted;
use super::run::read;
use crate::column::{largest_sql, of_digits, of_precision};
use crate::{Executor, Row};

/// Describes a table and one of its columns. For a domain, the type is its base type. Parameters: the table
/// as SQL writes it; the column. The two halves of a numeric's modifier are its precision and its scale.
const LOOK: &str = "SELECT to_regclass($1)::text, format_type(coalesce(nullif(t.typbasetype, 0), t.oid), NULL), \
     CASE WHEN m.modifier >= 4 THEN greatest(0, ((m.modifier - 4) >> 16) - ((((m.modifier - 4) & 2047) # 1024) - 1024))::text END, \
     CASE WHEN c.relkind IN ('v', 'm') THEN 'view' WHEN row_security_active(c.oid) THEN 'policy' END, \
     CASE WHEN a.attidentity <> '' THEN 'nextval(' || quote_literal(pg_get_serial_sequence($1, $2)) || ')' ELSE pg_get_expr(d.adbin, d.adrelid) END \
     FROM (SELECT 1) AS one LEFT JOIN pg_catalog.pg_class c ON c.oid = to_regclass($1) \
     LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attname = $2 AND a.attnum > 0 AND NOT a.attisdropped \
     LEFT JOIN pg_catalog.pg_type t ON t.oid = a.atttypid \
     LEFT JOIN LATERAL (SELECT CASE WHEN t.typbasetype <> 0 THEN t.typtypmod ELSE a.atttypmod END AS modifier) m ON true \
     LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum";

/// Returns the largest id in a column.
///
/// # Errors
/// [`NotFound`](idmill::ErrorKind::NotFound) if there is no such column;
/// [`Unsupported`](idmill::ErrorKind::Unsupported) if it holds no integers; the errors of reading.
pub async fn largest<E: Executor>(executor: &mut E, path: &ColumnPath) -> Result<Largest> {
    let (table, column) = path.table_and_column(quoted)?;
    let name = path.parts().last().map(String::as_str).unwrap_or_default();
    let rows = read(executor, LOOK, [table.as_str().into(), name.into()]).await?;
    let found = rows.first().cloned().unwrap_or_default();
    if found.text(0).is_none() {
        return Err(path.missing("table"));
    }
    let of_type = found.text(1).ok_or_else(|| path.missing("column"))?;
    let digits = found.text(2).and_then(|digits| digits.parse().ok());
    let holds = match of_type {
        "smallint" => Some(i16::MAX.unsigned_abs().into()),
        "integer" => Some(i32::MAX.unsigned_abs().into()),
        "bigint" => Some(i64::MAX.unsigned_abs()),
        "numeric" => digits.and_then(of_precision),
        other => return Err(path.not_of_integers(other)),
    };
    let of_type = digits.map_or_else(|| of_type.to_owned(), |digits| format!("{of_type} of {digits} digits"));
    let sql = largest_sql(&table, &column, |number| format!("{number}::text"));
    let rows = read(executor, &sql, []).await?;
    let digits = [0, 1].map(|column| rows.first().and_then(|row| row.text(column)));
    let largest = of_digits(path, digits, &of_type, holds)?;
    Ok(largest.hidden_by(hidden_by(&found)).default_value(default_value(&found)))
}

fn hidden_by(found: &Row) -> Option<String> {
    let why = match found.text(3)? {
        "view" => "it is a view, which may hide rows of the underlying table",
        _ => "row-level security may hide rows from this role",
    };
    Some(why.to_owned())
}

fn default_value(found: &Row) -> Option<String> {
    let default = found.text(4)?;
    default.starts_with("nextval(").then(|| default.to_owned())
}
