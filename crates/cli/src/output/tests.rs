use idmill::store::{Bounds, Identity};

use super::*;

#[test]
fn sheet_is_printed_as_text_or_markdown() {
    let row = vec!["async".to_owned(), "7".to_owned()];
    let sheet = Sheet::of(&["MODE", "VALUES/S"], [row].into_iter());
    assert_eq!(sheet.text(), "MODE   VALUES/S\nasync         7\n");
    assert_eq!(sheet.markdown(), "| mode | values/s |\n|---|---:|\n| async | 7 |\n");
}

#[test]
fn table_in_parts_keeps_its_column_widths() {
    let one = |name: &str| Sequence {
        name: name.to_owned(),
        next: Some(1),
        start: 1,
        max: 9,
        remaining: 9,
        used_percent: 0.0,
        incarnation: "0000000000000001".to_owned(),
        epoch: 0,
    };
    let mut table = SequenceTable::new(true);
    let first = table.rows(&[one("a-long-name")]);
    let second = table.rows(&[one("b")]);
    let at = |text: &str, line: usize| text.lines().nth(line).unwrap().find("0000").unwrap();
    assert_eq!((first.lines().count(), second.lines().count()), (2, 1), "{first}{second}");
    assert_eq!(at(&first, 1), at(&second, 0), "{first}{second}");
    assert_eq!(table.rows(&[]), "");
    assert_eq!(SequenceTable::new(false).rows(&[]).lines().count(), 1, "the headings of nothing");
}

#[test]
fn numbers_are_grouped_by_thousands() {
    for (value, text) in [(0, "0"), (999, "999"), (1000, "1_000"), (u64::MAX, "18_446_744_073_709_551_615")] {
        assert_eq!(grouped(value), text);
    }
}

#[test]
fn invisible_characters_are_escaped_except_line_ends() {
    assert_eq!(shown("größe\t注文 \u{1b}[2J\u{202e}\n"), "größe\t注文 \\u{1b}[2J\\u{202e}\n");
}

#[test]
fn json_with_invisible_characters_keeps_its_values() {
    for text in ["größe 注文 \\ \"x\"\n", "a\u{202e}b\u{7f}\u{9b}31m", "\u{e0041}\u{1f9fe}"] {
        let json = json(&[text]) + &compact(&text);
        assert!(!json.contains(|c| is_invisible(c) && c != '\n'), "{json:?}");
        assert_eq!(serde_json::from_str::<String>(&compact(&text)).unwrap(), text);
    }
    assert_eq!(json(&[1]), "[\n  1\n]");
    assert_eq!(compact(&"\u{e0041}"), r#""\udb40\udc41""#);
}

#[test]
fn settings_are_printed_as_rust_code() {
    let of = |budget: Duration| {
        settings(&Workload { rate: 1.0, latency: budget, outage_budget: budget, max_buffered: 12_345 })
    };
    assert_eq!(
        of(Duration::from_secs(5000)),
        ".outage_budget(Duration::from_secs(5_000)).max_buffered(12_345)"
    );
    assert_eq!(
        of(Duration::from_millis(71_200)),
        ".outage_budget(Duration::from_millis(71_200)).max_buffered(12_345)"
    );
    assert_eq!(
        of(Duration::from_micros(1_500)),
        ".outage_budget(Duration::from_millis(2)).max_buffered(12_345)"
    );
    let workload = Workload {
        rate: 1.0,
        latency: Duration::ZERO,
        outage_budget: Duration::from_millis(71_200),
        max_buffered: 12_345,
    };
    assert_eq!(flags(&workload), "--outage-budget 1m11s200ms --max-buffered 12345");
}

#[test]
fn percentage_is_0_or_100_only_if_exact() {
    for (value, text) in
        [(0.0, "0 %"), (0.001, "< 0.01 %"), (12.345, "12.35 %"), (99.999, "> 99.99 %"), (100.0, "100 %")]
    {
        assert_eq!(percent(value), text);
    }
    assert_eq!([0.0099, 0.01, 99.98, 99.99].map(percent), ["< 0.01 %", "0.01 %", "99.98 %", "> 99.99 %"]);
}

fn stored(next: Option<u64>, start: u64, max: u64) -> Sequence {
    let bounds = Bounds::new(start, max).unwrap();
    let identity = Identity { incarnation: 0xab, epoch: 3 };
    Sequence::from(&SequenceInfo::stored("s".parse().unwrap(), next, bounds, identity))
}

#[test]
fn remaining_and_used_ids_are_counted_inclusively() {
    for (next, start, max, remaining, used) in [
        (Some(1), 1, 8, 8, 0.0),
        (Some(3), 1, 8, 6, 25.0),
        (Some(8), 1, 8, 1, 87.5),
        (None, 1, 8, 0, 100.0),
        (Some(13), 11, 14, 2, 50.0),
        (Some(0), 0, u64::MAX, 1 << 64, 0.0),
    ] {
        let one = stored(next, start, max);
        assert_eq!((one.remaining, one.used_percent), (remaining, used), "{next:?} of {start} to {max}");
    }
}

#[test]
fn change_shows_both_values_of_each_changed_field() {
    let text = change(&stored(Some(3), 1, 8), &stored(None, 1, 8));
    let lines: Vec<Vec<_>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    let expected: [&[&str]; 8] = [
        &["name", "s"],
        &["next", "3", "->", "-"],
        &["max", "8"],
        &["used", "25.00", "%", "->", "100", "%"],
        &["start", "1"],
        &["remaining", "6", "->", "0"],
        &["incarnation", "00000000000000ab"],
        &["epoch", "3"],
    ];
    assert_eq!(lines, expected.map(<[&str]>::to_vec), "{text}");
    let text = sequence(&stored(Some(3), 1, 8));
    let values: Vec<_> = text.lines().filter_map(|line| line.split_whitespace().nth(1)).collect();
    assert_eq!(values, ["s", "3", "8", "25.00", "1", "6", "00000000000000ab", "3"]);
    assert!(!text.contains("->"));
}

#[test]
fn larger_numbers_have_fewer_decimals() {
    for (value, text) in
        [(0.0, "0.00"), (9.5, "9.50"), (10.0, "10.0"), (99.5, "99.5"), (100.0, "100"), (1234.4, "1234")]
    {
        assert_eq!(digits(value), text);
    }
    assert_eq!((or_dash(Some(7)), or_dash(None::<u64>)), ("7".to_owned(), "-".to_owned()));
}

#[test]
fn large_values_have_a_unit() {
    let values = [-2.5e9, 1e9, 2.5e6, 1e6, 2.5e3, 999.0, 0.0].map(scaled);
    let expected = [(-2.5, " G"), (1.0, " G"), (2.5, " M"), (1.0, " M"), (2.5, " k"), (999.0, ""), (0.0, "")];
    assert_eq!(values, expected);
}
