//! Runs the binary in a temporary directory.

// Each test file uses only a part of this module.
#![allow(dead_code)]

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// Returns the names of an object's fields in alphabetical order.
pub(crate) fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<_> = value.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

/// A temporary working directory, in which `idmill` runs as in a shell.
#[derive(Debug)]
pub(crate) struct Place(TempDir);

impl Place {
    /// Creates an empty directory.
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Creates a directory whose default store has the sequence `s` with these bounds.
    pub(crate) fn with_sequence(start: u64, max: u64) -> Self {
        let place = Self::new();
        let created = place.run(&["create", "s", "--start", &start.to_string(), "--max", &max.to_string()]);
        assert_eq!(created.code, 0, "{created:?}");
        place
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Returns the names of the files in the directory.
    pub(crate) fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Prepares a command. Stdin is empty, and the environment variables that affect most commands are
    /// removed.
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

    /// Prepares a server with a JSON log. Both of its ports are free ones.
    pub(crate) fn serve(&self, args: &[&str]) -> Command {
        self.command(&[&["serve", "--json", "--resp=127.0.0.1:0", "--http=127.0.0.1:0"], args].concat())
    }

    /// Prepares this command to run after a shell's `limit`, such as `ulimit -n 64`.
    pub(crate) fn limited(&self, limit: &str, inner: &Command) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{limit}; exec \"$@\""), "sh"]).arg(inner.get_program());
        shell.args(inner.get_args()).current_dir(self.path()).stdin(Stdio::null());
        for (name, value) in inner.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        shell
    }

    /// Prepares a shell command, in which `idmill` is the tested program.
    pub(crate) fn shell(&self, command: &str) -> Command {
        let binary = Path::new(env!("CARGO_BIN_EXE_idmill")).parent().unwrap();
        let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).current_dir(self.path()).env("PATH", &path);
        shell.env_remove("IDMILL_STORE").env_remove("IDMILL_GUARD");
        shell
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        self.command(args).output().unwrap().into()
    }

    /// Runs a command that must succeed, and returns its JSON.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let ran = self.run(args);
        assert_eq!(ran.code, 0, "{args:?}: {ran:?}");
        serde_json::from_str(&ran.out).unwrap()
    }

    /// Runs a command that must succeed, and returns its lines of JSON.
    pub(crate) fn lines(&self, args: &[&str]) -> Vec<Value> {
        let ran = self.run(args);
        assert_eq!(ran.code, 0, "{args:?}: {ran:?}");
        ran.lines()
    }

    /// Returns the sequence `s`.
    pub(crate) fn show(&self) -> Value {
        self.json(&["show", "s", "--json"])
    }
}

/// The result of a command.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    /// Returns the printed lines of JSON.
    pub(crate) fn lines(&self) -> Vec<Value> {
        self.out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    /// Returns the printed ids. Every line must be a complete id.
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
