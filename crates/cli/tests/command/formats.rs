//! Formats of ids: `next --format`, `encode` and `decode`.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::common::{Place, Ran};

const FORMAT: &str = "permute(key=env:KEY,bits=31)|crockford(check)|pad(8)|group(4)|prefix(ORD-)";

fn with_key(mut command: Command) -> Ran {
    command.env("KEY", "0x5eed").output().unwrap().into()
}

fn with_input(mut command: Command, input: &str) -> Ran {
    let mut child = command
        .env("KEY", "0x5eed")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // Ignore the error: the command may have ended already, after invalid input.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    child.wait_with_output().unwrap().into()
}

#[test]
fn decode_reads_the_output_of_next_with_a_format() {
    let place = Place::with_sequence(1, 100);
    let written = with_key(place.command(&["next", "s", "-n", "2", "--format", FORMAT]));
    assert_eq!(
        (written.code, written.out.as_str(), written.err.as_str()),
        (0, "ORD-0KWB-N78M\nORD-1RCB-7GEW\n", "")
    );
    let read = with_key(place.command(&["decode", "--format", FORMAT, "ORD-0KWB-N78M", "ord-ircb7gew"]));
    assert_eq!((read.code, read.out.as_str(), read.err.as_str()), (0, "1\n2\n", ""));
    let encoded = with_key(place.command(&["encode", "--format", FORMAT, "1", "2"]));
    assert_eq!(encoded.out, written.out);
    assert_eq!(place.files(), ["idmill.db"]);
}

#[test]
fn encode_and_decode_read_lines_without_arguments() {
    let place = Place::new();
    let encoded = with_input(place.command(&["encode", "--format", FORMAT]), "1\n2\r\n3");
    assert_eq!((encoded.code, encoded.out.lines().count()), (0, 3), "{encoded:?}");
    let decoded = with_input(place.command(&["decode", "--format", FORMAT]), &encoded.out);
    assert_eq!((decoded.code, decoded.out.as_str()), (0, "1\n2\n3\n"));
    let none = with_input(place.command(&["decode", "--format", FORMAT]), "");
    assert_eq!((none.code, none.out.as_str()), (0, ""));
    assert!(place.files().is_empty());
}

#[test]
fn each_line_is_converted_before_the_next_arrives() {
    let place = Place::new();
    let mut command = place.command(&["encode", "--format", "base62"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
    for (id, text) in [("61\n", "z\n"), ("62\n", "10\n")] {
        stdin.write_all(id.as_bytes()).unwrap();
        let mut answer = String::new();
        stdout.read_line(&mut answer).unwrap();
        assert_eq!(answer, text);
    }
    drop(stdin);
    assert!(child.wait().unwrap().success());
}

#[test]
fn json_has_the_number_and_the_text() {
    let place = Place::with_sequence(1, 100);
    let objects =
        |ran: &Ran| ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>();
    let format = ["--json", "--format", r#"base62|prefix("a\"b\\")"#];
    let expected: Vec<Value> = (1..=3).map(|id| json!({ "id": id, "text": format!("a\"b\\{id}") })).collect();
    let next = place.run(&[&["next", "s", "-n", "3"], &format[..]].concat());
    assert_eq!(objects(&next), expected);
    let encoded = place.run(&[&["encode", "1", "2", "3"], &format[..]].concat());
    assert_eq!(objects(&encoded), expected);
    let decoded = place.run(&[&["decode", "a\"b\\1", "a\"b\\2", "a\"b\\3"], &format[..]].concat());
    assert_eq!(objects(&decoded), expected);
}

#[test]
fn many_lines_of_maximum_length_are_written() {
    let place = Place::with_sequence(1, u64::MAX);
    let format = format!("pad(32)|prefix({0})|suffix({0})", "x".repeat(64));
    let ran = place.run(&["next", "s", "-n", "10_000", "--format", &format]);
    assert_eq!((ran.code, ran.out.lines().count()), (0, 10_000));
    assert!(ran.out.lines().zip(1..).all(|(line, id)| line[64..96].parse() == Ok(id)));
    assert_eq!(place.show()["next"], 10_001);
}

#[test]
fn bad_value_is_named_after_earlier_results_are_printed() {
    let place = Place::new();
    for (args, input, out, says) in [
        (
            &["decode", "--format", "base62", "z", "a-b", "y"][..],
            "",
            "61\n",
            "`a-b`, character 2: `-` is not a digit",
        ),
        (&["decode", "--format", "base62"], "z\na-b\ny\n", "61\n", "line 2 of stdin: `a-b`, character 2"),
        (&["encode", "--format", "base62"], "61\nx\n", "z\n", "line 2 of stdin: `x`: write a whole number"),
        (&["encode", "--format", "base62"], "\n", "", "line 1 of stdin"),
        (
            &["encode", "--format", "reverse(bits=8)", "1", "256"],
            "",
            "128\n",
            "256 is too large for `reverse`, which accepts 0 to 255",
        ),
        (&["encode", "--format", "bass62", "1"], "", "", "no codec `bass62`"),
        (&["encode", "--format", "base62", "1e3"], "", "", "1_000_000"),
        (&["encode", "1"], "", "", "--format"),
        (&["next", "s", "--format", "pad(99)"], "", "", "99 symbols: choose 1 to 32"),
    ] {
        let ran = with_input(place.command(args), input);
        assert_eq!((ran.code, ran.out.as_str()), (2, out), "{args:?}: {ran:?}");
        assert!(ran.err.contains(says), "{args:?}: {}", ran.err);
    }
    assert!(place.files().is_empty());
}

#[test]
fn id_beyond_the_format_stops_and_suggests_max() {
    let place = Place::with_sequence(254, 1000);
    let ran = place.run(&["next", "s", "-n", "9", "--format", "reverse(bits=8)"]);
    assert_eq!((ran.code, ran.out.as_str()), (2, "127\n255\n"), "{ran:?}");
    assert!(ran.err.contains("2 of 9 ids were printed") && ran.err.contains("--max 255"), "{}", ran.err);
}

#[test]
fn keys_come_from_files_and_stay_out_of_errors() {
    let place = Place::new();
    std::fs::write(place.path().join("key"), "0x5eed\n").unwrap();
    let read = |key: &str, json: bool| {
        let format = format!("permute(key={key},bits=31)|crockford");
        let mut args = vec!["encode", "--format", &format, "1"];
        args.extend(json.then_some("--json"));
        with_key(place.command(&args))
    };
    let texts = ["file:key", "env:KEY", "0x5eed", "24301"].map(|key| read(key, false).out);
    assert!(texts.iter().all(|text| *text == "KWBN78\n"), "{texts:?}");
    for (key, code, says) in
        [("file:nokey", 4, "nokey"), ("env:NOKEY", 4, "`NOKEY`"), ("hunter2(", 2, "character")]
    {
        for json in [false, true] {
            let ran = read(key, json);
            assert_eq!((ran.code, ran.out.as_str()), (code, ""), "{ran:?}");
            assert!(ran.err.contains(says) && !ran.err.contains("hunter2"), "{}", ran.err);
        }
    }
}
