//! `idmill list`: every sequence of a store.

use serde::Serialize;

use crate::args::Global;
use crate::failure::Outcome;
use crate::opening;
use crate::output::{self, Sequence};

/// An object and no bare array, so that a later version can say more.
#[derive(Serialize)]
struct Listed {
    sequences: Vec<Sequence>,
}

pub(super) async fn run(global: &Global) -> Outcome {
    let store = opening::existing(global).await?;
    let all: Vec<Sequence> = store.list().await?.iter().map(Sequence::from).collect();
    if global.json {
        output::print_json(&Listed { sequences: all })
    } else {
        output::print(&output::sequences(&all))
    }
}
