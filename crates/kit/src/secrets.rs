//! Trims URLs from users, and removes secrets before a URL is shown.

use super::refuse;
use idmill::Result;

/// The replacement for a secret.
pub const HIDDEN: &str = "***";
/// An option is a secret if its name contains one of these words.
const SECRET: [&str; 7] = ["pass", "pwd", "secret", "token", "credential", "auth", "key"];

/// Removes white space, line ends and a pair of quotes around a URL. Env files, shells and editors leave
/// these, and no URL begins or ends with them.
///
/// # Errors
/// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for an unmatched quote at the beginning, or a control
/// character inside. The message does not contain the URL.
pub fn trimmed(url: &str) -> Result<&str> {
    let outer = trim(url);
    let inner = ['"', '\''].into_iter().find_map(|quote| outer.strip_prefix(quote)?.strip_suffix(quote));
    let url = inner.map_or(outer, trim);
    if url.starts_with(['"', '\'']) {
        return Err(refuse("the URL begins with an unmatched quote; remove it"));
    }
    if url.contains(char::is_control) {
        return Err(refuse(
            "the URL contains a control character, such as a line break; remove it, or percent-encode it",
        ));
    }
    Ok(url)
}

/// Implements `Debug` with only these fields, for a type with secrets or with a long text:
/// `TYPE |this| FIELD = VALUE, …`.
#[macro_export]
macro_rules! debug_fields {
    ($name:ident $(<$of:ident>)? |$this:ident| $($field:ident = $value:expr),+) => {
        impl $(<$of>)? ::std::fmt::Debug for $name $(<$of>)? {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                let $this = self;
                let mut debug = f.debug_struct(stringify!($name));
                debug$(.field(stringify!($field), &$value))+.finish_non_exhaustive()
            }
        }
    };
}

fn trim(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_whitespace() || c.is_control() || c == '\u{feff}')
}

