//! How the values of arguments are read.

use std::time::Duration;

use idmill::SequenceName;

/// The longest range that the library keeps in memory.
const LONGEST: u64 = 1 << 48;

/// A whole number of 0 to 2^64 - 1; `_` may group its digits.
pub(crate) fn id(text: &str) -> Result<u64, String> {
    let rule = "write a whole number of 0 to 18446744073709551615, such as 1000 or 1_000_000";
    let digits: String = text.chars().filter(|c| *c != '_').collect();
    let plain = text.starts_with(|c: char| c.is_ascii_digit()) && digits.bytes().all(|b| b.is_ascii_digit());
    digits.parse().ok().filter(|_| plain).ok_or_else(|| rule.to_owned())
}

/// A number of ids that is at least one and can be held in memory as a range.
pub(super) fn length(text: &str) -> Result<u64, String> {
    id(text).and_then(|ids| match ids {
        1..=LONGEST => Ok(ids),
        _ => Err("it must be 1 to 2^48 (281474976710656)".to_owned()),
    })
}

/// How many a second or a day: 0 to a trillion, `_` may group the digits.
pub(super) fn rate(text: &str) -> Result<f64, String> {
    let number: String = text.chars().filter(|c| *c != '_').collect();
    match number.parse() {
        Ok(rate @ 0.0..=1e12) => Ok(rate),
        _ => Err("write a number of 0 to 1_000_000_000_000, such as 500 or 0.5".to_owned()),
    }
}

/// A time such as `500ms` or `1m 30s`, longer than none.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    match time(text) {
        Ok(Duration::ZERO) => Err("it must be more than 0 and at most a year".to_owned()),
        duration => duration,
    }
}

/// A time, or none.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    let longest = Duration::from_secs(365 * 24 * 3600);
    match humantime::parse_duration(text) {
        Ok(duration) if duration > longest => Err("it must be more than 0 and at most a year".to_owned()),
        Ok(duration) => Ok(duration),
        Err(error) => Err(format!("{error}; write a number and a unit, such as 500ms, 10s or 2m")),
    }
}

pub(super) fn sequence(text: &str) -> Result<SequenceName, String> {
    // What was being done when the library found out is of no interest here.
    SequenceName::new(text).map_err(|error| error.to_string().trim_start_matches("configure: ").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_people_write_them_and_nothing_else_is() {
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
    fn rates_are_finite_and_not_negative() {
        assert_eq!((rate("1_000.5"), rate("0")), (Ok(1000.5), Ok(0.0)));
        for bad in ["", "-1", "nan", "inf", "1e13", "many"] {
            assert!(rate(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn durations_need_a_unit_and_some_time() {
        assert_eq!(duration("1m 30s"), Ok(Duration::from_secs(90)));
        for bad in ["5", "0s", "", "-1s", "2years"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
