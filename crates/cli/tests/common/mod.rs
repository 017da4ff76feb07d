//! The binary in a directory of its own.

// Each test file uses its own part of this.
#![allow(dead_code)]

pub(crate) mod served;

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// The names of an object's fields, in the order of the alphabet, whichever they were read in.
pub(crate) fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<_> = value.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

/// An empty working directory, in which `idmill` is run as from a shell.
#[derive(Debug)]
pub(crate) struct Place(TempDir);

impl Place {
    /// An empty directory.
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// A directory whose default store has the sequence `s` of these bounds.
    pub(crate) fn with_sequence(start: u64, max: u64) -> Self {
        let place = Self::new();
        let created = place.run(&["create", "s", "--start", &start.to_string(), "--max", &max.to_string()]);
        assert_eq!(created.code, 0, "{created:?}");
        place
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// What is in the directory, by name.
    pub(crate) fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// A command that is about to be run: stdin is empty, and no setting of the environment reaches it.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_idmill"));
        command.args(args).current_dir(self.path()).stdin(Stdio::null());
        command
            .env_remove("IDMILL_STORE")
            .env_remove("IDMILL_EXISTING")
            .env_remove("IDMILL_GUARD")
            .env_remove("CLICOLOR_FORCE")
            .env_remove("COLUMNS");
        command
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        self.command(args).output().unwrap().into()
    }

    /// Runs a command that succeeds, for its JSON.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let ran = self.run(args);
        assert_eq!(ran.code, 0, "{args:?}: {ran:?}");
        serde_json::from_str(&ran.out).unwrap()
    }

    /// The sequence `s`.
    pub(crate) fn show(&self) -> Value {
        self.json(&["show", "s", "--json"])
    }
}

/// What became of a command.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    /// The ids printed; every line must be one, and end.
    pub(crate) fn ids(&self) -> Vec<u64> {
        assert!(self.out.is_empty() || self.out.ends_with('\n'), "a line that does not end");
        self.out.lines().map(|line| line.parse().unwrap()).collect()
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().expect("ended by itself"),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}