/// Rejects a URL in which a password could be read as a host, a path or an option, because those are printed.
/// Such a URL has an `@` after the first `/` or `?`, a second `@`, or a port that is not a number. `rest` is
/// the text after the scheme.
///
/// # Errors
/// [`InvalidInput`](idmill::ErrorKind::InvalidInput). The message does not contain any part of the URL.
pub fn check_login(rest: &str) -> Result<()> {
    let rest = rest.strip_prefix("//").unwrap_or(rest);
    let (authority, tail) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let (login, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
    if tail.contains('@') || login.contains('@') {
        return Err(refuse(
            "the URL has an unexpected `@`; write it as %40; in the user and password, write `/` as %2F, \
             `?` as %3F and `:` as %3A",
        ));
    }
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    let port = |host: &str| host.rsplit(']').next().and_then(|end| Some(end.split_once(':')?.1.to_owned()));
    if hosts.split(',').filter_map(port).all(|port| is_port(&port)) {
        return Ok(());
    }
    Err(refuse("the port is not a number; percent-encode special characters in `USER:PASSWORD@HOST:PORT`"))
}

/// Returns the text without likely secrets: the text before an `@`, and the value of each option with the
/// name of a secret.
pub fn redacted(text: &str) -> String {
    let Some(end) = text.rfind('@') else { return without_secrets(&without_ports(text)) };
    // A password can contain slashes too, so only a scheme before the slashes is shown.
    let slashes = text[..end].find("//").filter(|slashes| is_scheme(&text[..*slashes]));
    let begin = slashes.map_or(0, |slashes| slashes + 2);
    without_secrets(&format!("{}{HIDDEN}{}", &text[..begin], &text[end..]))
}

/// Returns whether `text` is a scheme, with or without its colon.
fn is_scheme(text: &str) -> bool {
    let name = text.strip_suffix(':').unwrap_or(text);
    name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
}

/// Hides text in the position of a port that is not a number.
fn without_ports(text: &str) -> String {
    let Some((before, rest)) = text.split_once("//") else { return text.to_owned() };
    let (authority, tail) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    match authority.split_once(':') {
        Some((host, port)) if !host.contains('[') && !port.bytes().all(|byte| byte.is_ascii_digit()) => {
            format!("{before}//{host}:{HIDDEN}{tail}")
        }
        _ => text.to_owned(),
    }
}

fn without_secrets(text: &str) -> String {
    let (mut shown, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once('=') {
        shown.push_str(before);
        shown.push('=');
        rest = after;
        if is_secret(before) {
            shown.push_str(HIDDEN);
            rest = &after[length_of_value(after)..];
        }
    }
    shown + rest
}

/// Returns whether `text` ends with the name of a secret.
fn is_secret(text: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
    let name = text.trim_end().rsplit(|c| !is_part(c)).next().unwrap_or_default().to_ascii_lowercase();
    SECRET.iter().any(|secret| name.contains(secret))
}

/// Returns the length of a value: to its closing quote, or else to the next separator. An unclosed quote
/// hides the rest of the text.
fn length_of_value(text: &str) -> usize {
    let value = text.trim_start();
    let blanks = text.len() - value.len();
    let Some(quote) = value.chars().next().filter(|c| matches!(c, '"' | '\'')) else {
        let ends = |c: char| c.is_whitespace() || matches!(c, '&' | ';');
        return blanks + value.find(ends).unwrap_or(value.len());
    };
    let mut escaped = false;
    let closing = value.char_indices().skip(1).find(|(_, c)| {
        let closes = *c == quote && !escaped;
        escaped = *c == '\\' && !escaped;
        closes
    });
    blanks + closing.map_or(value.len(), |(at, _)| at + 1)
}

/// Returns whether the text is a list of `name=value`, the connection string of some drivers.
pub fn is_connection_string(text: &str) -> bool {
    let first = text.split_once('=').map_or("", |(name, _)| name.trim());
    let known =
        ["host", "hostaddr", "port", "user", "user id", "uid", "dbname", "database", "server", "data source"];
    known.contains(&first.to_ascii_lowercase().as_str()) || (!first.is_empty() && is_secret(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_like_a_secret_is_hidden() {
        for (text, shown) in [
            ("ids.db", "ids.db"),
            ("postgres//app:hunter2@db/shop", "postgres//***@db/shop"),
            ("app:hun@ter/2@db", "***@db"),
            ("redis://app:hunter2/0", "redis://app:***/0"),
            ("redis://h:6379/0", "redis://h:6379/0"),
            ("redis://h:6379x?a", "redis://h:***?a"),
            ("redis://[::1]:x/0", "redis://[::1]:x/0"),
            ("x//h:/0", "x//h:/0"),
            ("app:hun//ter2@db", "***@db"),
            ("hun@ter//2@db", "***@db"),
            ("mongodb+srv://app:hun//ter2@db", "mongodb+srv://***@db"),
            ("x-api.key_id=1 y=2", "x-api.key_id=*** y=2"),
            ("token=a\"b c", "token=*** c"),
            ("token=\"a' b\" c", "token=*** c"),
            ("token=\"a\\\\\" c", "token=*** c"),
            ("monkeys/x=1", "monkeys/x=1"),
            ("pwd=", "pwd=***"),
            ("host=db password=hunter2 user=app", "host=db password=*** user=app"),
            ("password = 'hun \\' ter2' user=app", "password =*** user=app"),
            ("password='hunter2", "password=***"),
            ("Server=db;Pwd=hunter2;Port=1", "Server=db;Pwd=***;Port=1"),
            ("h?sslpassword=a&x=y&token=b", "h?sslpassword=***&x=y&token=***"),
        ] {
            assert_eq!(redacted(text), shown);
        }
    }

    #[test]
    fn surrounding_space_and_quotes_are_removed() {
        for (given, url) in [
            ("toy:x", "toy:x"),
            ("\u{feff} \"toy:x\"\r\n", "toy:x"),
            ("' toy:x '", "toy:x"),
            ("toy:'x'", "toy:'x'"),
            ("toy:x\"", "toy:x\""),
            ("", ""),
        ] {
            assert_eq!(trimmed(given).unwrap(), url, "{given:?}");
        }
        let inside =
            "the URL contains a control character, such as a line break; remove it, or percent-encode it";
        for (given, says) in [
            ("\"toy:x", "the URL begins with an unmatched quote; remove it"),
            ("'toy:x\"", "the URL begins with an unmatched quote; remove it"),
            ("toy:\nx", inside),
        ] {
            assert_eq!(trimmed(given).unwrap_err().to_string(), format!("connect: {says}"), "{given:?}");
        }
    }

    #[test]
    fn login_that_would_be_read_as_another_part_is_rejected() {
        for rest in ["//h", "h", "//u:p@h:1,[::1]:2/db?x=1", "//u:p@[::1]", "//h:/db", "//h/a:b"] {
            check_login(rest).unwrap();
        }
        let at = "the URL has an unexpected `@`; write it as %40; in the user and password, write `/` as %2F, `?` as %3F and \
                  `:` as %3A";
        let port = "the port is not a number; percent-encode special characters in `USER:PASSWORD@HOST:PORT`";
        for (rest, says) in [
            ("//u:a/b@h", at),
            ("//u:a?b@h", at),
            ("//u:a@b@h", at),
            ("//u:secret", port),
            ("//u:a:1@h:x", port),
            ("//a:1,b:x", port),
            ("//[::1]:x", port),
        ] {
            assert_eq!(check_login(rest).unwrap_err().to_string(), format!("connect: {says}"), "{rest}");
        }
    }

    #[test]
    fn connection_string_is_known_by_its_first_name() {
        for text in ["host=h", " Host = h", "User Id=x", "data source=x", "password=x", "api-key=x"] {
            assert!(is_connection_string(text), "{text}");
        }
        for text in ["ids.db", "", "=x", "table=t", "hosts=h"] {
            assert!(!is_connection_string(text), "{text}");
        }
    }
}
