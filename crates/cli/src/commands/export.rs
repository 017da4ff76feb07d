//! `idmill export`: sequences as lines of JSON, page by page.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use idmill::store::{Page, Pages, SequenceInfo, Store};
use idmill::{Error, ErrorKind, Operation};
use idmill_guard::{Announced, Witness};
use tempfile::NamedTempFile;

use super::inspect;
use crate::args::{Export, Global};
use crate::error::{CliError, Outcome};
use crate::exported;
use crate::output::{or_dash, unwritten};
use crate::{opening, output};

/// Maximum number of symbolic links to follow. Linux has the same limit.
const LINKS: usize = 40;

pub(super) async fn run(global: &Global, args: &Export) -> Outcome {
    let store = opening::existing(global, args.within.timeout).await?;
    let claims = Claims { witness: opening::url(global)?.witness(&*store).await?, json: global.json };
    let file = args.output.as_deref().filter(|file| *file != Path::new("-"));
    let mut out = Out::new(file)?;
    let outcome = if args.names.is_empty() {
        all(&*store, &claims, args.prefix.as_deref().unwrap_or_default(), &mut out).await
    } else {
        for name in &args.names {
            out.write(&claims.above(&*store, vec![inspect(&*store, name).await?]).await?)?;
        }
        Ok(None)
    };
    // Unreadable rows do not affect the other rows, but the file is not complete. If the store fails, no file
    // is left.
    let unreadable = outcome?;
    let count = out.finish(unreadable.is_none())?;
    if let Some(file) = file {
        output::note(global.json, &format!("sequences in {}: {count}", file.display()));
    }
    unreadable.map_or(Ok(()), Err)
}

/// Writes every sequence. Returns the error to exit with if rows could not be read.
async fn all(store: &dyn Store, claims: &Claims, prefix: &str, out: &mut Out) -> Outcome<Option<CliError>> {
    let (mut pages, mut unreadable, mut first) = (Pages::new(store, Page::of(prefix)), 0, None);
    while let Some(page) = pages.next().await? {
        for found in page.unreadable {
            unreadable += 1;
            first.get_or_insert(found.error.kind());
            CliError::from(found.error).report(claims.json);
        }
        out.write(&claims.above(store, page.sequences).await?)?;
    }
    if let Some(missing) = claims.missing(store, prefix).await? {
        return Ok(Some(missing));
    }
    Ok(first.map(|first| {
        let message =
            format!("{unreadable} of the store's entries cannot be read as sequences, and were skipped");
        CliError::from(Error::new(first, message).during(Operation::List))
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
                info.next = exported::next(top, info.bounds);
                let (name, next) = (&info.name, or_dash(info.next));
                let told = format!("the store is behind the witness: `{name}` is exported with next {next}");
                output::note(self.json, &told);
            }
        }
        Ok(some)
    }

    /// Returns the error for sequences that the witness has and the store lacks.
    async fn missing(&self, store: &dyn Store, prefix: &str) -> Outcome<Option<CliError>> {
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
            CliError::from(error).hint("`idmill doctor` with the guard shows each of them with its remedy"),
        ))
    }
}

/// The destination of the lines. A file gets its name only when it is complete and on disk: a file that is
/// cut off at the end of a line would look complete.
struct Out {
    to: Box<dyn Write + Send>,
    /// The path, and the file that gets this name. A device or a pipe is written to directly.
    file: Option<(Option<NamedTempFile>, PathBuf)>,
    count: u64,
}

impl Out {
    fn new(file: Option<&Path>) -> Outcome<Self> {
        let Some(path) = file else {
            return Ok(Self { to: Box::new(io::stdout()), file: None, count: 0 });
        };
        let (handle, file) = made(path).map_err(|error| unwritten(path, &error))?;
        Ok(Self { to: Box::new(handle), file: Some((file, target(path))), count: 0 })
    }

    fn write(&mut self, some: &[SequenceInfo]) -> Outcome {
        self.count += some.len() as u64;
        self.add(&some.iter().map(exported::line).collect::<String>())
    }

    fn add(&mut self, lines: &str) -> Outcome {
        let written = self.to.write_all(lines.as_bytes()).and_then(|()| self.to.flush());
        written.map_err(|error| match &self.file {
            Some((_, path)) => unwritten(path, &error),
            None => CliError::of_stdout("the result", &error),
        })
    }

    /// Writes the last line if the lines are `complete`, and returns the number of sequences.
    fn finish(mut self, complete: bool) -> Outcome<u64> {
        if complete {
            self.add(&exported::end(self.count))?;
        }
        if let Some((Some(file), path)) = self.file.take() {
            let kept = file.as_file().sync_all().and_then(|()| Ok(file.persist(&path)?));
            kept.map_err(|error| unwritten(&path, &error))?;
        }
        Ok(self.count)
    }
}

