//! Parses and prints the options of a URL, `?key=value&key=value`, in the same way for every store.

use std::borrow::Cow;
use std::time::Duration;

use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, utf8_percent_encode};

use super::secrets;
use idmill::{Error, Operation, Result};

/// Control characters, and characters with a meaning in a URL or in a shell.
pub const ESCAPED: &AsciiSet = &CONTROLS
    .add(b'%')
    .add(b'?')
    .add(b'#')
    .add(b'&')
    .add(b'+')
    .add(b'=')
    .add(b' ')
    .add(b'"')
    .add(b'<')
    .add(b'>');
/// [`ESCAPED`] and `@`. An `@` after the hosts could be the end of a password and is
/// [rejected](secrets::check_login).
pub const ESCAPED_VALUE: &AsciiSet = &ESCAPED.add(b'@');

/// Returns the error for an unusable URL, or an unusable option that a URL can contain:
/// [`InvalidInput`](idmill::ErrorKind::InvalidInput) while connecting. The message should contain the option,
/// the given value and the valid values.
pub fn refuse(message: impl Into<Cow<'static, str>>) -> Error {
    Error::invalid(message).during(Operation::Connect)
}

/// Splits off the scheme of a URL, in lower case. A single letter is a Windows drive, not a scheme.
pub fn split_scheme(url: &str) -> Option<(String, &str)> {
    let (scheme, rest) = url.split_once(':')?;
    let valid = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
    (valid && scheme.len() > 1).then(|| (scheme.to_ascii_lowercase(), rest))
}

/// Splits off the scheme, which must be one of `schemes`.
fn known<'a>(url: &'a str, schemes: &[&str], form: &str) -> Result<(String, &'a str)> {
    let parts = split_scheme(secrets::trimmed(url)?).filter(|(scheme, _)| schemes.contains(&&**scheme));
    parts.ok_or_else(|| {
        let slashes = if form.contains("://") { "//" } else { "" };
        let begins = schemes.iter().map(|scheme| format!("`{scheme}:{slashes}`")).collect::<Vec<_>>();
        refuse(format!("the URL of this store must begin with {}: write `{form}`", begins.join(" or ")))
    })
}

/// Splits a URL into its scheme in lower case, the text between the colon and the question mark, and the
/// query. `form` is an example for the error message.
///
/// # Errors
/// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for any other scheme. The message does not contain the
/// URL, which may contain a password.
pub fn path<'a>(url: &'a str, schemes: &[&str], form: &str) -> Result<(String, &'a str, &'a str)> {
    let (scheme, rest) = known(url, schemes, form)?;
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    Ok((scheme, place, query))
}

/// Like [`path`], for a URL with hosts. The two slashes before the hosts are removed. A password that would
/// be read as another part is [rejected](secrets::check_login).
///
/// # Errors
/// As [`path`].
pub fn hosts<'a>(url: &'a str, schemes: &[&str], form: &str) -> Result<(String, &'a str, &'a str)> {
    let (scheme, rest) = known(url, schemes, form)?;
    secrets::check_login(rest)?;
    let slashes = || refuse(format!("two slashes must follow `{scheme}:`, as in `{form}`"));
    let rest = rest.strip_prefix("//").ok_or_else(slashes)?;
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    Ok((scheme, place, query))
}

/// Returns the text after `scheme:`.
///
/// # Errors
/// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for a URL of another scheme.
pub fn after<'a>(scheme: &str, url: &'a str) -> Result<&'a str> {
    let url = secrets::trimmed(url)?;
    let rest = url.strip_prefix(scheme).and_then(|rest| rest.strip_prefix(':'));
    rest.ok_or_else(|| refuse(format!("{:?} does not begin with `{scheme}:`", secrets::redacted(url))))
}

/// Decodes a percent-encoded part of a URL.
///
/// # Errors
/// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for bytes that are not UTF-8. The message does not
/// contain the part, which may be a password.
pub fn decoded(text: &str) -> Result<String> {
    let decoded = percent_encoding::percent_decode_str(text).decode_utf8();
    decoded.map(Cow::into_owned).map_err(|_| refuse("percent-encoded bytes in the URL are not UTF-8"))
}

/// Percent-encodes a part of a URL so that it is valid at any position.
pub fn encoded(text: &str) -> String {
    const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'_').remove(b'-').remove(b'.').remove(b'~');
    utf8_percent_encode(text, UNRESERVED).to_string()
}

