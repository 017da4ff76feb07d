//! Opening a table: the server must sync, and the table is found where PostgreSQL itself would find it, and created where it is not.

use idmill::{Error, ErrorKind, Result};
use idmill_kit::Mode;
use idmill_kit::mode::NEVER_MADE;

use super::classify::not_created;
use super::durable::{Keeps, must_be_durable};
use super::place::{self, Place};
use super::run::{TRIES, crowded, read};
use super::table::Table;
use crate::{Asked, Executor, Statement};

/// The table with its schema, created if need and leave be.
pub(super) async fn find<E: Executor>(executor: &mut E, table: Table, mode: Mode) -> Result<Table> {
    let mut created = false;
    for _ in 0..TRIES {
        match place::look(executor, table.schema(), table.name()).await? {
            Place::There(found) => {
                let table = table.within(&found.schema);
                table.check(&found)?;
                if created {
                    tell_created(executor, &found.schema, &table).await;
                }
                return Ok(table);
            }
            Place::Nowhere { schema } => {
                created = create(executor, &table.within(&schema), mode).await?;
            }
        }
    }
    Err(crowded())
}

/// Whether it was by this call: of several that create it at the same time, some hear
/// that it, or its type, exists.
async fn create<E: Executor>(executor: &mut E, table: &Table, mode: Mode) -> Result<bool> {
    if mode != Mode::Create {
        let message = format!("there is no table {}; {NEVER_MADE}", table.sql());
        return Err(Error::new(ErrorKind::NotFound, message));
    }
    run_ddl(executor, table.ddl()).await
}

/// Whether the table was created by this. Whether it is there is looked at next, or by whoever needs it next.
pub(super) async fn run_ddl<E: Executor>(executor: &mut E, ddl: String) -> Result<bool> {
    match executor.execute(Statement::write(ddl, [])).await {
        Err(fault) if matches!(fault.code(), Some("23505" | "42P07" | "42710")) => Ok(false),
        Err(fault) => Err(not_created(fault, Asked::Read)),
        Ok(_) => Ok(true),
    }
}

/// Sequences begin anew in a table that was created: it should be seen where that is.
async fn tell_created<E: Executor>(executor: &mut E, schema: &str, table: &Table) {
    let name = table.sql();
    match place::elsewhere(executor, schema, table.name()).await.ok().flatten() {
        None => tracing::info!(table = %name, "created the table: its sequences begin at their first ids"),
        Some(others) => tracing::warn!(
            table = %name,
            others,
            "created the table: its sequences begin at their first ids; there are tables of its name in other schemas, which \
             the search_path does not lead to"
        ),
    }
}

/// The server must write to the disk what it says it has.
///
/// # Errors
/// [`Conflict`](ErrorKind::Conflict) if it does not; and those of reading.
pub async fn must_sync<E: Executor>(executor: &mut E, keeps: Keeps) -> Result<()> {
    if keeps == Keeps::Trust {
        return Ok(());
    }
    let sql = "SELECT current_setting('fsync'), current_setting('full_page_writes')";
    let rows = read(executor, sql, []).await?;
    let row =
        rows.first().ok_or_else(|| Error::new(ErrorKind::StoreViolation, "the server has no settings"))?;
    let [fsync, writes] = [0, 1].map(|column| row.text(column).unwrap_or_default());
    must_be_durable(&format!("on {fsync} {writes}"), keeps)
}
