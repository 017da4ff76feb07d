//! Opens a table: checks that the server syncs, finds the table along the `search_path`, and
//! creates it if it is missing.

use idmill::{Error, ErrorKind, Result};
use idmill_kit::Mode;
use idmill_kit::mode::MISSING_TABLE;

use super::classify::not_created;
use super::durable::{Keeps, must_be_durable};
use super::place::{self, Lookup};
use super::run::{TRIES, crowded, read};
use super::table::Table;
use crate::{Asked, Executor, Statement};

/// Finds the table and its schema, and creates the table if it is missing and the mode allows it.
pub(super) async fn find<E: Executor>(executor: &mut E, table: Table, mode: Mode) -> Result<Table> {
    let mut created = false;
    for _ in 0..TRIES {
        match place::look(executor, table.schema(), table.name()).await? {
            Lookup::There(found) => {
                let table = table.within(&found.schema);
                table.check(&found)?;
                if created {
                    tell_created(executor, &found.schema, &table).await;
                }
                return Ok(table);
            }
            Lookup::Nowhere { schema } => {
                created = create(executor, &table.within(&schema), mode).await?;
            }
        }
    }
    Err(crowded())
}

/// Creates the table. Returns `false` if another process creates it at the same time.
async fn create<E: Executor>(executor: &mut E, table: &Table, mode: Mode) -> Result<bool> {
    if mode != Mode::Create {
        let message = format!("there is no table {}; {MISSING_TABLE}", table.sql());
        return Err(Error::new(ErrorKind::NotFound, message));
    }
    run_ddl(executor, table.ddl()).await
}

/// Runs DDL. Returns `false` if the table, or its type, already exists because several processes
/// create it at the same time. The caller looks for the table next.
pub(super) async fn run_ddl<E: Executor>(executor: &mut E, ddl: String) -> Result<bool> {
    match executor.execute(Statement::write(ddl, [])).await {
        Err(fault) if matches!(fault.code(), Some("23505" | "42P07" | "42710")) => Ok(false),
        Err(fault) => Err(not_created(fault, Asked::Read)),
        Ok(_) => Ok(true),
    }
}

/// Logs where the table was created, since its sequences begin again.
async fn tell_created<E: Executor>(executor: &mut E, schema: &str, table: &Table) {
    let name = table.sql();
    match place::elsewhere(executor, schema, table.name()).await.ok().flatten() {
        None => tracing::info!(table = %name, "created the table; its sequences begin at their first ids"),
        Some(others) => tracing::warn!(
            table = %name,
            others,
            "created the table; its sequences begin at their first ids; schemas outside the search_path have an \
             object of this name"
        ),
    }
}

/// Checks that the server syncs to disk what it reports as committed.
///
/// # Errors
/// [`Conflict`](ErrorKind::Conflict) if it does not, except with [`Keeps::Trust`]; the errors of reading.
pub async fn must_sync<E: Executor>(executor: &mut E, keeps: Keeps) -> Result<()> {
    if keeps == Keeps::Trust {
        return Ok(());
    }
    let sql = "SELECT current_setting('fsync'), current_setting('full_page_writes')";
    let rows = read(executor, sql, []).await?;
    let row = rows
        .first()
        .ok_or_else(|| Error::new(ErrorKind::StoreViolation, "the server returned no settings"))?;
    let [fsync, writes] = [0, 1].map(|column| row.text(column).unwrap_or_default());
    must_be_durable(&format!("on {fsync} {writes}"), keeps)
}