/// Removes an option from the text after a store's scheme. Returns the remaining text for the store, and the
/// value of the option.
///
/// # Errors
/// [`InvalidInput`](idmill::ErrorKind::InvalidInput) if the option is duplicated or not UTF-8.
pub fn take(option: &str, rest: &str) -> Result<(String, Option<String>)> {
    let Some((place, query)) = rest.split_once('?') else { return Ok((rest.to_owned(), None)) };
    let mut values = Vec::new();
    let others: Vec<&str> = query
        .split('&')
        .filter(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let is_taken = decoded(key).is_ok_and(|key| key == option);
            if is_taken {
                values.push(value);
            }
            !is_taken
        })
        .collect();
    if values.len() > 1 {
        return Err(refuse(format!("duplicate option `{option}`; keep only one")));
    }
    let Some(value) = values.pop() else { return Ok((rest.to_owned(), None)) };
    let separator = if others.is_empty() { "" } else { "?" };
    // The value may be a URL, in which a plus sign is literal.
    Ok((format!("{place}{separator}{}", others.join("&")), Some(decoded(value)?)))
}

/// Calls `set` for each option, in the order of the URL.
///
/// # Errors
/// The errors of `set`; [`InvalidInput`](idmill::ErrorKind::InvalidInput) for a duplicate option.
pub fn read<T>(query: &str, options: T, set: impl Fn(T, &str, &str) -> Result<T>) -> Result<T> {
    let mut once = Once::default();
    form_urlencoded::parse(query.as_bytes()).try_fold(options, |options, (key, value)| {
        once.take(&key)?;
        set(options, &key, &value)
    })
}

/// The keys read so far. A duplicate is rejected, because either of its values could be the intended one.
#[derive(Debug, Default)]
pub struct Once(Vec<String>);

impl Once {
    /// Records a key.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for a duplicate key.
    pub fn take(&mut self, key: &str) -> Result<()> {
        if self.0.iter().any(|seen| seen == key) {
            return Err(refuse(format!("duplicate option `{key}`; keep only one")));
        }
        self.0.push(key.to_owned());
        Ok(())
    }
}

