//! Command lines: stores, help, and invalid input.

use std::fs;

use serde_json::Value;

use crate::common::{Place, Ran, keys};

const COMMANDS: [&str; 16] = [
    "next",
    "create",
    "list",
    "show",
    "set",
    "remove",
    "revoke",
    "export",
    "import",
    "doctor",
    "schema",
    "encode",
    "decode",
    "bench",
    "completions",
    "man",
];

#[test]
fn every_command_has_help() {
    let place = Place::new();
    for command in COMMANDS {
        let (short, long) = (place.run(&[command, "-h"]), place.run(&[command, "--help"]));
        assert_eq!((short.code, long.code), (0, 0), "{command}");
        assert!(short.out.contains("Usage: idmill") && long.out.contains("Usage: idmill"));
        assert!(long.out.len() > short.out.len(), "{command}");
        assert!(long.err.is_empty() && !long.out.contains('\x1b'));
        assert!(long.out.lines().all(|line| line.chars().count() <= 120), "{command}");
    }
    let help = place.run(&["--help"]).out;
    assert!(COMMANDS.iter().all(|command| help.contains(command)) && help.contains("Exit codes:"));
    assert!(help.contains("NO_COLOR") && help.contains("IDMILL_CHECK"), "{help}");
    assert_eq!(place.run(&["-V"]).out, format!("idmill {}\n", env!("CARGO_PKG_VERSION")));
    let version = place.run(&["--version"]).out;
    assert!(version.starts_with(&format!("idmill {}\nstores: ", env!("CARGO_PKG_VERSION"))), "{version}");
    assert!(version.contains("sqlite"), "{version}");
    assert_eq!(version.contains("postgres"), cfg!(feature = "postgres"), "{version}");
    assert!(place.files().is_empty());
}

#[test]
fn commands_of_other_tools_get_a_tip() {
    let place = Place::with_sequence(1, 10);
    for (args, tip) in [
        (&["next", "s", "3"][..], "`-n 3` prints 3 ids"),
        (&["list", "s"], "`idmill show s` shows one sequence"),
        (&["status"], "`idmill doctor`"),
        (&["version"], "`idmill --version`"),
    ] {
        let (plain, json) = (place.run(args), place.run(&[args, &["--json"]].concat()));
        assert_eq!((plain.code, json.code), (2, 2), "{args:?}");
        assert!(plain.err.contains(tip) && json.err.contains(tip), "{}{}", plain.err, json.err);
    }
    for (args, tip) in [
        (&["next", "s", "3"][..], Some("`-n 3` prints 3 ids")),
        (&["next", "s", "three"], None),
        (&["next", "s", "--three"], None),
        (
            &["ls", "a b"],
            Some("`idmill show 'a b'` shows one sequence; `idmill list --prefix 'a b'` lists several"),
        ),
        (&["list", "-x"], None),
        (&["list", "--name"], None),
        (&["show", "s", "t"], None),
        (&["version"], Some("`idmill --version` prints the version")),
        (&["info"], Some("`idmill list` lists the sequences; `idmill doctor` reports their problems")),
        (&["other"], None),
    ] {
        let ran = place.run(&[args, &["--json"]].concat());
        let error: Value = serde_json::from_str(&ran.err).unwrap();
        assert_eq!((ran.code, error["error"]["hint"].as_str()), (2, tip), "{args:?}");
    }
    for json in [&[][..], &["--json"]] {
        let ran = place.run(&[&["list", "postgres://app:hunter2@db/shop"], json].concat());
        assert!(ran.code == 2 && ran.err.contains("idmill show postgres://***@db/shop"), "{}", ran.err);
        assert!(!ran.err.contains("hunter2"), "{}", ran.err);
    }
    for (alias, command) in [("ls", "list"), ("rm", "remove"), ("delete", "remove")] {
        assert_eq!(place.run(&[alias, "--help"]).out, place.run(&[command, "--help"]).out);
    }
}

