//! `idmill export`: sequences as lines of JSON, page by page.

use std::io::{self, BufWriter, ErrorKind, Write};
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
    let store = opening::existing(global).await?;
    let mut out = Out::new(args.output.as_deref())?;
    let outcome = if args.names.is_empty() {
        all(&*store, args.prefix.as_deref().unwrap_or_default(), &mut out, global.json).await
    } else {
        named(&*store, args, &mut out).await
    };
    // Rows that cannot be read leave the others as they are; a store that breaks off leaves no file.
    let unreadable = outcome?;
    let count = out.finish()?;
    if let Some(file) = &args.output {
        output::note(global.json, &format!("sequences in {}: {count}", file.display()));
    }
    unreadable.map_or(Ok(()), Err)
}

async fn named(store: &dyn Store, args: &Export, out: &mut Out) -> Outcome<Option<Failure>> {
    for name in &args.names {
        if !out.write(&[inspect(store, name).await?])? {
            break;
        }
    }
    Ok(None)
}

/// Every sequence; the failure to end with, if rows could not be read.
async fn all(store: &dyn Store, prefix: &str, out: &mut Out, json: bool) -> Outcome<Option<Failure>> {
    let (mut pages, mut unreadable, mut first) = (Pages::new(store, Page::of(prefix)), 0, None);
    while let Some(page) = pages.next().await? {
        for found in page.unreadable {
            unreadable += 1;
            first.get_or_insert(found.error.kind());
            Failure::from(found.error).report(json);
        }
        if !out.write(&page.sequences)? {
            break;
        }
    }
    Ok(first.map(|first| {
        let message =
            format!("{unreadable} of the store's entries cannot be read as sequences, and are left out");
        Failure::from(idmill::Error::new(first, message).during(Operation::List))
            .hint("`idmill doctor` says what is wrong with each")
    }))
}

/// Where the lines go. A file appears under its name once it is whole and on disk: one that is cut short at
/// the end of a line looks like all there was.
struct Out {
    to: BufWriter<Box<dyn Write + Send>>,
    file: Option<(NamedTempFile, PathBuf)>,
    count: u64,
}

impl Out {
    fn new(file: Option<&Path>) -> Outcome<Self> {
        let Some(path) = file else {
            return Ok(Self { to: BufWriter::new(Box::new(io::stdout())), file: None, count: 0 });
        };
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let made = NamedTempFile::new_in(parent).and_then(|file| Ok((file.reopen()?, file)));
        let (handle, file) = made.map_err(|error| unwritten(path, &error))?;
        Ok(Self { to: BufWriter::new(Box::new(handle)), file: Some((file, path.to_owned())), count: 0 })
    }

    /// Writes these; `false` if nobody reads any more.
    fn write(&mut self, some: &[SequenceInfo]) -> Outcome<bool> {
        for info in some {
            match self.to.write_all(exported::line(info).as_bytes()) {
                Ok(()) => self.count += 1,
                Err(error) => return self.left(&error),
            }
        }
        match self.to.flush() {
            Ok(()) => Ok(true),
            Err(error) => self.left(&error),
        }
    }

    fn left(&self, error: &io::Error) -> Outcome<bool> {
        match &self.file {
            Some((_, path)) => Err(unwritten(path, error)),
            None if error.kind() == ErrorKind::BrokenPipe => Ok(false),
            None => Err(Failure::io("the result cannot be written to stdout", error)),
        }
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
