//! The progress bar: on a terminal, and only if the result goes elsewhere.

use std::process::{Command, Stdio};

use crate::common::Place;

/// Runs `idmill` with a terminal as its stderr, and returns what the terminal gets. `shell` continues the
/// command line.
fn on_a_terminal(place: &Place, shell: &str) -> Option<String> {
    let mut script = Command::new("script");
    let command = format!("{} {shell}", env!("CARGO_BIN_EXE_idmill"));
    script.args(["--quiet", "--return", "--command", &command, "/dev/null"]).current_dir(place.path());
    script.env_remove("IDMILL_STORE").env_remove("IDMILL_GUARD").env("TERM", "xterm").stdin(Stdio::null());
    match script.output() {
        Ok(ran) if ran.status.success() => Some(String::from_utf8(ran.stdout).unwrap()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            idmill_testing::skip("there is no command `script`");
            None
        }
        ran => panic!("{ran:?}"),
    }
}

#[test]
fn only_long_runs_to_a_file_show_their_progress() {
    let place = Place::with_sequence(1, 10_000_000);
    for (shell, shown) in [
        ("next s -n 100000 > ids", false),
        ("next s -n 100001 > ids", true),
        ("next s -n 100001", false),
        ("next s -n 100001 2>&1 > ids | cat", false),
    ] {
        let Some(text) = on_a_terminal(&place, shell) else { return };
        assert_eq!(text.contains(" of 100,001 ids, "), shown, "{shell}");
        assert_eq!(text.contains('\u{2588}'), shown, "{shell}");
    }
}

#[test]
fn measurements_show_their_progress() {
    let place = Place::new();
    let shell = "bench --mode async,batch --threads 1 -n 3 --transaction 1ms > table";
    let Some(text) = on_a_terminal(&place, shell) else { return };
    for shown in ["0 %  async x 1", "50 %  async x 1", "100 %  batch x 1"] {
        assert!(text.contains(shown), "{shown}: {text:?}");
    }
    assert!(text.ends_with("\r\u{1b}[2K"), "the bar is removed at the end: {text:?}");
}
