//! Parsers for the values of arguments.

use std::time::Duration;

use clap::ValueEnum;
use idmill::{Order, SequenceName};
use idmill_doctor::FindingKind;

use crate::planning::LONGEST_RANGE;

/// Parses a whole number from 0 to 2^64 - 1. `_` may group its digits.
pub(crate) fn id(text: &str) -> Result<u64, String> {
    let rule = "write a whole number from 0 to 18446744073709551615, such as 1000 or 1_000_000";
    let digits: String = text.chars().filter(|c| *c != '_').collect();
    let plain = text.starts_with(|c: char| c.is_ascii_digit()) && digits.bytes().all(|b| b.is_ascii_digit());
    digits.parse().ok().filter(|_| plain).ok_or_else(|| rule.to_owned())
}

/// Parses a boolean option or variable. An empty one is rejected: the value that a deployment should have set
/// is missing.
pub(crate) fn boolean(text: &str) -> Result<bool, String> {
    match text.trim() {
        "1" | "yes" | "true" | "on" => Ok(true),
        "0" | "no" | "false" | "off" => Ok(false),
        _ => Err("use true or false".to_owned()),
    }
}

/// Parses a number of ids: at least one, and at most the longest range in memory.
pub(super) fn length(text: &str) -> Result<u64, String> {
    id(text).and_then(|ids| match ids {
        1..=LONGEST_RANGE => Ok(ids),
        _ => Err("it must be from 1 to 2^48 (281474976710656)".to_owned()),
    })
}

/// Returns the name of a value on the command line and in output.
pub(crate) fn spelled(value: &impl ValueEnum) -> String {
    value.to_possible_value().expect("no variant is skipped").get_name().to_owned()
}

pub(super) fn order(text: &str) -> Result<Order, String> {
    text.parse().map_err(|_| "use process, thread or global".to_owned())
}

/// Parses a rate from 0 to a trillion. `_` may group the digits.
pub(super) fn rate(text: &str) -> Result<f64, String> {
    let number: String = text.chars().filter(|c| *c != '_').collect();
    match number.parse() {
        Ok(rate @ 0.0..=1e12) => Ok(rate),
        _ => Err("write a number from 0 to 1_000_000_000_000, such as 500 or 0.5".to_owned()),
    }
}

/// Parses a time such as `500ms` or `1m 30s`, above zero and at most a year.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    match time(text) {
        Ok(Duration::ZERO) => Err("it must be more than 0 and at most a year".to_owned()),
        duration => duration,
    }
}

/// Parses a time from zero to a year.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    let longest = Duration::from_secs(365 * 24 * 3600);
    match humantime::parse_duration(text) {
        Ok(duration) if duration > longest => Err("it must be at most a year".to_owned()),
        Ok(duration) => Ok(duration),
        Err(error) => Err(format!("{error}; write a number and a unit, such as 500ms, 10s or 2m")),
    }
}

pub(super) fn sequence(text: &str) -> Result<SequenceName, String> {
    SequenceName::new(text).map_err(|error| error.message().to_owned())
}

fn named<'a>((name, rest): (&str, &'a str)) -> Option<(SequenceName, &'a str)> {
    Some((sequence(name).ok()?, rest))
}

/// Parses a sequence's name and the URL after an equals sign. A name can contain `=`, so this splits at the
/// first `=` that is followed by a scheme.
pub(crate) fn of_sequence(text: &str) -> Result<(SequenceName, String), String> {
    let splits = text.match_indices('=').map(|(at, _)| (&text[..at], &text[at + 1..]));
    let begins_so = |rest: &str| {
        let scheme = rest.split(':').next().unwrap_or_default();
        rest.contains(':')
            && !scheme.is_empty()
            && scheme.chars().all(|c| c.is_ascii_alphanumeric() || c == '+')
    };
    let mut found = splits.filter_map(named).filter(|(_, rest)| begins_so(rest));
    let (name, rest) =
        found.next().ok_or("write NAME=URL, such as 'orders=sqlite:shop.db?column=orders.id'")?;
    Ok((name, rest.to_owned()))
}

/// Parses a sequence's name and its rate. Returns the rate in ids per second.
pub(super) fn rate_of(text: &str) -> Result<(SequenceName, f64), String> {
    let rule = || "write NAME=N/s, such as orders=50/s; also /m, /h and /d".to_owned();
    let (name, given) = text.rsplit_once('=').and_then(named).ok_or_else(rule)?;
    let (number, per) = given.split_once('/').unwrap_or((given, "s"));
    let seconds = match per {
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        _ => return Err(rule()),
    };
    Ok((name, rate(number)? / seconds))
}

/// The findings that an operator can accept for a sequence. Other findings mean that ids can repeat, or that
/// something is not known.
const ACCEPTED: [FindingKind; 5] = [
    FindingKind::Exhausted,
    FindingKind::EndsSoon,
    FindingKind::TooNarrow,
    FindingKind::ColumnDefault,
    FindingKind::Incomplete,
];

