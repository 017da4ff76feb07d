//! `idmill list`: prints the sequences of a store page by page, so that memory does not grow with their
//! number.

use idmill::store::{Listing, Page, Pages};
use serde_json::{Value, json};

use crate::args::{Global, List};
use crate::failure::{Failure, Outcome};
use crate::opening;
use crate::output::{self, Sequence, SequenceTable};

pub(super) async fn run(global: &Global, args: &List) -> Outcome {
    let store = opening::existing(global, args.within.timeout).await?;
    let limit = args.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let page = Page::of(args.prefix.clone().unwrap_or_default()).limit(limit.clamp(1, Page::LIMIT));
    let mut pages = Pages::new(&*store, page);
    let mut printed = Printed::new(limit, global.json, args.wide);
    while printed.left > 0 {
        let Some(page) = pages.next().await? else { break };
        printed.page(page)?;
    }
    printed.finish()
}

/// The output so far.
struct Printed {
    form: Form,
    left: usize,
    /// The unreadable records, as in the JSON output. Names and meanings are stable.
    unreadable: Vec<Value>,
    /// The first error, for the exit code.
    first: Option<idmill::Error>,
}

enum Form {
    Table(SequenceTable),
    /// Whether a sequence was written.
    Json(bool),
}

impl Printed {
    fn new(limit: usize, json: bool, wide: bool) -> Self {
        let form = if json { Form::Json(false) } else { Form::Table(SequenceTable::new(wide)) };
        Self { form, left: limit, unreadable: Vec::new(), first: None }
    }

    fn page(&mut self, page: Listing) -> Outcome {
        let sequences: Vec<_> = page.sequences.iter().take(self.left).map(Sequence::from).collect();
        self.left -= sequences.len();
        for found in page.unreadable {
            if matches!(self.form, Form::Table(_)) {
                anstream::eprintln!("\x1b[1;31merror:\x1b[0m {}", found.error);
            }
            let (kind, message) = (found.error.kind().as_str(), found.error.to_string());
            self.unreadable.push(json!({ "name": found.name, "kind": kind, "message": message }));
            self.first.get_or_insert(found.error);
        }
        let text = match &mut self.form {
            Form::Table(table) => table.rows(&sequences),
            Form::Json(begun) => in_json(begun, &sequences),
        };
        output::write(&text)
    }

    fn finish(mut self) -> Outcome {
        let text = match &mut self.form {
            Form::Table(table) => table.rows(&[]),
            Form::Json(begun) => end_of_json(*begun, &self.unreadable),
        };
        output::write(&text)?;
        let Some(first) = self.first else { return Ok(()) };
        let message = format!("{} of the store's entries cannot be read as sequences", self.unreadable.len());
        Err(Failure::from(idmill::Error::new(first.kind(), message).during(idmill::Operation::List))
            .hint("the other entries are listed; `idmill list --json` also shows each error"))
    }
}

/// Returns the next piece of the document. The document is an object, not an array, so that later versions
/// can add fields.
fn in_json(begun: &mut bool, sequences: &[Sequence]) -> String {
    let mut text = String::new();
    for sequence in sequences {
        text += if *begun { ",\n    " } else { "{\n  \"sequences\": [\n    " };
        text += &output::json(sequence).replace('\n', "\n    ");
        *begun = true;
    }
    text
}

fn end_of_json(begun: bool, unreadable: &[Value]) -> String {
    let end = if begun { "\n  ]" } else { "{\n  \"sequences\": []" };
    let unreadable = output::json(&unreadable).replace('\n', "\n  ");
    format!("{end},\n  \"unreadable\": {unreadable}\n}}\n")
}
