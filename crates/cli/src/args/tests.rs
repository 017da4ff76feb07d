use std::time::Duration;

use idmill::store::{Bounds, Identity, SequenceInfo};

use super::sequences::BoundsArgs;
use super::*;
use crate::error::CliError;

fn parsed(args: &str) -> clap::error::Result<Command> {
    Cli::try_parse_from(format!("idmill {args}").split(' ')).map(|cli| cli.command)
}

/// Returns the options of a command that have a default, with their values.
fn defaults(command: &clap::Command) -> String {
    let shown = |arg: &Arg| {
        let values: Vec<_> = arg.get_default_values().iter().map(|value| value.to_str().unwrap()).collect();
        (!values.is_empty()).then(|| format!(" --{} {}", arg.get_long().unwrap(), values.concat()))
    };
    command.get_arguments().filter_map(shown).collect()
}

#[test]
fn every_default_has_its_documented_value() {
    let all = Cli::command();
    let all = all.get_subcommands().map(|command| format!("{}{}", command.get_name(), defaults(command)));
    let with_defaults: Vec<_> = all.filter(|line| line.contains(' ')).collect();
    let expected = [
        "next --count 1 --order process --timeout 30s",
        "create --timeout 30s",
        "list --timeout 30s",
        "show --timeout 30s",
        "set --timeout 30s",
        "remove --timeout 30s",
        "revoke --timeout 30s",
        "export --timeout 30s",
        "import --timeout 30s",
        "bench --threads 10 --duration 3s --transaction 10ms --values 10 --step 200 --watermark 50",
        "check --rate 100 --outage 5m --samples 100 --timeout 30s",
        "doctor --ends-within 30d --timeout 30s",
        "plan --processes 1 --outage 5m --datacenters 1 --isolation 24h --latency 10ms --bits 63 --restarts 1",
    ];
    assert_eq!(with_defaults, expected);
}

#[test]
fn option_without_its_value_has_a_default() {
    let Ok(Command::Doctor(doctor)) = parsed("doctor --watch") else { panic!("not parsed") };
    assert_eq!(doctor.watch, Some(Duration::from_secs(60)));
    let Ok(Command::Serve(serve)) = parsed("serve --insecure --create") else { panic!("not parsed") };
    assert_eq!((serve.keys.insecure, serve.keys.create), (Some(true), Some(true)));
}

#[test]
fn default_bounds_fit_a_64_bit_column() {
    let column = 9_223_372_036_854_775_807;
    for (start, max, bounds) in [
        (None, None, (1, column)),
        (Some(5), None, (5, column)),
        (Some(column), None, (column, column)),
        (Some(column + 1), None, (column + 1, u64::MAX)),
        (None, Some(9), (1, 9)),
    ] {
        let checked = BoundsArgs { start, max }.check().unwrap();
        assert_eq!((checked.start(), checked.max()), bounds, "{start:?}");
        assert_eq!(BoundsArgs { start, max }.are_given(), start.is_some() || max.is_some());
    }
    assert!(BoundsArgs { start: Some(5), max: Some(4) }.check().is_err());
}

#[test]
fn given_bounds_must_be_those_of_the_sequence() {
    let identity = Identity { incarnation: 1, epoch: 0 };
    let found = SequenceInfo::stored("s".parse().unwrap(), Some(3), Bounds::new(2, 9).unwrap(), identity);
    for (start, max, message) in [
        (None, None, None),
        (Some(2), Some(9), None),
        (Some(1), None, Some("`s` exists with `--start 2`, not 1")),
        (Some(2), Some(8), Some("`s` exists with `--max 9`, not 8")),
    ] {
        let refused = BoundsArgs { start, max }.accept(&found).err();
        assert_eq!(refused.as_ref().map(CliError::message), message);
    }
}

#[test]
fn limits_of_numbers_are_inclusive() {
    for (option, least, most) in [
        ("bench --threads", 1_u64, 1024_u64),
        ("check --samples", 1, 1_000_000),
        ("plan --rate 1 --processes", 1, 1_000_000),
        ("plan --rate 1 --datacenters", 1, 1000),
        ("plan --rate 1 --bits", 8, 64),
        ("next s --step", 1, 1 << 48),
        ("list --limit", 1, 1 << 48),
    ] {
        for (value, is_valid) in [(least - 1, false), (least, true), (most, true), (most + 1, false)] {
            assert_eq!(parsed(&format!("{option} {value}")).is_ok(), is_valid, "{option} {value}");
        }
    }
}

