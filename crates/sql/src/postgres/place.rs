//! Locates a table or a sequence: in the given schema, or along the connection's `search_path` as
//! PostgreSQL does.
//!
//! Looking only in the first schema of the path is not enough: it changes when a schema with the user's name
//! is created. A second table would then be created in the new schema, and repeat the ids of the first.

use idmill::{Error, ErrorKind, Result};

use super::run::read;
use super::table::Table;
use crate::{Executor, Row};

/// The schemas to search, in order, and the relation of this name in each: its kind, its columns,
/// and one of its parts (possibly itself) that a crash would empty. Parameters: the schema, or an
/// empty string for the path; the name.
const LOOK: &str = "SELECT n.nspname::text, c.relkind::text, \
     (SELECT string_agg(a.attname::text, ', ' ORDER BY a.attnum) FROM pg_catalog.pg_attribute a \
      WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped), \
     (WITH RECURSIVE parts AS (SELECT c.oid UNION SELECT i.inhrelid FROM parts JOIN pg_catalog.pg_inherits i \
      ON i.inhparent = parts.oid) \
      SELECT min(part.oid::regclass::text) FROM parts JOIN pg_catalog.pg_class part ON part.oid = parts.oid \
      WHERE part.relpersistence <> 'p' OR part.relkind = 'f') \
     FROM unnest(CASE $1 WHEN '' THEN current_schemas(false) ELSE ARRAY[$1::name] END) WITH ORDINALITY AS path(name, at) \
     JOIN pg_catalog.pg_namespace n ON n.nspname = path.name \
     LEFT JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = $2 ORDER BY path.at";

/// The result of a search for a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The relation exists.
    There(Relation),
    /// The relation does not exist; it would be created in this schema.
    Nowhere {
        /// The given schema, or the first of the path.
        schema: String,
    },
}

/// A table, a sequence or another relation with the name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Relation {
    /// Its schema.
    pub schema: String,
    /// Its kind, as in `pg_class.relkind`.
    pub kind: String,
    /// The names of its columns, in order.
    pub columns: String,
    /// A part of it that is unlogged, temporary or in another database.
    pub forgetful: Option<String>,
}

impl Relation {
    fn read(row: &Row) -> Option<Self> {
        let text = |column| row.text(column).map(str::to_owned);
        let (schema, kind) = (text(0)?, text(1)?);
        Some(Self { schema, kind, columns: text(2).unwrap_or_default(), forgetful: text(3) })
    }

    pub(super) fn is_table_of(&self, columns: &[&str]) -> bool {
        matches!(self.kind.as_str(), "r" | "p") && self.columns == columns.join(", ")
    }
}

/// Searches this schema, or the path.
///
/// # Errors
/// [`NotFound`](ErrorKind::NotFound) if there is no schema to search; [`Conflict`](ErrorKind::Conflict) if
/// two relations have the name: the choice would depend on the user's path; the errors of reading.
pub async fn look<E: Executor>(executor: &mut E, schema: Option<&str>, name: &str) -> Result<Lookup> {
    let rows = read(executor, LOOK, [schema.unwrap_or_default().into(), name.into()]).await?;
    let mut found: Vec<_> = rows.iter().filter_map(Relation::read).collect();
    match (found.len(), rows.first()) {
        (0, None) => Err(no_schema(schema)),
        (0, Some(first)) => Ok(Lookup::Nowhere { schema: first.text(0).unwrap_or_default().to_owned() }),
        (1, _) => Ok(Lookup::There(found.remove(0))),
        _ => Err(in_several(name, found.iter().map(|relation| relation.schema.as_str()))),
    }
}

/// Checks that the path leads to only one relation of the table's name, unless the schema is known.
pub(super) async fn must_be_only<E: Executor>(executor: &mut E, table: &Table) -> Result<()> {
    if table.schema().is_some() {
        return Ok(());
    }
    let rows = read(executor, &table.namesakes(), []).await?;
    if rows.len() > 1 {
        Err(in_several(table.name(), rows.iter().filter_map(|row| row.text(0))))
    } else {
        Ok(())
    }
}

fn in_several<'a>(name: &str, schemas: impl Iterator<Item = &'a str>) -> Error {
    let schemas: Vec<_> = schemas.map(|schema| format!("{schema:?}")).collect();
    let message = format!(
        "{name:?} is in several schemas of the search_path, {}; name the right one with `schema=NAME` \
         (`schema(NAME)` in code)",
        schemas.join(" and ")
    );
    Error::new(ErrorKind::Conflict, message)
}

/// Checks that row-level security hides no rows of the table from this user. Without this check, a hidden row
/// would be taken for a missing one. Poolers share sessions, so `row_security` is not set instead.
pub(super) async fn must_see_all<E: Executor>(executor: &mut E, table: &Table) -> Result<()> {
    let active = read(executor, "SELECT row_security_active($1)::text", [table.sql().into()]).await?;
    if active.first().and_then(|row| row.text(0)) != Some("true") {
        return Ok(());
    }
    let message = format!(
        "row-level security may hide rows of {} from this user; give the user BYPASSRLS, or disable it on \
         this table",
        table.sql()
    );
    Err(Error::new(ErrorKind::Denied, message))
}

fn no_schema(schema: Option<&str>) -> Error {
    let message = match schema {
        Some(schema) => format!(
            "there is no schema {schema:?}; create it, or name another with `schema=NAME` (`schema(NAME)` in \
             code)"
        ),
        None => "the search_path of the connection is empty; name a schema with `schema=NAME` \
                 (`schema(NAME)` in code)"
            .to_owned(),
    };
    Error::new(ErrorKind::NotFound, message)
}

/// Returns the schemas that have a table or sequence of this name, except the schema that the path leads to.
/// Returns `None` if there are none, or if the path leads to no such relation. A user with another path may
/// draw from another schema.
///
/// # Errors
/// The errors of [`look`].
pub async fn lookalikes<E: Executor>(executor: &mut E, name: &str) -> Result<Option<String>> {
    match look(executor, None, name).await? {
        Lookup::There(found) => elsewhere(executor, &found.schema, name).await,
        Lookup::Nowhere { .. } => Ok(None),
    }
}

/// Returns the schemas other than this one that have a table or sequence of this name.
pub(super) async fn elsewhere<E: Executor>(
    executor: &mut E,
    schema: &str,
    name: &str,
) -> Result<Option<String>> {
    let sql = "SELECT string_agg(n.nspname::text, ', ') FROM pg_catalog.pg_class c \
               JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
               WHERE c.relname = $2 AND n.nspname <> $1 AND c.relkind IN ('r', 'p', 'S')";
    let rows = read(executor, sql, [schema.into(), name.into()]).await?;
    Ok(rows.first().and_then(|row| row.text(0)).map(str::to_owned))
}
