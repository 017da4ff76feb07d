//! The copy of the source in which bugs are planted.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::table::Edit;

/// The result of a model run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    Failed,
    TimedOut,
}

/// The files that cargo needs to build this crate: the members of the workspace, with all targets that
/// their manifests name.
const NEEDED: &[&str] =
    &["Cargo.toml", "Cargo.lock", "src", "tests", "benches", "crates", "examples", "loom-tests", "stores"];

/// Prefixes of the files that cargo generates for this package.
const OURS: &[&str] = &["loom-tests-", "loom_tests-", "libloom_tests-", "models-", "mutants-"];

pub(crate) struct Tree {
    root: PathBuf,
    target: PathBuf,
}

/// The original text of changed files, which is restored on drop.
pub(crate) struct Planted(Vec<(PathBuf, String)>);

impl Drop for Planted {
    fn drop(&mut self) {
        for (path, text) in self.0.drain(..).rev() {
            fs::write(&path, text).expect("was written before");
        }
    }
}

impl Tree {
    pub(crate) fn copy() -> Result<Self, String> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("no workspace above this crate")?;
        // `this` is <target>/<profile>/mutants. The copy has its own target directory, because it builds
        // programs with the same names.
        let this = std::env::current_exe().map_err(|error| error.to_string())?;
        let built = this.parent().ok_or("not run by cargo")?;
        let target = built.with_file_name("mutants");
        let root = target.join("tree");
        let copied = remove(&root)
            .and_then(|()| NEEDED.iter().try_for_each(|name| copy(&source.join(name), &root.join(name))))
            .and_then(|()| share(built, &target.join(built.file_name().unwrap_or_default())));
        copied.map_err(|error| format!("copying {} to {}: {error}", source.display(), root.display()))?;
        Ok(Self { root, target })
    }

    /// Returns the path, the text, and the edited text. Fails unless the text occurs exactly once.
    pub(crate) fn planted(&self, edit: &Edit) -> Result<(PathBuf, String, String), String> {
        let path = self.root.join(edit.file);
        let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", edit.file))?;
        match text.matches(edit.find).count() {
            1 => {
                let changed = text.replacen(edit.find, edit.replace, 1);
                Ok((path, text, changed))
            }
            count => Err(format!(
                "{} must have this text once, but has it {count} times:\n{}",
                edit.file, edit.find
            )),
        }
    }

    pub(crate) fn plant(&self, edits: &[Edit]) -> Result<Planted, String> {
        let mut planted = Planted(Vec::new());
        for edit in edits {
            let (path, before, after) = self.planted(edit)?;
            fs::write(&path, after).map_err(|error| error.to_string())?;
            planted.0.push((path, before));
        }
        Ok(planted)
    }

    /// Builds the program that runs the models, and returns its path.
    pub(crate) fn build(&self) -> Result<PathBuf, String> {
        let output = self.cargo().output().map_err(|error| error.to_string())?;
        if !output.status.success() {
            return Err(format!("does not build:\n{}", String::from_utf8_lossy(&output.stderr)));
        }
        let messages = String::from_utf8_lossy(&output.stdout);
        let models = messages.lines().find(|line| line.contains("\"kind\":[\"test\"]"));
        let path = models.and_then(|line| line.split_once("\"executable\":\"")?.1.split('"').next());
        path.map(PathBuf::from).ok_or_else(|| "cargo names no executable".to_owned())
    }

    /// Copies a program to a file named after a mutant.
    pub(crate) fn keep(&self, program: &Path, name: &str) -> Result<PathBuf, String> {
        let kept = self.root.join(name);
        fs::copy(program, &kept).map_err(|error| format!("copying {}: {error}", program.display()))?;
        Ok(kept)
    }

    fn cargo(&self) -> Command {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command
            .args(["build", "--locked", "--package", "loom-tests", "--test", "models", "--profile", "loom"])
            .args(["--message-format", "json-render-diagnostics", "--target-dir"])
            .arg(&self.target)
            .current_dir(&self.root)
            .env("RUSTFLAGS", "--cfg idmill_loom")
            // A mutant changes a line or two: compile incrementally, whatever the caller has set. Models fail
            // early, so optimising this crate takes longer than it saves. loom itself is optimised.
            .env("CARGO_INCREMENTAL", "1")
            .args(["--config", "profile.loom.package.loom-tests.opt-level=0"])
            .stdin(Stdio::null());
        command
    }
}

/// Runs one model of a program that `build` returned.
pub(crate) fn run(program: &Path, model: &str, limit: Duration) -> Result<Outcome, String> {
    let log = program.with_extension("log");
    let file = fs::File::create(&log).map_err(|error| error.to_string())?;
    let errors = file.try_clone().map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    command.args(["--exact", model]).env("RUST_BACKTRACE", "0").stdout(file).stderr(errors);
    let passed = command.spawn().and_then(|child| ended(child, limit)).map_err(|error| error.to_string())?;
    let log = fs::read_to_string(&log).map_err(|error| error.to_string())?;
    if !log.contains(&format!("test {model} ...")) {
        return Err(format!("{model} did not run:\n{log}"));
    }
    Ok(match passed {
        Some(true) => Outcome::Passed,
        Some(false) => Outcome::Failed,
        None => Outcome::TimedOut,
    })
}

/// Returns whether the process succeeded, or `None` if it exceeded the limit and was killed.
fn ended(mut child: Child, limit: Duration) -> io::Result<Option<bool>> {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status.success()));
        }
        if begun.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Links the compiled dependencies into the copy's target directory. The dependencies are identical there,
/// and cargo identifies them by the files' names and times.
fn share(built: &Path, target: &Path) -> io::Result<()> {
    let is_theirs = |name: &str| !OURS.iter().any(|ours| name.starts_with(ours));
    for kind in ["deps", "build", ".fingerprint"] {
        if !target.join(kind).exists() {
            transplant(
                &built.join(kind),
                &target.join(kind),
                &|from, to| fs::hard_link(from, to),
                &is_theirs,
            )?;
        }
    }
    Ok(())
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    transplant(from, to, &|from, to| fs::copy(from, to).map(drop), &|_| true)
}

/// Transfers each file with `put` to the same path in the other tree, except below names that `keep`
/// rejects.
fn transplant(
    from: &Path,
    to: &Path,
    put: &impl Fn(&Path, &Path) -> io::Result<()>,
    keep: &impl Fn(&str) -> bool,
) -> io::Result<()> {
    if from.is_file() {
        fs::create_dir_all(to.parent().unwrap_or(to))?;
        return put(from, to);
    }
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        if name.to_str().is_none_or(keep) {
            transplant(&entry.path(), &to.join(&name), put, keep)?;
        }
    }
    Ok(())
}
