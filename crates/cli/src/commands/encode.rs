//! `idmill encode`: ids in a format, one a line.

use crate::args::{self, Encode, Global};
use crate::failure::{Failure, Outcome};
use crate::formatted::{Line, for_each};

pub(super) fn run(global: &Global, args: Encode) -> Outcome {
    let mut line = Line::new(Some(&args.format), global.json)?;
    for_each(args.ids, id, |id, lines| line.write_one(id, lines))
}

fn id(text: &str) -> Outcome<u64> {
    args::id(text).map_err(|rule| Failure::usage(format!("`{}`: {rule}", text.escape_debug())))
}