#[test]
fn signal_reports_what_the_command_may_have_done() {
    let (unfinished, changed) =
        ("the command did not finish", "the change may have been made: check with `idmill show`");
    let gap = "ids that were reserved but not printed leave a gap";
    let resumed = "each sequence was either imported or left unchanged: import the file again to finish";
    for (args, so, changes) in [
        ("next s", gap, true),
        ("create s", changed, true),
        ("set s --next 5", changed, true),
        ("remove s", changed, true),
        ("revoke s", changed, true),
        ("import", resumed, true),
        ("doctor", unfinished, false),
        ("doctor --fix", unfinished, true),
        ("check", unfinished, true),
        ("bench", unfinished, true),
        ("list", unfinished, false),
        ("export", unfinished, false),
    ] {
        let stopped = parsed(args).unwrap().when_stopped();
        assert_eq!((stopped.so, stopped.changes, stopped.prints), (so, changes, args == "next s"), "{args}");
    }
    assert!(parsed("serve").unwrap().serves() && !parsed("next s").unwrap().serves());
}

/// Each option of `serve` that the file can set, with its value as an argument and in TOML.
const SERVED: [(&str, &str, &str); 20] = [
    ("resp", "127.0.0.1:7", "'127.0.0.1:7'"),
    ("http", "none", "'none'"),
    ("http-hosts", "a.example,b.example", "['a.example', 'b.example']"),
    ("tokens", "t", "'t'"),
    ("tls-cert", "c", "'c'"),
    ("tls-key", "k", "'k'"),
    ("tls-client-ca", "ca", "'ca'"),
    ("insecure", "true", "true"),
    ("create", "false", "false"),
    ("timeout", "1s", "'1s'"),
    ("max-age", "2s", "'2s'"),
    ("idle", "3s", "'3s'"),
    ("shutdown-timeout", "4s", "'4s'"),
    ("shutdown-delay", "0s", "'0s'"),
    ("max-connections", "5", "5"),
    ("log-format", "json", "'json'"),
    ("log-format", "text", "'text'"),
    ("outage-budget", "6s", "'6s'"),
    ("max-buffered", "7", "7"),
    ("order", "global", "'global'"),
];
const OF_SEQUENCES: [&str; 3] = ["outage-budget", "max-buffered", "order"];

fn served(args: &str) -> Keys {
    let Ok(Command::Serve(serve)) = parsed(format!("serve {args}").trim()) else { panic!("not parsed") };
    serve.keys
}

#[test]
fn file_of_serve_has_the_keys_of_its_options() {
    let command = Cli::command();
    let options = command.find_subcommand("serve").unwrap().get_arguments().filter_map(Arg::get_long);
    let options: BTreeSet<_> = options.filter(|option| !["config", "check"].contains(option)).collect();
    assert_eq!(options, SERVED.iter().map(|(option, ..)| *option).collect());
    for (option, argument, value) in SERVED {
        let flag = served(&format!("--{option}={argument}"));
        if OF_SEQUENCES.contains(&option) {
            let file: Keys = toml::from_str(&format!("[sequences.'*']\n{option} = {value}")).unwrap();
            assert_ne!(flag.all, SequenceKeys::default());
            assert_eq!(file.sequences["*"], flag.all, "{option}");
        } else {
            let file: Keys = toml::from_str(&format!("{option} = {value}")).unwrap();
            assert_ne!(format!("{flag:?}"), format!("{:?}", Keys::default()));
            assert_eq!(format!("{file:?}"), format!("{flag:?}"));
        }
    }
}

#[test]
fn wrong_value_in_the_file_of_serve_is_explained() {
    let address = "write an address and a port, such as 127.0.0.1:7380 or [::1]:7380, or `none`";
    for (text, message) in [
        ("resp = 'localhost'", address),
        ("http = ''", address),
        ("timeout = '0s'", "it must be more than 0 and at most a year"),
        ("idle = '366d'", "it must be at most a year"),
        ("shutdown-delay = '366d'", "it must be at most a year"),
        ("[sequences.a]\nmax-buffered = 0", "it must be from 1 to 2^48 (281474976710656)"),
        ("[sequences.a]\norder = 'any'", "use process, thread or global"),
        ("[sequences.a]\noutage-budget = '0s'", "it must be more than 0 and at most a year"),
    ] {
        assert_eq!(toml::from_str::<Keys>(text).unwrap_err().message(), message, "{text}");
    }
}

#[test]
fn setting_is_taken_from_the_file_unless_it_is_given() {
    for (option, argument, _) in SERVED {
        let given = served(&format!("--{option}={argument}"));
        let shown = format!("{given:?}");
        assert_eq!(format!("{:?}", given.clone().over(Keys::default())), shown);
        assert_eq!(format!("{:?}", Keys::default().over(given)), shown);
    }
    let other =
        "--resp=none --create=true --timeout=9s --log-format=text --outage-budget=9s --max-buffered=9";
    let [given, file] = ["--timeout=1s --max-buffered=7", other].map(served);
    let both = served(&other.replace("timeout=9s", "timeout=1s").replace("max-buffered=9", "max-buffered=7"));
    assert_eq!(format!("{:?}", given.over(file)), format!("{both:?}"));
}