/// The units of durations in nanoseconds, largest first.
pub(super) const UNITS: [(&str, u128); 6] = [
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// Parses a whole number followed by one of the [units](UNITS). Returns `None` for anything else.
pub(super) fn parse_duration(value: &str) -> Option<Duration> {
    let digits = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    let (number, unit) = value.split_at(digits);
    let (_, unit) = UNITS.into_iter().find(|(name, _)| *name == unit)?;
    let nanos = u128::from(number.parse::<u64>().ok()?) * unit;
    u64::try_from(nanos).ok().map(Duration::from_nanos)
}

/// Appends an option to a URL.
pub fn append(url: &mut String, key: &str, value: &str) {
    let separator = if url.contains('?') { '&' } else { '?' };
    url.extend([separator]);
    url.extend([key, "="].into_iter().chain(utf8_percent_encode(value, ESCAPED_VALUE)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use idmill::ErrorKind;
    use proptest::prelude::*;

    type Pairs = Vec<(String, String)>;

    fn pairs(query: &str) -> Result<Pairs> {
        read(query, Pairs::new(), |mut pairs, key, value| {
            if key == "no" {
                return Err(refuse("there is no such option"));
            }
            pairs.push((key.to_owned(), value.to_owned()));
            Ok(pairs)
        })
    }

    #[test]
    fn options_are_read_once_and_in_order() {
        let read = pairs("b=1&a=%3F+x&c").unwrap();
        assert_eq!(read, [("b", "1"), ("a", "? x"), ("c", "")].map(|(k, v)| (k.to_owned(), v.to_owned())));
        assert_eq!(pairs("").unwrap(), []);
        for (query, remedy) in
            [("a=1&b=2&%61=1", "duplicate option `a`"), ("no=1", "there is no such option")]
        {
            let error = pairs(query).unwrap_err();
            assert_eq!(
                (error.kind(), error.operation()),
                (ErrorKind::InvalidInput, Some(Operation::Connect))
            );
            assert!(error.to_string().contains(remedy), "{error}");
        }
    }

    #[test]
    fn an_option_is_taken_out_and_all_else_is_left_as_it_was() {
        for (rest, left, window) in [
            ("ids.db", "ids.db", None),
            ("a%3Fwindow=x", "a%3Fwindow=x", None),
            ("a?mode=rw&table=x%20y", "a?mode=rw&table=x%20y", None),
            ("a?window=memcached://h:1", "a", Some("memcached://h:1")),
            (
                "a?x=%26&window=memcached://h%3Fblock%3D5%26stub%3D2s&y",
                "a?x=%26&y",
                Some("memcached://h?block=5&stub=2s"),
            ),
            ("a?w%69ndow=m", "a", Some("m")),
            ("a?window=a+b%2Bc", "a", Some("a+b+c")),
            ("a?windows=m", "a?windows=m", None),
        ] {
            let expected = (left.to_owned(), window.map(ToOwned::to_owned));
            assert_eq!(take("window", rest).unwrap(), expected, "{rest}");
        }
        let twice = take("window", "a?window=x&window=y").unwrap_err();
        assert!(twice.kind() == ErrorKind::InvalidInput && twice.to_string().contains("duplicate option"));
    }

    #[test]
    fn a_duration_is_a_whole_number_and_a_unit() {
        for (value, millis) in [("0s", 0), ("250ms", 250), ("5s", 5000), ("2m", 120_000), ("3h", 10_800_000)]
        {
            assert_eq!(parse_duration(value), Some(Duration::from_millis(millis)), "{value}");
        }
        let long = format!("{}s", u64::MAX);
        for value in ["", "5", "s", "-5s", "+5s", "1.5s", "5 s", "5d", "5S", &long, "99999999999999999999ms"]
        {
            assert_eq!(parse_duration(value), None, "{value}");
        }
    }

    #[test]
    fn what_is_printed_is_percent_encoded() {
        let mut url = "x:".to_owned();
        append(&mut url, "a", "x/[:],");
        append(&mut url, "c", "ü& @");
        assert_eq!(url, "x:?a=x/[:],&c=%C3%BC%26%20%40");
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back(text in "\\PC{0,20}|[%&=+?#@ ]{1,9}") {
            let mut printed = String::new();
            append(&mut printed, "text", &text);
            let read = pairs(printed.strip_prefix('?').unwrap()).unwrap();
            prop_assert_eq!(&read[0].1, &text);
        }
    }

    #[test]
    fn scheme_has_two_characters_or_more() {
        for (url, parts) in [
            ("SQLite:ids.db", Some(("sqlite", "ids.db"))),
            ("mongodb+srv://h", Some(("mongodb+srv", "//h"))),
            ("a-1.b:x:y", Some(("a-1.b", "x:y"))),
            ("ab:", Some(("ab", ""))),
            ("C:\\ids.db", None),
            ("1a:x", None),
            (":x", None),
            ("a b:x", None),
            ("ids.db", None),
        ] {
            let parts = parts.map(|(scheme, rest)| (scheme.to_owned(), rest));
            assert_eq!(split_scheme(url), parts, "{url}");
        }
    }

    #[test]
    fn url_is_split_into_scheme_place_and_query() {
        let schemes = ["toy", "toys"];
        let parts = path(" TOY:a/b?x=1?y ", &schemes, "toy:PATH").unwrap();
        assert_eq!(parts, ("toy".to_owned(), "a/b", "x=1?y"));
        assert_eq!(path("toys:a", &schemes, "toy:PATH").unwrap(), ("toys".to_owned(), "a", ""));
        let parts = hosts("toy://u:p@a,b:1/db?x=1", &schemes, "toy://HOST").unwrap();
        assert_eq!(parts, ("toy".to_owned(), "u:p@a,b:1/db", "x=1"));
        for (error, message) in [
            (
                path("tyo:a", &schemes, "toy:PATH"),
                "the URL of this store must begin with `toy:` or `toys:`: write `toy:PATH`",
            ),
            (
                hosts("x", &schemes[..1], "toy://HOST"),
                "the URL of this store must begin with `toy://`: write `toy://HOST`",
            ),
            (hosts("toy:h", &schemes, "toy://HOST"), "two slashes must follow `toy:`, as in `toy://HOST`"),
            (hosts("toy://h:x", &schemes, "toy://HOST"), PORT),
        ] {
            assert_eq!(error.unwrap_err().to_string(), format!("connect: {message}"));
        }
        assert_eq!(after("toy", " toy:x ").unwrap(), "x");
        let other = after("toy", "toys:u:p@h").unwrap_err().to_string();
        assert_eq!(other, "connect: \"***@h\" does not begin with `toy:`");
    }

    const PORT: &str =
        "the port is not a number; percent-encode special characters in `USER:PASSWORD@HOST:PORT`";

    #[test]
    fn part_of_a_url_is_encoded_and_decoded() {
        assert_eq!(encoded("a_b-c.d~e/f:g@h ü"), "a_b-c.d~e%2Ff%3Ag%40h%20%C3%BC");
        assert_eq!(decoded("a%2Fb+c%C3%BC").unwrap(), "a/b+cü");
        let invalid = decoded("%ff").unwrap_err().to_string();
        assert_eq!(invalid, "connect: percent-encoded bytes in the URL are not UTF-8");
    }

    #[test]
    fn duration_up_to_u64_nanoseconds_is_accepted() {
        let longest = Duration::from_nanos(u64::MAX);
        assert_eq!(parse_duration("18446744073709551615ns"), Some(longest));
        assert_eq!(parse_duration("18446744073709551616ns"), None);
        assert_eq!(parse_duration("7us"), Some(Duration::from_micros(7)));
    }

    #[test]
    fn unusable_url_is_invalid_input_while_connecting() {
        let error = refuse("the URL is empty");
        assert_eq!((error.kind(), error.operation()), (ErrorKind::InvalidInput, Some(Operation::Connect)));
        assert_eq!(error.to_string(), "connect: the URL is empty");
    }
}
