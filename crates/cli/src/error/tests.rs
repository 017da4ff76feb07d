use super::*;

#[test]
fn deadline_error_names_the_store_without_its_password() {
    let url = idmill_any::parse("datastore://p?emulator=127.0.0.1:7&timeout=1s").unwrap();
    let late = CliError::from(Error::from(ErrorKind::Deadline)).of_store(&url);
    assert!(late.0.message.contains("127.0.0.1:7"), "{}", late.0.message);
    let url = idmill_any::parse("postgres://u:hunter2@127.0.0.1:7/ids").unwrap();
    let late = CliError::from(Error::from(ErrorKind::Deadline)).of_store(&url);
    assert!(!late.0.message.contains("hunter2"), "{}", late.0.message);
    let other = CliError::from(Error::from(ErrorKind::Exhausted)).of_store(&url);
    assert!(!other.0.message.contains("127.0.0.1"), "only a timeout names the store: {}", other.0.message);
}

#[test]
fn each_kind_of_error_has_its_exit_code() {
    use ErrorKind as Kind;
    for (kind, code, status) in [
        (Kind::Empty, 75, "transient"),
        (Kind::Exhausted, 3, "permanent"),
        (Kind::Overloaded, 75, "transient"),
        (Kind::Deadline, 75, "transient"),
        (Kind::Unavailable, 75, "transient"),
        (Kind::UnknownOutcome, 76, "unknown"),
        (Kind::Closed, 1, "permanent"),
        (Kind::InvalidInput, 2, "permanent"),
        (Kind::NotFound, 4, "permanent"),
        (Kind::AlreadyExists, 5, "permanent"),
        (Kind::Conflict, 5, "permanent"),
        (Kind::Denied, 1, "permanent"),
        (Kind::Witness, 1, "permanent"),
        (Kind::Unsupported, 1, "permanent"),
        (Kind::StoreViolation, 1, "permanent"),
    ] {
        let CliError(report) = CliError::from(Error::from(kind));
        assert_eq!((report.exit_code, report.status, report.kind), (code, status, kind.as_str()));
        assert!(CliError(report).is(kind));
    }
}

#[test]
fn own_errors_have_their_kinds_and_exit_codes() {
    let full = io::Error::from(io::ErrorKind::StorageFull);
    let left = io::Error::from(io::ErrorKind::BrokenPipe);
    let verdict = |errors, unknown| CliError::of_doctor(errors, unknown, String::new());
    for (error, kind, code) in [
        (CliError::usage(""), "invalid_input", 2),
        (CliError::refused(""), "conflict", 5),
        (verdict(0, 0), "warned", 6),
        (verdict(1, 0), "unsound", 7),
        (verdict(1, 1), "unsound", 7),
        (verdict(0, 1), "not_seen", 8),
        (CliError::io("f cannot be read", &full), "io", 1),
        (CliError::of_stdout("the result", &full), "io", 1),
        (CliError::of_stdout("the result", &left), "left", 0),
        (CliError::signal("terminated", 143), "interrupted", 143),
    ] {
        assert_eq!((error.0.kind, error.0.exit_code), (kind, code));
        assert_eq!((error.0.status, error.is_left()), ("permanent", code == 0));
    }
    let error = CliError::of_stdout("the result", &full);
    assert_eq!(error.message(), "the result cannot be written to stdout: no storage space");
}

