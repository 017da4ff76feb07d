//! `idmill export`: sequences as lines of JSON, page by page.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use idmill::store::{Page, Pages, SequenceInfo, Store};
use idmill::{Error, ErrorKind, Operation};
use idmill_guard::{Announced, Witness};
use tempfile::NamedTempFile;

use super::inspect;
use crate::args::{Export, Global};
use crate::exported;
use crate::failure::{Failure, Outcome};
use crate::output::or_dash;
use crate::{opening, output};

pub(super) async fn run(global: &Global, args: &Export) -> Outcome {
    let store = opening::existing(global, args.within.timeout).await?;
    let claims = Claims { witness: opening::url(global)?.witness(&*store).await?, json: global.json };
    let mut out = Out::new(args.output.as_deref())?;
    let outcome = if args.names.is_empty() {
        all(&*store, &claims, args.prefix.as_deref().unwrap_or_default(), &mut out).await
    } else {
        for name in &args.names {
            out.write(&claims.above(&*store, vec![inspect(&*store, name).await?]).await?)?;
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
async fn all(store: &dyn Store, claims: &Claims, prefix: &str, out: &mut Out) -> Outcome<Option<Failure>> {
    let (mut pages, mut unreadable, mut first) = (Pages::new(store, Page::of(prefix)), 0, None);
    while let Some(page) = pages.next().await? {
        for found in page.unreadable {
            unreadable += 1;
            first.get_or_insert(found.error.kind());
            Failure::from(found.error).report(claims.json);
        }
        out.write(&claims.above(store, page.sequences).await?)?;
    }
    if let Some(missing) = claims.missing(store, prefix).await? {
        return Ok(Some(missing));
    }
    Ok(first.map(|first| {
        let message =
            format!("{unreadable} of the store's entries cannot be read as sequences, and were skipped");
        Failure::from(Error::new(first, message).during(Operation::List))
            .hint("`idmill doctor` shows the error of each entry")
    }))
}

/// The ledgers of the guard, if there is one.
struct Claims {
    witness: Option<Arc<dyn Witness>>,
    json: bool,
}

impl Claims {
    /// Raises each sequence above its claims, since the store may have gone back in time.
    async fn above(&self, store: &dyn Store, mut some: Vec<SequenceInfo>) -> Outcome<Vec<SequenceInfo>> {
        let Some(witness) = &self.witness else { return Ok(some) };
        let names: Vec<_> = some.iter().map(|info| info.name.clone()).collect();
        for (info, ledger) in some.iter_mut().zip(witness.read_many(&names).await) {
            let ledger = ledger?.filter(|ledger| ledger.announced != Some(Announced::Forgotten));
            let top = ledger.map_or(0, |ledger| ledger.top());
            // Ids may have been drawn after the sequence was read.
            if top > info.reached()
                && let Some(now) = store.inspect(&info.name).await?
            {
                *info = now;
            }
            if top > info.reached() {
                info.next = u64::try_from(top).ok().filter(|next| *next <= info.bounds.max());
                let (name, next) = (&info.name, or_dash(info.next));
                let told = format!("the store is behind the witness: `{name}` is exported with next {next}");
                output::note(self.json, &told);
            }
        }
        Ok(some)
    }

    /// Returns the failure for sequences that the witness has and the store lacks.
    async fn missing(&self, store: &dyn Store, prefix: &str) -> Outcome<Option<Failure>> {
        let Some(witness) = &self.witness else { return Ok(None) };
        let (mut page, mut missing) = (Page::of(prefix), Vec::new());
        loop {
            let listed = witness.list(&page).await?;
            let next = listed.page_after(&page);
            let claimed = listed.ledgers.into_iter().filter(|(_, ledger)| !ledger.is_removed());
            let names: Vec<_> = claimed.map(|(name, _)| name).collect();
            for (name, found) in names.iter().zip(store.inspect_many(&names).await) {
                missing.extend(found?.is_none().then(|| name.to_string()));
            }
            let Some(next) = next else { break };
            page = next;
        }
        let Some(first) = missing.first() else { return Ok(None) };
        let count = missing.len();
        let message = format!("the store lacks {count} sequences that the witness has, such as {first:?}");
        let error = Error::new(ErrorKind::StoreViolation, message).during(Operation::List);
        Ok(Some(
            Failure::from(error).hint("`idmill doctor` with the guard shows each of them with its remedy"),
        ))
    }
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
