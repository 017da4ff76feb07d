//! `idmill decode`: the ids that a format has written, one a line.

use crate::args::{Decode, Global};
use crate::failure::Outcome;
use crate::formatted::{Shown, for_each, load, unwritten};

pub(super) fn run(global: &Global, args: Decode) -> Outcome {
    let format = load(&args.format)?;
    let shown = if global.json { Shown::Both } else { Shown::Id };
    let mut line = Vec::new();
    for_each(
        args.texts,
        |text| Ok(text.to_owned()),
        |text, lines| {
            shown.put(format.decode(&text)?, &text, &mut line);
            lines.add(&line).map_err(|error| unwritten(&error))
        },
    )
}