#[cfg(unix)]
#[test]
fn argument_that_is_not_utf8_is_rejected() {
    use std::os::unix::ffi::OsStrExt as _;

    let place = Place::new();
    let invalid = std::ffi::OsStr::from_bytes(b"\xff");
    let ran: Ran = place.command(&["next", "s"]).arg(invalid).output().unwrap().into();
    assert!(ran.code == 2 && ran.err.starts_with("error: "), "{ran:?}");
}

#[test]
fn unknown_scheme_gets_the_nearest_as_a_hint() {
    let place = Place::new();
    let ran = place.run(&["list", "--store", "sqllite:ids.db"]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("hint: did you mean `sqlite:`?"), "{}", ran.err);
    let ran = place.run(&["list", "--store", "http://localhost"]);
    assert!(
        ran.err.contains("use one of: `sqlite:PATH`") && !ran.err.contains("did you mean"),
        "{}",
        ran.err
    );
}

#[test]
fn subcommand_help_has_one_line_for_global_options() {
    let place = Place::with_sequence(1, 10);
    let line = "Global options (--store, --guard, --json, --verbose, --quiet): see `idmill --help`";
    for command in COMMANDS {
        for help in ["-h", "--help"] {
            let help = place.run(&[command, help]).out;
            assert_eq!(help.lines().filter(|each| *each == line).count(), 1, "{command}: {help}");
            for option in ["--store <", "--guard <", "--json\n", "--verbose..."] {
                assert!(!help.contains(option), "{command}: {option}");
            }
        }
        for args in [&["help", command][..], &[command, "--help"]] {
            assert!(place.run(args).out.contains(line), "{args:?}");
        }
    }
    let help = place.run(&["--help"]).out;
    for option in ["--store <URL>", "--guard <URL>", "--json\n", "-v, --verbose..."] {
        assert_eq!(help.matches(option).count(), 1, "{option}");
    }
    let store = ["--store", "sqlite:other.db"];
    for args in [["next", "s", store[0], store[1]], [store[0], store[1], "next", "s"]] {
        assert_eq!(place.run(&args).code, 0, "{args:?}");
    }
    assert!(place.files().contains(&"other.db".to_owned()));
    let shown = place.run(&["show", "s", "--json", "--store", "sqlite:other.db"]).out;
    assert_eq!(serde_json::from_str::<Value>(&shown).unwrap()["next"], 3);
    for shell in ["bash", "zsh", "fish"] {
        let script = place.run(&["completions", shell]).out;
        let store = if shell == "fish" { "-l store" } else { "--store" };
        assert!(script.matches(store).count() > COMMANDS.len(), "{shell}");
    }
}

#[test]
fn invalid_argument_is_named_and_changes_nothing() {
    let place = Place::new();
    let long = "x".repeat(201);
    for (args, says) in [
        (&["next"][..], "<NAME>"),
        (&["next", ""], "is empty"),
        (&["next", &long], "201 bytes"),
        (&["next", "a\nb"], "control character"),
        (&["next", " a"], "white space"),
        (&["next", "s", "-n", "-1"], "'-1'"),
        (&["next", "s", "-n", "1e6"], "1_000_000"),
        (&["next", "s", "-n", "18446744073709551616"], "0 to 18446744073709551615"),
        (&["next", "s", "--step", "0"], "1 to 2^48"),
        (&["next", "s", "--step", "281474976710657"], "1 to 2^48"),
        (&["next", "s", "--start", "5", "--max", "4"], "start 5 is larger than max 4"),
        (&["next", "s", "--timeout", "5"], "500ms"),
        (&["create", "s", "--start", "5", "--max", "4"], "start 5 is larger than max 4"),
        (&["next", "s", "--store", "dynamodb://localhost"], "`sqlite:PATH`"),
        (&["next", "s", "--store", "ids.db"], "`sqlite:ids.db`"),
        (&["next", "s", "--store", ""], "URL is empty"),
        (&["next", "s", "--store", "sqlite:ids.db?tabel=x"], "`tabel`"),
        (&["next", "s", "--store", "memory:"], "would repeat every id"),
        (&["set", "s"], "--next"),
        (&["bench", "--mode", "fast"], "'fast'"),
        (&["bench", "--threads", "0"], "'0'"),
        (&["bench", "-n", "0"], "`--iterations 0`"),
        (&["plan", "--rate", "many"], "'many'"),
        (&["check", "--samples", "0"], "'0'"),
        (&["frobnicate"], "frobnicate"),
        (&[], "Usage: idmill"),
    ] {
        let ran = place.run(args);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{args:?}: {ran:?}");
        assert!(ran.err.contains(says), "{args:?}: {}", ran.err);
        assert!(place.files().is_empty(), "{args:?}");
    }
}

