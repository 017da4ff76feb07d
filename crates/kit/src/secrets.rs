//! A URL as somebody gave it: it is trimmed before it is read, and shown without what could be a secret.

use super::refuse;
use idmill::Result;

/// What stands for a secret where a text is shown.
pub const HIDDEN: &str = "***";
/// An option whose name has one of these in it holds a secret.
const SECRET: [&str; 7] = ["pass", "pwd", "secret", "token", "credential", "auth", "key"];

/// The URL without what an env file, a shell or an editor leaves around it: white space, a line's end, a pair
/// of quotes. No URL begins or ends with one of these.
///
/// # Errors
/// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for a quote that is left at the beginning, and for a
/// control character inside. The message does not show the URL.
pub fn trimmed(url: &str) -> Result<&str> {
    let outer = trim(url);
    let inner = ['"', '\''].into_iter().find_map(|quote| outer.strip_prefix(quote)?.strip_suffix(quote));
    let url = inner.map_or(outer, trim);
    if url.starts_with(['"', '\'']) {
        return Err(refuse("the URL begins with a quote that does not belong to it; take it out"));
    }
    if url.contains(char::is_control) {
        return Err(refuse(
            "the URL has a control character in it, such as the end of a line; take it out, or percent-encode it",
        ));
    }
    Ok(url)
}

fn trim(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_whitespace() || c.is_control() || c == '\u{feff}')
}

/// Refuses a URL in which a password may stand where a host, a path or an option is read, since those are
/// printed: one with an `@` after the first `/` or `?`, with a second `@`, or with a port that is not a
/// number. `rest` is what follows the scheme.
///
/// # Errors
/// [`InvalidInput`](idmill::ErrorKind::InvalidInput). The message shows nothing of the URL.
pub fn check_login(rest: &str) -> Result<()> {
    let rest = rest.strip_prefix("//").unwrap_or(rest);
    let (authority, tail) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let (login, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
    if tail.contains('@') || login.contains('@') {
        return Err(refuse(
            "the URL has an `@` too many, or one after its hosts: write it as %40, and in user name and \
             password also `/` as %2F, `?` as %3F and `:` as %3A",
        ));
    }
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    let port = |host: &str| host.rsplit(']').next().and_then(|end| Some(end.split_once(':')?.1.to_owned()));
    if hosts.split(',').filter_map(port).all(|port| is_port(&port)) {
        return Ok(());
    }
    Err(refuse(
        "what follows the scheme is not HOST:PORT with a number as the port; write credentials as \
         `USER:PASSWORD@HOST`, with special characters in them percent-encoded",
    ))
}

/// The text without what looks like a secret: what stands before an `@`, and the value of every
/// option that is named like one.
pub fn redacted(text: &str) -> String {
    let Some(end) = text.rfind('@') else { return without_secrets(&without_ports(text)) };
    let begin = text[..end].find("//").map_or(0, |slashes| slashes + 2);
    without_secrets(&format!("{}{HIDDEN}{}", &text[..begin], &text[end..]))
}

/// Without what stands in the place of a port and is none.
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

/// Whether the name at the end of `text` is one of a secret.
fn is_secret(text: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
    let name = text.trim_end().rsplit(|c| !is_part(c)).next().unwrap_or_default().to_ascii_lowercase();
    SECRET.iter().any(|secret| name.contains(secret))
}

/// Up to the end of a quoted value, or else to what separates options; a quote that is not
/// closed hides all that follows.
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

/// Whether this is a list of `name=value`, as the drivers of some databases take it.
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
    fn what_looks_like_a_secret_is_hidden() {
        for (text, shown) in [
            ("ids.db", "ids.db"),
            ("postgres//app:hunter2@db/shop", "postgres//***@db/shop"),
            ("app:hun@ter/2@db", "***@db"),
            ("redis://app:hunter2/0", "redis://app:***/0"),
            ("redis://h:6379/0", "redis://h:6379/0"),
            ("host=db password=hunter2 user=app", "host=db password=*** user=app"),
            ("password = 'hun \\' ter2' user=app", "password =*** user=app"),
            ("password='hunter2", "password=***"),
            ("Server=db;Pwd=hunter2;Port=1", "Server=db;Pwd=***;Port=1"),
            ("h?sslpassword=a&x=y&token=b", "h?sslpassword=***&x=y&token=***"),
        ] {
            assert_eq!(redacted(text), shown);
        }
    }
}
