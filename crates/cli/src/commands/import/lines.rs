//! The lines of an export, validated before any of them is imported.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, ErrorKind, Read, Seek, Write};
use std::path::Path;

use crate::error::{CliError, Outcome};
use crate::exported::{self, Content};
use crate::input::{next_bytes, next_line};
use crate::output;

/// Maximum number of invalid lines that are reported individually.
const TOLD: u64 = 10;

/// The lines of a file, which is read twice: first to validate the lines, then to import them.
pub(super) struct Lines {
    file: File,
    /// The name in messages.
    name: String,
}

/// The result of the validation.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Looked {
    pub(super) good: u64,
    pub(super) bad: u64,
    /// Whether sequences may be missing: the last line is, or it has another number.
    is_cut: bool,
}

impl Looked {
    /// Returns the error if a line is invalid or missing.
    pub(super) fn verdict(self) -> Outcome {
        let Self { good, bad, is_cut } = self;
        if bad > 0 {
            let message = format!("{bad} of {} lines cannot be read; nothing was changed", bad + good);
            return Err(CliError::usage(message).hint("correct the lines, or skip them with `--keep-going`"));
        }
        if is_cut {
            let end = exported::end(good);
            let hint = format!(
                "export it again; if you wrote the lines by hand, add the last line `{}`; `--keep-going` \
                 imports what is there",
                end.trim_end()
            );
            return Err(CliError::usage("the export is not complete; nothing was changed").hint(hint));
        }
        Ok(())
    }

    /// Returns the error after an import with `--keep-going`.
    pub(super) fn remainder(self) -> Outcome {
        match self {
            Self { bad: 0, is_cut: false, .. } => Ok(()),
            Self { bad: 0, .. } => {
                Err(CliError::usage("the export is not complete; its lines were imported"))
            }
            Self { bad: 1, .. } => Err(CliError::usage("1 unreadable line skipped")),
            Self { bad, .. } => Err(CliError::usage(format!("{bad} unreadable lines skipped"))),
        }
    }
}

impl Lines {
    /// Opens the file. Input that cannot be read twice, such as a pipe, is copied to a temporary file.
    pub(super) fn open(path: Option<&Path>) -> Outcome<Self> {
        let Some(path) = path.filter(|path| *path != Path::new("-")) else {
            return Self::copied(io::stdin().lock(), "stdin".to_owned());
        };
        let name = path.display().to_string();
        let opened = File::open(path).and_then(|file| Ok((file.metadata()?.is_file(), file)));
        match opened {
            Ok((true, file)) => Ok(Self { file, name }),
            Ok((false, file)) => Self::copied(file, name),
            Err(error) => Err(unread(&name, &error)),
        }
    }

    fn copied(from: impl Read, name: String) -> Outcome<Self> {
        let copied = || {
            let (mut from, mut to) = (BufReader::new(from), BufWriter::new(tempfile::tempfile()?));
            loop {
                let line = next_bytes(&mut from)?;
                if line.is_empty() {
                    return Ok(to.into_inner()?);
                }
                to.write_all(&line)?;
            }
        };
        match copied() {
            Ok(file) => Ok(Self { file, name }),
            Err(error) => Err(unread(&name, &error)),
        }
    }

    /// Validates all lines, and reports invalid ones.
    pub(super) fn look(&mut self, json: bool) -> Outcome<Looked> {
        let mut looked = Looked::default();
        // The number of lines since the last end. Invalid ones count, because their sequences were exported.
        let (mut since, mut has_end) = (0, false);
        let name = self.name.clone();
        for line in self.entries()? {
            let (number, content) = line?;
            has_end = matches!(content, Ok(Content::End(_)));
            match content {
                Ok(Content::Sequence(_)) => looked.good += 1,
                Ok(Content::End(count)) => {
                    looked.is_cut |= count != since;
                    since = 0;
                    continue;
                }
                Err(why) => {
                    looked.bad += 1;
                    if looked.bad <= TOLD {
                        CliError::usage(why).at(&format!("{name}, line {number}")).report(json);
                    }
                }
            }
            since += 1;
        }
        looked.is_cut |= !has_end;
        if looked.bad > TOLD {
            output::note(json, &format!("further lines that cannot be read: {}", looked.bad - TOLD));
        }
        Ok(looked)
    }

