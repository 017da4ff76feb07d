//! `idmill export`: sequences as lines of JSON, page by page.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use idmill::Operation;
use idmill::store::{Page, Pages, SequenceInfo, Store};
use tempfile::NamedTempFile;

use super::inspect;
use crate::args::{Export, Global};
use crate::exported;
use crate::failure::{Failure, Outcome};
use crate::{opening, output};

pub(super) async fn run(global: &Global, args: &Export) -> Outcome {
    let store = opening::existing(global, args.within.timeout).await?;
    let mut out = Out::new(args.output.as_deref())?;
    let outcome = if args.names.is_empty() {
        all(&*store, args.prefix.as_deref().unwrap_or_default(), &mut out, global.json).await
    } else {
        for name in &args.names {
            out.write(&[inspect(&*store, name).await?])?;
        }
        Ok(None)
    };
    // Unreadable rows do not affect the other rows. If the store fails, no file is left.
    let unreadable = outcome?;
    let count = out.finish()?;
    if let Some(file) = &args.output {
        output::note(global.json, &format!("sequences in {}: {count}", file.display()));
    }
    unreadable.map_or(Ok(()), Err)
}

/// Writes every sequence. Returns the failure to exit with if rows could not be read.
async fn all(store: &dyn Store, prefix: &str, out: &mut Out, json: bool) -> Outcome<Option<Failure>> {
    let (mut pages, mut unreadable, mut first) = (Pages::new(store, Page::of(prefix)), 0, None);
    while let Some(page) = pages.next().await? {
        for found in page.unreadable {
            unreadable += 1;
            first.get_or_insert(found.error.kind());
            Failure::from(found.error).report(json);
        }
        out.write(&page.sequences)?;
    }
    Ok(first.map(|first| {
        let message =
            format!("{unreadable} of the store's entries cannot be read as sequences, and were skipped");
        Failure::from(idmill::Error::new(first, message).during(Operation::List))
            .hint("`idmill doctor` shows the error of each entry")
    }))
}

/// The destination of the lines. A file gets its name only when it is complete and on disk: a file that is
/// cut off at the end of a line would look complete.
struct Out {
    to: Box<dyn Write + Send>,
    file: Option<(NamedTempFile, PathBuf)>,
    count: u64,
}

impl Out {
    fn new(file: Option<&Path>) -> Outcome<Self> {
        let Some(path) = file else {
            return Ok(Self { to: Box::new(io::stdout()), file: None, count: 0 });
        };
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let made = NamedTempFile::new_in(parent).and_then(|file| Ok((file.reopen()?, file)));
        let (handle, file) = made.map_err(|error| unwritten(path, &error))?;
        Ok(Self { to: Box::new(handle), file: Some((file, path.to_owned())), count: 0 })
    }

    fn write(&mut self, some: &[SequenceInfo]) -> Outcome {
        let lines: String = some.iter().map(exported::line).collect();
        let written = self.to.write_all(lines.as_bytes()).and_then(|()| self.to.flush());
        written.map_err(|error| match &self.file {
            Some((_, path)) => unwritten(path, &error),
            None => Failure::of_stdout("the result", &error),
        })?;
        self.count += some.len() as u64;
        Ok(())
    }

    fn finish(mut self) -> Outcome<u64> {
        if let Some((file, path)) = self.file.take() {
            let kept = file.as_file().sync_all().and_then(|()| Ok(file.persist(&path)?));
            kept.map_err(|error| unwritten(&path, &error))?;
        }
        Ok(self.count)
    }
}

fn unwritten(path: &Path, error: &io::Error) -> Failure {
    Failure::io(&format!("{} cannot be written", path.display()), error)
}
