//! The lines of a file, read twice: once to see whether it is whole, and once to do what it says.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek};
use std::path::Path;

use crate::exported::Entry;
use crate::failure::{Failure, Outcome};
use crate::output;

/// How long a line may be, far beyond what a sequence takes: a file without any end of line is none of ours.
const LONGEST: usize = 1 << 16;
/// How many bad lines are told, before it is clear that this is another kind of file.
const TOLD: u64 = 10;

/// A file that can be read again from its beginning.
pub(super) struct Lines {
    file: File,
    /// As it is named in messages.
    pub(super) name: String,
}

/// What a first reading found.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Looked {
    pub(super) good: u64,
    pub(super) bad: u64,
}

impl Lines {
    /// The file, or what comes on stdin.
    pub(super) fn open(path: Option<&Path>) -> Outcome<Self> {
        let Some(path) = path.filter(|path| *path != Path::new("-")) else {
            let kept = tempfile::tempfile().and_then(|mut file| {
                io::copy(&mut io::stdin().lock(), &mut file)?;
                Ok(file)
            });
            let file = kept.map_err(|error| Failure::io("stdin cannot be read", &error))?;
            return Ok(Self { file, name: "stdin".to_owned() });
        };
        let name = path.display().to_string();
        match File::open(path) {
            Ok(file) => Ok(Self { file, name }),
            Err(error) => Err(Failure::io(&format!("{name} cannot be read"), &error)),
        }
    }

    /// Reads all of it, and tells of each line that is bad.
    pub(super) fn look(&mut self, json: bool) -> Outcome<Looked> {
        let mut looked = Looked::default();
        let name = self.name.clone();
        for line in self.entries()? {
            match line? {
                (_, Ok(_)) => looked.good += 1,
                (number, Err(why)) => {
                    looked.bad += 1;
                    if looked.bad <= TOLD {
                        Failure::usage(why).at(&format!("{name}, line {number}")).report(json);
                    }
                }
            }
        }
        if looked.bad > TOLD {
            output::note(json, &format!("lines that cannot be read, beyond these: {}", looked.bad - TOLD));
        }
        Ok(looked)
    }

    /// Each line that is not blank, with its number, from the beginning.
    pub(super) fn entries(
        &mut self,
    ) -> Outcome<impl Iterator<Item = Outcome<(u64, Result<Entry, String>)>> + use<'_>> {
        let (file, name) = (&mut self.file, self.name.clone());
        let failed = move |error: &io::Error| Failure::io(&format!("{name} cannot be read"), error);
        file.rewind().map_err(|error| failed(&error))?;
        let mut reader = BufReader::new(file);
        let mut number = 0;
        Ok(std::iter::from_fn(move || {
            loop {
                let mut line = Vec::new();
                match read_line(&mut reader, &mut line) {
                    Ok(0) => return None,
                    Ok(_) => number += 1,
                    Err(error) => return Some(Err(failed(&error))),
                }
                if !line.trim_ascii().is_empty() {
                    return Some(Ok((number, entry(&line))));
                }
            }
        }))
    }
}

/// Reads to the end of a line, or as far as a line may reach.
fn read_line(reader: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<usize> {
    io::Read::take(reader, LONGEST as u64).read_until(b'\n', line)
}

fn entry(line: &[u8]) -> Result<Entry, String> {
    let text = str::from_utf8(line).map_err(|_| "it is not UTF-8".to_owned())?;
    Entry::read(text.trim())
}
