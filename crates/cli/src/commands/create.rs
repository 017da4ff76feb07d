//! `idmill create`: a sequence with bounds of its own.

use idmill_url::StoreUrl;

use crate::args::{Create, Global};
use crate::failure::Outcome;
use crate::opening;
use crate::output::{self, Sequence};

pub(super) async fn run(global: &Global, args: &Create) -> Outcome {
    let bounds = args.bounds.check()?;
    let store = opening::create(global, StoreUrl::CONNECT_TIMEOUT).await?;
    let created = Sequence::from(&store.create(&args.name, bounds).await?);
    if global.json { output::print_json(&created) } else { output::print(&output::sequence(&created)) }
}
