//! `idmill schema`: the statement that creates the table of a store.

use crate::args::Global;
use crate::failure::{Failure, Outcome};
use crate::opening;
use crate::output;

pub(super) fn run(global: &Global) -> Outcome {
    let url = opening::url(global)?;
    match url.ddl()? {
        Some(ddl) if global.json => output::print_json(&serde_json::json!({ "ddl": ddl })),
        Some(ddl) => output::print(&format!("{ddl};\n")),
        None => Err(Failure::usage(format!(
            "{url} has no table to create; `schema` is for SQLite, PostgreSQL, MySQL and Spanner"
        ))),
    }
}
