//! `idmill revoke`: has every process drop the ids that it has in memory.

use idmill::store::Change;

use super::set;
use crate::args::{Global, Revoke};
use crate::failure::Outcome;

pub(super) async fn run(global: &Global, args: &Revoke) -> Outcome {
    set::changed(global, &args.name, Change::new().revoke(true)).await
}
