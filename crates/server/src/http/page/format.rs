//! Formats figures for people.

use std::time::{Duration, SystemTime};

/// A figure that is unknown, or does not apply.
pub(super) const NOTHING: &str = "–";

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
/// Seconds in a mean year.
const YEAR: u64 = 31_556_952;
/// The last second of the year 9999.
const LAST: u64 = 253_402_300_799;

/// Formats a count, such as `1,234,567`.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let parts: Vec<_> =
        digits.as_bytes().rchunks(3).rev().map(|part| String::from_utf8_lossy(part)).collect();
    parts.join(",")
}

/// Formats ids per second.
pub(super) fn rate(rate: f64) -> String {
    match rate {
        ..0.05 => "0".to_owned(),
        ..10.0 => format!("{rate:.1}"),
        // The rate is far below 2^53, where doubles lose precision.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        _ => count(rate.round() as u64),
    }
}

/// Formats a time span in one unit.
pub(super) fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    let of = |unit: u64, one: &str, many: &str| {
        let times = seconds / unit;
        format!("{} {}", count(times), if times == 1 { one } else { many })
    };
    match seconds {
        ..1 => "< 1 s".to_owned(),
        1..120 => of(1, "s", "s"),
        120..7200 => of(MINUTE, "min", "min"),
        7200..172_800 => of(HOUR, "h", "h"),
        172_800..63_072_000 => of(DAY, "day", "days"),
        63_072_000..315_569_520_000 => of(YEAR, "year", "years"),
        _ => "> 10,000 years".to_owned(),
    }
}

/// Formats the duration of a call.
pub(super) fn latency(time: Duration) -> String {
    let millis = time.as_secs_f64() * 1e3;
    match millis {
        ..0.01 => "< 0.01 ms".to_owned(),
        ..1.0 => format!("{millis:.2} ms"),
        ..10.0 => format!("{millis:.1} ms"),
        ..1000.0 => format!("{millis:.0} ms"),
        _ => format!("{:.1} s", millis / 1e3),
    }
}

/// Formats a fraction as a percentage.
pub(super) fn share(part: f64) -> String {
    let percent = part * 100.0;
    match percent {
        ..=0.0 => "0 %".to_owned(),
        ..0.01 => "< 0.01 %".to_owned(),
        ..10.0 => format!("{percent:.2} %"),
        // A part below the whole must not be rounded to 100 %.
        ..100.0 => format!("{:.1} %", percent.min(99.9)),
        _ => "100 %".to_owned(),
    }
}

/// Returns the UTC date at `now` plus `to_come`; `None` beyond the year 9999.
pub(super) fn date(now: SystemTime, to_come: Duration) -> Option<String> {
    Some(stamp(now.checked_add(to_come)?)?[..10].to_owned())
}

/// Formats a time in UTC; `None` beyond the year 9999.
pub(super) fn stamp(time: SystemTime) -> Option<String> {
    let since_1970 = time.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    (since_1970.as_secs() <= LAST).then(|| humantime::format_rfc3339_seconds(time).to_string())
}

/// Formats when a state began: the time of day, with the date after 24 hours.
pub(super) fn since(now: SystemTime, began: SystemTime) -> String {
    let passed = now.duration_since(began).unwrap_or_default();
    let Some(at) = stamp(began) else { return span(passed) };
    let at =
        if passed.as_secs() < DAY { at[11..19].to_owned() } else { format!("{} {}", &at[..10], &at[11..16]) };
    format!("since {at} UTC, {}", span(passed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short_and_correctly_rounded() {
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(count(u64::MAX), "18,446,744,073,709,551,615");
        assert_eq!([0.0, 0.04, 0.25, 9.96, 1234.6].map(rate), ["0", "0", "0.2", "10.0", "1,235"]);
        assert_eq!(
            [0.0, 1e-9, 0.012, 0.5, 0.9999, 1.0].map(share),
            ["0 %", "< 0.01 %", "1.20 %", "50.0 %", "99.9 %", "100 %"]
        );
        let millis = [0, 119_000, 7_199_000, 172_799_000, 86_400_000 * 700, 1000 * YEAR * 3];
        let spans = millis.map(|millis| span(Duration::from_millis(millis)));
        assert_eq!(spans, ["< 1 s", "119 s", "119 min", "47 h", "700 days", "3 years"]);
        assert_eq!(span(Duration::MAX), "> 10,000 years");
        let micros = [1, 350, 4200, 12_000, 1_250_000].map(|micros| latency(Duration::from_micros(micros)));
        assert_eq!(micros, ["< 0.01 ms", "0.35 ms", "4.2 ms", "12 ms", "1.2 s"]);
    }

    #[test]
    fn old_start_time_includes_the_date() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        assert_eq!(since(at(3 * 3600 + 300), at(3 * 3600)), "since 03:00:00 UTC, 5 min");
        assert_eq!(since(at(2 * DAY), at(3600)), "since 1970-01-01 01:00 UTC, 47 h");
    }

    #[test]
    fn date_beyond_the_year_9999_is_none() {
        let day = |days: u64| date(SystemTime::UNIX_EPOCH, Duration::from_secs(days * DAY));
        assert_eq!(day(0).as_deref(), Some("1970-01-01"));
        assert_eq!(day(19_782).as_deref(), Some("2024-02-29"));
        assert_eq!(day(2_932_896).as_deref(), Some("9999-12-31"));
        assert_eq!(day(2_932_897), None);
        assert_eq!(date(SystemTime::now(), Duration::MAX), None);
    }
}