    /// Returns the lines that are not blank, with their numbers, from the start of the file.
    pub(super) fn entries(&mut self) -> Outcome<impl Iterator<Item = Outcome<Numbered>> + use<'_>> {
        let (file, name) = (&mut self.file, self.name.clone());
        file.rewind().map_err(|error| unread(&name, &error))?;
        let mut reader = BufReader::new(file);
        let mut number = 0;
        Ok(std::iter::from_fn(move || {
            loop {
                number += 1;
                match next_line(&mut reader).transpose()? {
                    Ok(text) if text.trim().is_empty() => {}
                    Ok(text) => return Some(Ok((number, Content::read(text.trim())))),
                    Err(error) if error.kind() == ErrorKind::InvalidData => {
                        return Some(Ok((number, Err(error.to_string()))));
                    }
                    Err(error) => return Some(Err(unread(&format!("{name}, line {number},"), &error))),
                }
            }
        }))
    }
}

/// A line: its number, and its content or why it is invalid.
type Numbered = (u64, Result<Content, String>);

fn unread(name: &str, error: &io::Error) -> CliError {
    CliError::io(&format!("{name} cannot be read"), error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Lines {
        Lines::copied(text.as_bytes(), "f".to_owned()).unwrap()
    }

    fn looked(text: &str) -> (u64, u64, bool) {
        let looked = lines(text).look(false).unwrap();
        (looked.good, looked.bad, looked.is_cut)
    }

    #[test]
    fn last_line_counts_good_and_bad_lines_before_it() {
        let good = "{\"format\":\"1\",\"name\":\"s\",\"next\":\"5\",\"start\":\"1\",\"max\":\"9\"}\n";
        let end = exported::end;
        for (text, expected) in [
            (String::new(), (0, 0, true)),
            (end(0), (0, 0, false)),
            (good.to_owned(), (1, 0, true)),
            (good.to_owned() + &end(1), (1, 0, false)),
            (good.to_owned() + &end(2), (1, 0, true)),
            (format!("{good}\nx\n{}", end(2)), (1, 1, false)),
            (format!("x\n{}", end(0)), (0, 1, true)),
            (format!("{good}{}{good}{good}{}", end(1), end(2)), (3, 0, false)),
            (format!("{good}{}{good}{}", end(2), end(1)), (2, 0, true)),
            (format!("{good}{}{good}", end(1)), (2, 0, true)),
        ] {
            assert_eq!(looked(&text), expected, "{text}");
        }
    }

    #[test]
    fn verdict_counts_the_lines_and_says_what_to_do() {
        let looked = |good, bad, is_cut| Looked { good, bad, is_cut };
        for (looked, verdict, remainder) in [
            (looked(3, 0, false), None, None),
            (
                looked(3, 1, false),
                Some("1 of 4 lines cannot be read; nothing was changed"),
                Some("1 unreadable line skipped"),
            ),
            (
                looked(3, 2, true),
                Some("2 of 5 lines cannot be read; nothing was changed"),
                Some("2 unreadable lines skipped"),
            ),
            (
                looked(3, 0, true),
                Some("the export is not complete; nothing was changed"),
                Some("the export is not complete; its lines were imported"),
            ),
        ] {
            let (before, after) = (looked.verdict().err(), looked.remainder().err());
            assert_eq!(before.as_ref().map(CliError::message), verdict);
            assert_eq!(after.as_ref().map(CliError::message), remainder);
        }
    }

    #[test]
    fn entries_are_numbered_from_one_on_every_reading() {
        let mut lines = lines(&format!("\n \n{}x\n", exported::end(7)));
        for _ in 0..2 {
            let read: Vec<_> = lines.entries().unwrap().map(|line| line.ok().unwrap()).collect();
            assert_eq!(read.len(), 2);
            assert_eq!(read[0], (3, Ok(Content::End(7))));
            assert!(read[1].0 == 4 && read[1].1.is_err(), "{read:?}");
        }
    }
}
