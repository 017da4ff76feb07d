//! Finds the largest id in a field of the user's own documents.

use std::time::Duration;

use idmill::Result;
use idmill_kit::{ColumnPath, Largest};
use mongodb::Database;
use mongodb::bson::{Bson, Document, doc};

use super::connection::Commands;

/// Doubles represent every integer up to this value exactly.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Finds the largest id. MongoDB sorts numbers before strings, so a string among the ids is returned as the
/// largest and rejected. The first part of the path is the collection; the other parts are the field inside
/// its documents.
pub(super) async fn largest(database: Database, path: &ColumnPath, timeout: Duration) -> Result<Largest> {
    let (collection, field) = path.parts().split_first().expect("a column has at least two parts");
    let commands = Commands::new(database, collection.clone(), timeout);
    let top = commands.top(&field.join(".")).await?;
    let Some(found) = top.as_ref().and_then(|document| within(document, field)) else {
        return empty(&commands, path).await;
    };
    let id = match found {
        Bson::Int32(id) => i128::from(*id),
        Bson::Int64(id) => i128::from(*id),
        #[expect(clippy::cast_possible_truncation, reason = "the value is whole, and at most 2^53")]
        Bson::Double(id) if id.fract() == 0.0 && id.abs() <= EXACT => *id as i128,
        other => return Err(path.not_of_integers(&format!("{:?}", other.element_type()))),
    };
    Ok(Largest::new(id, "a number", None))
}

/// Returns no id for an empty collection. If the collection has documents but none of them has the field, the
/// field was probably mistyped, so an error is returned.
async fn empty(commands: &Commands, path: &ColumnPath) -> Result<Largest> {
    if !commands.exists().await? {
        return Err(path.missing("collection"));
    }
    let is_empty = commands.find_some(doc! {}, 1).await?.is_empty();
    if is_empty { Ok(Largest::new(None, "", None)) } else { Err(path.missing("field")) }
}

fn within<'a>(document: &'a Document, field: &[String]) -> Option<&'a Bson> {
    let (first, rest) = field.split_first()?;
    let value = document.get(first)?;
    if rest.is_empty() { Some(value) } else { within(value.as_document()?, rest) }
}
