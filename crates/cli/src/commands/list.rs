//! `idmill list`: prints the sequences of a store page by page, so that memory does not grow with their
//! number.

use idmill::store::{Listing, Page, Pages, Unreadable};
use serde_json::json;

use crate::args::{Global, List};
use crate::error::{CliError, Outcome};
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
    /// The table, or `None` for lines of JSON.
    table: Option<SequenceTable>,
    left: usize,
    unreadable: usize,
    /// The first error, for the exit code.
    first: Option<idmill::Error>,
}

impl Printed {
    fn new(limit: usize, json: bool, wide: bool) -> Self {
        let table = (!json).then(|| SequenceTable::new(wide));
        Self { table, left: limit, unreadable: 0, first: None }
    }

    fn page(&mut self, page: Listing) -> Outcome {
        let sequences: Vec<_> = page.sequences.iter().take(self.left).map(Sequence::from).collect();
        self.left -= sequences.len();
        output::write(&match &mut self.table {
            Some(table) => table.rows(&sequences),
            None => sequences.iter().map(output::line).collect(),
        })?;
        self.unreadable += page.unreadable.len();
        page.unreadable.into_iter().try_for_each(|found| self.cannot_read(found))
    }

    fn cannot_read(&mut self, found: Unreadable) -> Outcome {
        if self.table.is_some() {
            output::error(&found.error.to_string());
        } else {
            // Names and meanings are stable.
            let (kind, message) = (found.error.kind().as_str(), found.error.to_string());
            let entry = json!({ "name": found.name, "kind": kind, "message": message });
            output::write_line(&json!({ "unreadable": entry }))?;
        }
        self.first.get_or_insert(found.error);
        Ok(())
    }

    fn finish(mut self) -> Outcome {
        // The headings are printed even if there is no sequence.
        output::write(&self.table.as_mut().map_or_else(String::new, |table| table.rows(&[])))?;
        let Some(first) = self.first else { return Ok(()) };
        let message = format!("{} of the store's entries cannot be read as sequences", self.unreadable);
        Err(CliError::from(idmill::Error::new(first.kind(), message).during(idmill::Operation::List))
            .hint("the other entries are listed; the errors above name each entry"))
    }
}