#[test]
fn hint_fits_the_error_and_names_the_sequence() {
    let hint = |kind: ErrorKind, operation, message: &str| {
        let error = Error::new(kind, message.to_owned()).during(operation).of("a b");
        CliError::from(error).0.hint.unwrap_or_default()
    };
    let (set, draw, connect) = (Operation::Set, Operation::Reserve, Operation::Connect);
    for (kind, operation, message, says) in [
        (ErrorKind::Exhausted, draw, "", "`idmill set 'a b' --next N --max MAX` raises the last id"),
        (ErrorKind::NotFound, draw, "", "to create it, `idmill create 'a b' --start N`"),
        (ErrorKind::NotFound, connect, "", "correct `--store`; for a new store"),
        (ErrorKind::NotFound, connect, "the witness is missing", "correct `--guard` or `IDMILL_GUARD`"),
        (ErrorKind::AlreadyExists, draw, "", "`idmill show 'a b'` shows the sequence"),
        (ErrorKind::Conflict, set, "next would go backwards", "add `--backwards` if the ids"),
        (ErrorKind::Conflict, set, "other", "`idmill show 'a b'` shows the stored sequence"),
        (ErrorKind::Conflict, draw, "backwards", "`idmill show 'a b'` shows the stored sequence"),
        (ErrorKind::UnknownOutcome, set, "", "check with `idmill show 'a b'` before you retry"),
        (ErrorKind::StoreViolation, draw, "", "stop handing out ids until you know the cause"),
        (ErrorKind::Witness, draw, "", "mount or restore the witness, or correct `--guard`"),
        (ErrorKind::Unavailable, draw, "", "retry later; no id will repeat"),
    ] {
        let hint = hint(kind, operation, message);
        assert!(hint.contains(says), "{kind:?}: {hint}");
    }
    assert_eq!(hint(ErrorKind::Denied, draw, ""), "");
}

#[test]
fn only_commands_on_a_store_get_its_flags() {
    for (text, expected) in [
        (
            "`idmill show s` shows it; `idmill set s`",
            "`idmill show s --store x` shows it; `idmill set s --store x`",
        ),
        ("`idmill list`, or not", "`idmill list --store x`, or not"),
        ("`idmill set --help`", "`idmill set --help`"),
        ("`idmill show s --store y`", "`idmill show s --store y`"),
        ("`idmill encode`, idmill show, `show`", "`idmill encode`, idmill show, `show`"),
        ("an open ` idmill show s", "an open ` idmill show s"),
        ("an open `idmill show s", "an open `idmill show s"),
    ] {
        assert_eq!(placed(text, " --store x"), expected);
    }
}

#[test]
fn names_are_quoted_for_a_shell() {
    for (name, shown) in [
        ("shop/orders_1-2.x:@%+,", "shop/orders_1-2.x:@%+,"),
        ("-n", "'-n'"),
        ("it's $HOME", r"'it'\''s $HOME'"),
        ("a\u{202e}%'\\b", r#""$(printf 'a\342\200\256%%'\''\\b')""#),
    ] {
        assert_eq!(quoted(name), shown);
    }
    assert_eq!(set_command("a b", Some(5), Some(9)), "idmill set 'a b' --next 5 --max 9");
    assert_eq!(set_command("s", None, Some(9)), "idmill set s --max 9");
    assert_eq!(set_command("s", Some(5), None), "idmill set s --next 5");
}

#[test]
fn printed_ids_are_counted_in_the_message() {
    let after = |printed| CliError::usage("stop").after_printing(printed, 9);
    assert_eq!((after(0).message(), after(0).0.printed), ("stop", Some(0)));
    assert_eq!(after(1).message(), "stop; 1 of 9 ids were printed: treat them as used");
    assert_eq!(after(1).at("line 7").message(), "line 7: stop; 1 of 9 ids were printed: treat them as used");
    for (changes, status) in [(true, "unknown"), (false, "transient")] {
        let stopped = Stopped { so: "so", changes, prints: false };
        let error = CliError::signal("interrupted", 130).so(stopped);
        assert_eq!((error.message(), error.0.status), ("interrupted; so", status));
        assert_eq!(error.0.printed, None);
    }
}

#[test]
fn every_cause_is_told_in_its_order() {
    let inner = Error::new(ErrorKind::Denied, "no right").because("the user is unknown");
    let error = CliError::from(Error::new(ErrorKind::Unavailable, "not connected").because(inner));
    assert_eq!(error.message(), "not connected");
    assert_eq!(error.0.causes, ["no right", "the user is unknown"]);
}

#[test]
fn reported_error_returns_its_exit_code() {
    let left = || CliError::of_stdout("the result", &io::Error::from(io::ErrorKind::BrokenPipe));
    for json in [false, true] {
        assert_eq!(CliError::usage("wrong").report(json), ExitCode::from(2));
        assert_eq!(CliError::refused("refused").report(json), ExitCode::from(5));
        assert_eq!(left().report(json), ExitCode::SUCCESS);
    }
}