/// Parses a sequence's name and a finding that is accepted for the sequence.
pub(super) fn accepted(text: &str) -> Result<(SequenceName, FindingKind), String> {
    let (name, kind) =
        text.rsplit_once('=').and_then(named).ok_or("write NAME=KIND, such as seats=exhausted")?;
    let kinds = || ACCEPTED.map(FindingKind::as_str).join(", ");
    let known = ACCEPTED.into_iter().find(|known| known.as_str() == kind);
    known.map(|kind| (name, kind)).ok_or_else(|| format!("only these findings can be accepted: {}", kinds()))
}

/// Parses a sequence's name and the type of its ids. Also returns the largest id that the type holds.
pub(super) fn type_of(text: &str) -> Result<(SequenceName, (String, u64)), String> {
    let rule = "write NAME=TYPE, such as orders=i32; use one of: i8, u8, i16, u16, i32, u32, i64, u64";
    let (name, of_type) = text.rsplit_once('=').and_then(named).ok_or(rule)?;
    let largest = match of_type {
        "i8" => i8::MAX.unsigned_abs().into(),
        "u8" => u8::MAX.into(),
        "i16" => i16::MAX.unsigned_abs().into(),
        "u16" => u16::MAX.into(),
        "i32" => i32::MAX.unsigned_abs().into(),
        "u32" => u32::MAX.into(),
        "i64" => i64::MAX.unsigned_abs(),
        "u64" => u64::MAX,
        _ => return Err(rule.to_owned()),
    };
    Ok((name, (of_type.to_owned(), largest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_may_have_underscores_and_only_digits() {
        assert_eq!(id("1_000_000"), Ok(1_000_000));
        assert_eq!(id("18446744073709551615"), Ok(u64::MAX));
        for bad in ["", "_", "_1", "-1", "+1", "1e3", "1,000", " 1", "18446744073709551616", "0x10"] {
            assert!(id(bad).is_err(), "{bad}");
        }
        assert!(
            length("0").is_err() && length("281474976710657").is_err() && length("281474976710656").is_ok()
        );
    }

    #[test]
    fn booleans_have_one_spelling_rule() {
        for (text, value) in [("1", true), ("yes", true), (" on ", true), ("0", false), ("off", false)] {
            assert_eq!(boolean(text), Ok(value), "{text}");
        }
        assert!(boolean("").is_err() && boolean("2").is_err());
    }

    #[test]
    fn rates_are_finite_and_not_negative() {
        assert_eq!((rate("1_000.5"), rate("0")), (Ok(1000.5), Ok(0.0)));
        for bad in ["", "-1", "nan", "inf", "1e13", "many"] {
            assert!(rate(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sequence_arguments_are_split_after_the_name() {
        let url = "sqlite:shop.db?column=a.b";
        let name = |name: &str| SequenceName::new(name).unwrap();
        let pair = |of: &str, rest: &str| Ok((name(of), rest.to_owned()));
        assert_eq!(of_sequence(&format!("orders={url}")), pair("orders", url));
        assert_eq!(of_sequence(&format!("a=b={url}")), pair("a=b", url));
        assert_eq!(rate_of("a=b=120/m"), Ok((name("a=b"), 2.0)));
        assert_eq!(rate_of("orders=1_000"), Ok((name("orders"), 1000.0)));
        assert_eq!(type_of("orders=u32"), Ok((name("orders"), ("u32".to_owned(), 4_294_967_295))));
        for bad in ["orders", "", "=sqlite:a", "orders=shop.db", "orders=:a", "orders=shop.db:a"] {
            assert!(of_sequence(bad).is_err(), "{bad}");
        }
        for bad in ["orders", "orders=-1/s", "orders=5/w", "orders=/s", "=5/s"] {
            assert!(rate_of(bad).is_err(), "{bad}");
        }
        assert!(type_of("orders=int").is_err() && type_of("i32").is_err());
    }

    #[test]
    fn durations_need_a_unit_and_some_time() {
        assert_eq!(duration("1m 30s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("365d"), Ok(Duration::from_secs(31_536_000)));
        assert_eq!((time("0s"), duration("1ns")), (Ok(Duration::ZERO), Ok(Duration::from_nanos(1))));
        for bad in ["5", "0s", "", "-1s", "2years", "365d 1ns"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
    #[test]
    fn order_has_three_names() {
        let orders = ["process", "thread", "global"].map(order);
        assert_eq!(orders, [Ok(Order::Process), Ok(Order::Thread), Ok(Order::Global)]);
        assert_eq!(order("random").unwrap_err(), "use process, thread or global");
    }

    #[test]
    fn type_holds_its_largest_value() {
        for (name, largest) in [
            ("i8", 127),
            ("u8", 255),
            ("i16", 32_767),
            ("u16", 65_535),
            ("i32", 2_147_483_647),
            ("u32", 4_294_967_295),
            ("i64", 9_223_372_036_854_775_807),
            ("u64", u64::MAX),
        ] {
            assert_eq!(type_of(&format!("s={name}")).unwrap().1, (name.to_owned(), largest));
        }
    }

    #[test]
    fn rate_is_converted_to_seconds() {
        for (given, rate) in [("7", 7.0), ("7/s", 7.0), ("60/m", 1.0), ("7200/h", 2.0), ("43200/d", 0.5)] {
            let read: f64 = rate_of(&format!("s={given}")).unwrap().1;
            assert!((read - rate).abs() < 1e-9, "{given}: {read}");
        }
    }
}