#[test]
fn unopenable_store_error_has_its_own_exit_code() {
    let place = Place::new();
    std::fs::write(place.path().join("text"), "this is no database, however long it is. ".repeat(99))
        .unwrap();
    for (store, code, says) in [
        ("sqlite:no/where/ids.db", 4, "does not exist"),
        ("sqlite:.", 2, "directory"),
        ("sqlite:text", 1, "not an SQLite database"),
        ("sqlite:ids.db?mode=rw", 4, "no such file"),
    ] {
        let ran = place.run(&["next", "s", "--store", store]);
        assert_eq!((ran.code, ran.out.as_str()), (code, ""), "{store}: {ran:?}");
        assert!(ran.err.contains(says), "{store}: {}", ran.err);
    }
    assert_eq!(place.files(), ["text"]);
}

#[test]
fn store_flag_overrides_environment_and_default() {
    let place = Place::new();
    let with = |value: &str, args: &[&str]| -> Ran {
        place.command(args).env("IDMILL_STORE", value).output().unwrap().into()
    };
    assert_eq!(with("sqlite:env.db", &["next", "s"]).code, 0);
    assert_eq!(place.files(), ["env.db"]);
    assert_eq!(with("sqlite:env.db", &["next", "s", "--store", "sqlite:flag.db"]).code, 0);
    assert_eq!(place.files(), ["env.db", "flag.db"]);
    assert_eq!(place.run(&["next", "s"]).code, 0);
    assert_eq!(place.files(), ["env.db", "flag.db", "idmill.db"]);
    let ran = with("nonsense", &["list"]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("environment variable IDMILL_STORE"), "{}", ran.err);
}

/// A deployment with a missing value must not draw from another store, or without its guard.
#[test]
fn empty_store_or_guard_is_refused() {
    let place = Place::new();
    fs::write(place.path().join("serve.toml"), "store = \"sqlite:file.db\"\nguard = \"file:w\"\n").unwrap();
    let mut commands = vec![&["next", "s"][..]];
    if cfg!(feature = "serve") {
        commands.extend([&["serve", "--check"][..], &["serve", "--check", "--config=serve.toml"]]);
    }
    for (args, variable) in commands.iter().flat_map(|args| [(args, "IDMILL_STORE"), (args, "IDMILL_GUARD")])
    {
        let ran = Ran::from(place.command(args).env(variable, "").output().unwrap());
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{args:?}, {variable}: {ran:?}");
        assert!(
            ran.err.contains(&format!("{variable} is empty; set it to a URL, or unset it")),
            "{}",
            ran.err
        );
    }
    for args in [
        ["next", "s", "--store="],
        ["next", "s", "--guard="],
        ["next", "s", "--store=sqlite:s.db?guard="],
        ["next", "s", "--store=sqlite:s.db?guard"],
    ] {
        let ran = place.run(&args);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{args:?}: {ran:?}");
    }
    // A flag has precedence.
    let mut flagged = place.command(&["next", "s", "--store=sqlite:s.db", "--guard=file:w"]);
    let flagged = Ran::from(flagged.env("IDMILL_STORE", "").env("IDMILL_GUARD", "").output().unwrap());
    assert_eq!(flagged.ids(), [1], "{flagged:?}");
}

