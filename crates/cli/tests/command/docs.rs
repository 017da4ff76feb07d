//! Checks docs/guide/cli.md: its `console` blocks are run in order in one directory.
//!
//! `IDMILL_DOCS=write cargo test -p idmill-cli --test command docs` updates the output in the page.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use idmill::ErrorKind;
use idmill_doctor::FindingKind;

use crate::common::Place;

const GUIDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide");

/// The other programs in the commands of the guide.
const OTHERS: [&str; 4] = ["cargo", "docker", "kubectl", "redis-cli"];

#[test]
#[cfg_attr(not(feature = "full"), ignore = "the page shows the command with all stores")]
fn reference_shows_the_actual_output() {
    let file = Path::new(GUIDE).join("cli.md");
    let documented = std::fs::read_to_string(&file).unwrap();
    let place = Place::new();
    // The commands in `cli.md` use this application table.
    let app = idmill_sqlite::rusqlite::Connection::open(place.path().join("app.db")).unwrap();
    app.execute_batch("CREATE TABLE parts (id INTEGER PRIMARY KEY); INSERT INTO parts VALUES (500)").unwrap();
    let (happened, commands) = replay(&documented, &place);
    assert!(commands > 20, "only {commands} commands were found");
    if std::env::var_os("IDMILL_DOCS").is_some_and(|what| what == "write") {
        std::fs::write(&file, happened).unwrap();
        return;
    }
    for (documented, happened) in documented.lines().zip(happened.lines()) {
        assert_eq!(without_chance(documented), without_chance(happened));
    }
    assert_eq!(documented.lines().count(), happened.lines().count());
}

/// Many pages use stores that are not available here, so the commands are not run: the command's help must
/// have each option.
#[test]
fn commands_in_the_guide_exist() {
    let place = Place::new();
    let global = place.run(&["--help"]).out;
    let global = global.split("Global options:\n").nth(1).unwrap().split("\nExamples:").next().unwrap();
    let mut options = 0;
    for page in pages() {
        let commands = page.lines().filter_map(|line| line.trim_start().strip_prefix("$ "));
        for command in commands.flat_map(|line| line.split(" | ")) {
            let variables = |word: &&str| word.starts_with(char::is_uppercase);
            let ends = |word: &&str| word.starts_with(['&', ';']);
            let words: Vec<_> =
                command.split_whitespace().skip_while(variables).take_while(|word| !ends(word)).collect();
            if OTHERS.contains(&words[0]) {
                continue;
            }
            assert_eq!(words[0], "idmill", "{command}");
            let help = place.run(&[words[1], "--help"]);
            assert_eq!(help.code, 0, "{command}: {help:?}");
            for option in words.iter().filter(|word| word.starts_with("--")) {
                let name = option.split('=').next().unwrap();
                let known =
                    |text: &str| text.contains(&format!("{name} ")) || text.contains(&format!("{name}\n"));
                assert!(known(&help.out) || known(global), "{command}: no option {name}");
                options += 1;
            }
        }
    }
    assert!(options > 20, "only {options} options were found");
}

/// The page lists every kind of error, and every finding of the doctor.
#[test]
fn troubleshooting_has_each_error_and_finding() {
    let page = std::fs::read_to_string(Path::new(GUIDE).join("troubleshooting.md")).unwrap();
    let (errors, rest) = page.split_once("## Findings of the doctor").unwrap();
    let (findings, _) = rest.split_once("## The server").unwrap();
    let listed = |text: &str| -> BTreeSet<String> {
        text.lines()
            .filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned()))
            .collect()
    };
    let errors = listed(errors.split_once("## Errors").unwrap().1);
    assert_eq!(errors, ErrorKind::ALL.iter().map(ToString::to_string).collect());
    assert_eq!(listed(findings), FindingKind::ALL.iter().map(ToString::to_string).collect());
}

/// Returns the texts of the pages, except `cli.md`, whose commands the first test runs.
fn pages() -> Vec<String> {
    let files = std::fs::read_dir(GUIDE).unwrap().map(|entry| entry.unwrap().path());
    let is_read =
        |file: &PathBuf| file.extension().is_some_and(|kind| kind == "md") && !file.ends_with("cli.md");
    files.filter(is_read).map(|file| std::fs::read_to_string(file).unwrap()).collect()
}

/// Returns the text with the current output of each command, and the number of commands.
fn replay(text: &str, place: &Place) -> (String, usize) {
    let (mut happened, mut commands, mut within) = (String::new(), 0, false);
    for line in text.lines() {
        let fence = line.starts_with("```");
        if let Some(command) = line.strip_prefix("$ ").filter(|_| within) {
            commands += 1;
            happened += &[line, "\n", &shell(command, place)].concat();
        } else if !within || fence {
            happened += &[line, "\n"].concat();
        }
        if fence {
            within = line == "```console";
        }
    }
    (happened, commands)
}

/// Returns the output of a command on both streams, as on a terminal.
fn shell(command: &str, place: &Place) -> String {
    let binary = PathBuf::from(env!("CARGO_BIN_EXE_idmill"));
    let path = std::env::join_paths(
        std::iter::once(binary.parent().unwrap().to_owned())
            .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    );
    let output = Command::new("sh")
        .args(["-c", &format!("exec 2>&1; {command}")])
        .current_dir(place.path())
        .env("PATH", path.unwrap())
        .env_remove("IDMILL_STORE")
        .env_remove("IDMILL_EXISTING")
        .env_remove("IDMILL_GUARD")
        .env_remove("COLUMNS")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let directory = place.path().canonicalize().unwrap();
    text.replace(directory.to_str().unwrap(), "/home/me")
        .lines()
        .flat_map(|line| [line.trim_end(), "\n"])
        .collect()
}

/// Masks incarnations, which differ from run to run. An incarnation is a word of 16 hexadecimal digits.
fn without_chance(line: &str) -> String {
    let is_chance = |word: &str| word.len() == 16 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    line.split_inclusive(|c: char| !c.is_ascii_alphanumeric())
        .map(|word| {
            let end = word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
            if is_chance(end) { word.replace(end, "INCARNATION") } else { word.to_owned() }
        })
        .collect()
}
