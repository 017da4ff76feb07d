//! `idmill schema`: the statement that creates the table of a store, or of a witness.

use idmill_url::StoreUrl;

use crate::args::{Global, Schema};
use crate::failure::{Failure, Outcome};
use crate::opening;
use crate::output;

pub(super) fn run(global: &Global, args: &Schema) -> Outcome {
    let url = opening::url(global)?;
    let (place, ddl) = if args.witness { of_witness(&url)? } else { (url.to_string(), url.ddl()?) };
    match ddl {
        Some(ddl) if global.json => output::print_json(&serde_json::json!({ "ddl": ddl })),
        Some(ddl) => output::print(&format!("{ddl};\n")),
        None => Err(Failure::usage(format!(
            "{place} has no table to create; `schema` is for SQLite, PostgreSQL, MySQL and Spanner"
        ))),
    }
}

/// The guard's table; without a guard, the store is taken for the witness.
fn of_witness(url: &StoreUrl) -> idmill::Result<(String, Option<String>)> {
    Ok(match url.guard() {
        Some(witness) => (witness.to_string(), witness.ddl()?),
        None => (url.to_string(), url.witness_ddl()?),
    })
}