/// Opens the file for writing, or creates the file that replaces it.
fn made(path: &Path) -> io::Result<(File, Option<NamedTempFile>)> {
    let found = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        found => Some(found?),
    };
    if found.as_ref().is_some_and(|found| !found.is_file()) {
        return Ok((File::options().write(true).open(path)?, None));
    }
    let path = target(path);
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    // The umask applies to these permissions.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let file = builder.tempfile_in(parent)?;
    if let Some(found) = found {
        file.as_file().set_permissions(found.permissions())?;
    }
    Ok((file.reopen()?, Some(file)))
}

/// Follows symbolic links. The file at the end may be missing.
fn target(path: &Path) -> PathBuf {
    let next = |link: &PathBuf| {
        let to = fs::read_link(link).ok()?;
        Some(link.parent().map_or(to.clone(), |parent| parent.join(&to)))
    };
    std::iter::successors(Some(path.to_owned()), next).take(LINKS).last().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use idmill::store::{Bounds, Change, MemoryStore, Reserve};
    use idmill_guard::{FileWitness, Guarded, forget};

    use super::*;

    async fn stored(names: &[&str]) -> MemoryStore {
        let store = MemoryStore::new();
        for name in names {
            store.create(&name.parse().unwrap(), Bounds::new(1, 9).unwrap()).await.unwrap();
        }
        store
    }

    #[tokio::test]
    async fn file_appears_when_it_is_complete() {
        let directory = tempfile::tempdir().unwrap();
        let store = stored(&["a", "b1", "b2"]).await;
        let claims = Claims { witness: None, json: false };
        for (prefix, is_complete, count) in [("", true, 3), ("b", true, 2), ("b", false, 2), ("c", true, 0)] {
            let path = directory.path().join(format!("{count}-{is_complete}"));
            let mut out = Out::new(Some(&path)).unwrap();
            assert!(all(&store, &claims, prefix, &mut out).await.unwrap().is_none());
            assert!(!path.exists(), "{prefix}");
            assert_eq!(out.finish(is_complete).unwrap(), count);
            let text = fs::read_to_string(&path).unwrap();
            let end = format!("{{\"format\":\"1\",\"sequences\":\"{count}\"}}");
            let sequences = text.lines().filter(|line| line.contains("\"name\":")).count();
            assert_eq!((sequences as u64, text.lines().any(|line| line == end)), (count, is_complete));
        }
    }

    #[test]
    fn failed_export_leaves_the_file_as_it_was() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ids");
        fs::write(&path, "old").unwrap();
        let mut out = Out::new(Some(&path)).unwrap();
        out.add("new").unwrap();
        drop(out);
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        let missing = directory.path().join("no/where");
        let error = Out::new(Some(&missing)).err().unwrap();
        assert!(error.message().starts_with(&format!("{} cannot be written: ", missing.display())));
    }

    #[cfg(unix)]
    #[test]
    fn links_are_followed_but_not_for_ever() {
        use std::os::unix::fs::symlink;

        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        symlink("second", at("first")).unwrap();
        symlink(at("file"), at("second")).unwrap();
        assert_eq!(target(&at("first")), at("file"));
        assert_eq!(target(&at("file")), at("file"));
        symlink("loop", at("loop")).unwrap();
        assert_eq!(target(&at("loop")), at("loop"));
    }

    /// The sequence was removed after 20 ids, or was removed and forgotten. The one that followed it in the
    /// store has no claims yet.
    #[tokio::test]
    async fn export_is_above_the_claims_unless_forgotten() {
        for (is_forgotten, max, next) in
            [(false, 99, Some(21)), (true, 99, Some(1)), (false, 20, None), (false, 21, Some(21))]
        {
            let directory = tempfile::tempdir().unwrap();
            let (memory, name) = (MemoryStore::new(), "s".parse().unwrap());
            let witness = FileWitness::open(directory.path().join("w")).unwrap();
            let guarded = Guarded::new(memory.clone(), witness.clone());
            let request = Reserve::new("s".parse().unwrap(), 20).create(Bounds::new(1, 99).unwrap());
            guarded.reserve(&request).await.unwrap();
            guarded.remove(&name, None).await.unwrap();
            if is_forgotten {
                forget(&witness, &name).await.unwrap();
            }
            let claims = Claims { witness: Some(Arc::new(witness)), json: false };
            let above = async |info: &SequenceInfo| claims.above(&memory, vec![info.clone()]).await.unwrap();
            let mut info = memory.create(&name, Bounds::new(1, max).unwrap()).await.unwrap();
            let read = info.clone();
            info.next = next;
            assert_eq!(above(&read).await, [info], "{is_forgotten}, {max}");
            // The store has moved on since the sequence was read.
            let moved = memory.set(&name, Change::new().next(Some(max))).await.unwrap();
            let expected = if is_forgotten { read.clone() } else { moved };
            if max > 20 {
                assert_eq!(above(&read).await, [expected], "{is_forgotten}, {max}");
            }
        }
    }
}