#[test]
fn errors_are_json_with_the_json_flag() {
    let place = Place::with_sequence(1, 10);
    let fields =
        ["causes", "exit_code", "hint", "kind", "message", "operation", "printed", "sequence", "status"];
    for (args, code, kind) in [
        (&["show", "other", "--json"][..], 4, "not_found"),
        (&["create", "s", "--json"], 5, "already_exists"),
        (&["set", "s", "--max", "0", "--json"], 2, "invalid_input"),
        (&["remove", "s", "--json"], 5, "conflict"),
        (&["next", "s", "-n", "11", "--json"], 3, "exhausted"),
        (&["next", "--json"], 2, "invalid_input"),
        (&["next", "s", "--step", "0", "--json"], 2, "invalid_input"),
    ] {
        let ran = place.run(args);
        assert_eq!(ran.code, code, "{args:?}: {ran:?}");
        assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
        let error = &serde_json::from_str::<Value>(&ran.err).unwrap()["error"];
        assert_eq!(keys(error), fields, "{error}");
        assert_eq!((&error["kind"], &error["exit_code"]), (&kind.into(), &code.into()), "{error}");
    }
    let noted = place.run(&["next", "s", "--json", "--store", "sqlite:new.db"]);
    assert_eq!(noted.out, "1\n");
    for line in noted.err.lines() {
        assert!(serde_json::from_str::<Value>(line).unwrap()["note"].is_string(), "{line}");
    }
}

#[test]
fn logs_go_to_stderr_only_with_verbose() {
    let place = Place::with_sequence(1, 10);
    assert_eq!(place.run(&["next", "s"]).err, "");
    let ran = place.run(&["next", "s", "-v"]);
    assert!(ran.out == "2\n" && ran.err.contains("reserving"), "{ran:?}");
}

#[test]
fn completions_include_every_command() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = place.run(&["completions", shell]).out;
        assert!(COMMANDS.iter().all(|command| script.contains(command)), "{shell}");
    }
}

#[test]
fn malformed_or_misplaced_url_never_prints_its_password() {
    let place = Place::new();
    let urls = [
        "\"postgres://app:hunter2@127.0.0.1:1/shop",
        " postgres//app:hunter2@127.0.0.1:1/shop",
        "host=127.0.0.1 user=app password=hunter2",
        "postgres://app:hunter2/shop",
        "app:hunter2@127.0.0.1:1/shop",
    ];
    for url in urls {
        let by_variable = place.command(&["next", "s"]).env("IDMILL_STORE", url).output().unwrap();
        for ran in [
            Ran::from(by_variable),
            place.run(&["next", "s", "--store", url]),
            place.run(&["next", "s", url]),
        ] {
            // A URL whose store is not compiled in may fail with code 1.
            let code =
                if url.starts_with("postgres:") && !cfg!(feature = "postgres") { 1..=2 } else { 2..=2 };
            assert!(code.contains(&ran.code) && ran.out.is_empty(), "{url}: {ran:?}");
            assert!(!ran.err.contains("hunter2"), "{url}: {}", ran.err);
        }
    }
    for url in ["file://app:hunter2@h/x", "postgres//app:hunter2@h/x", "app:hunter2@h/x"] {
        let by_variable = place.command(&["next", "s"]).env("IDMILL_GUARD", url).output().unwrap();
        for ran in [
            Ran::from(by_variable),
            place.run(&["next", "s", "--guard", url]),
            place.run(&["next", "s", "--store", &format!("sqlite:s.db?guard={url}")]),
        ] {
            assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{url}: {ran:?}");
            assert!(!ran.err.contains("hunter2"), "{url}: {}", ran.err);
        }
    }
    assert!(place.files().is_empty());
}

#[test]
fn quotes_and_white_space_around_a_url_are_trimmed() {
    let place = Place::new();
    for (url, id) in
        [("sqlite:ids.db", 1), ("sqlite:ids.db\n", 2), (" sqlite:ids.db ", 3), ("\"sqlite:ids.db\"", 4)]
    {
        let ran = Ran::from(place.command(&["next", "s"]).env("IDMILL_STORE", url).output().unwrap());
        assert_eq!((ran.code, ran.ids()), (0, vec![id]), "{url:?}: {ran:?}");
    }
    assert_eq!(place.files(), ["ids.db"]);
}
