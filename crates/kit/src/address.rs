//! Server addresses in URLs: `HOST:PORT`.

use std::fmt;
use std::net::Ipv6Addr;

/// The host and port of a server. `Display` prints a form that [`parse`](Self::parse) accepts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    host: String,
    port: u16,
}

impl Address {
    /// Parses `HOST:PORT`, or `HOST` if there is a default port. An IPv6 address must be in brackets.
    ///
    /// Returns `None` for anything else. There is no error message here, because the text can be part of a
    /// password. Only the caller can decide whether to show the text.
    pub fn parse(text: &str, default: Option<u16>) -> Option<Self> {
        // Colons inside the brackets do not start a port.
        let end = text.rfind(']').unwrap_or(0);
        let (host, port) = match text[end..].split_once(':') {
            Some((tail, port)) => (&text[..end + tail.len()], digits(port)?),
            None => (text, default?),
        };
        let bare = match host.strip_prefix('[') {
            Some(rest) => rest.strip_suffix(']').filter(|inner| is_ipv6(inner))?,
            None => Some(host).filter(|host| is_name(host))?,
        };
        (port > 0).then(|| Self { host: bare.to_owned(), port })
    }

    /// Returns the host, without the brackets of an IPv6 address.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the port, 1 to 65535.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

fn digits(port: &str) -> Option<u16> {
    port.bytes().all(|byte| byte.is_ascii_digit()).then(|| port.parse().ok()).flatten()
}

fn is_name(host: &str) -> bool {
    !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

/// Accepts any IPv6 address, with or without a zone after a percent sign.
fn is_ipv6(inner: &str) -> bool {
    let (address, zone) = inner.split_once('%').unwrap_or((inner, "0"));
    address.parse::<Ipv6Addr>().is_ok() && is_name(zone)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_host_has_a_port_or_the_default() {
        for (text, host, port) in [
            ("db", "db", 6379),
            ("db-1.example_2:1", "db-1.example_2", 1),
            ("10.0.0.7:65535", "10.0.0.7", 65535),
            ("[::1]", "::1", 6379),
            ("[::]:7", "::", 7),
            ("[fe80::1%eth0]:7", "fe80::1%eth0", 7),
        ] {
            let address = Address::parse(text, Some(6379)).unwrap();
            assert_eq!((address.host(), address.port()), (host, port));
            assert_eq!(Address::parse(&address.to_string(), None), Some(address), "{text}");
        }
        assert_eq!((Address::parse("db", None), Address::parse("[::1]", None)), (None, None));
    }

    #[test]
    fn invalid_host_and_port_is_none() {
        for text in [
            "", ":", ":1", "db:", "db:0", "db:65536", "db:+1", "db:1:2", "::1", "[::1", "::1]", "[]:1",
            "[db]:1", "[::1]x", "x[::1]:1", "[::1]1:1", "a b", "a/b", "db:1 ", "[::1%]:1", "%2F:1", "ü:1",
        ] {
            assert_eq!(Address::parse(text, Some(1)), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn every_host_and_port_is_read_and_printed(
            name in "[a-z0-9][a-z0-9._-]{0,20}", ip: u128, zone in "(%[a-z0-9]{1,5})?", is_name: bool, port in 1..=u16::MAX,
        ) {
            let host = if is_name { name } else { format!("{}{zone}", Ipv6Addr::from(ip)) };
            let text = if is_name { format!("{host}:{port}") } else { format!("[{host}]:{port}") };
            let address = Address::parse(&text, None).unwrap();
            prop_assert_eq!((address.host(), address.port(), address.to_string()), (host.as_str(), port, text));
        }

        #[test]
        fn no_text_is_too_much(text: String) {
            let _ = Address::parse(&text, Some(1));
        }
    }
}
