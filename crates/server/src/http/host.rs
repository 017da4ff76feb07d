//! The host names that the server answers to.
//!
//! A page of another site cannot read this server's answers. But the owner of that site can point its domain
//! at this machine (DNS rebinding), and the browser then treats the page and this server as one site. The
//! `Host` header still contains the domain. So, unless other names are configured, a server without tokens on
//! a loopback address answers only to addresses and `localhost`.

use std::net::{IpAddr, SocketAddr};

use axum::extract::Request;
use axum::http::{StatusCode, Version, header, uri::Authority};
use idmill::ErrorKind;

use super::problem::Problem;

/// The names that the server answers to.
#[derive(Debug)]
pub(crate) struct Hosts {
    /// Names besides addresses and `localhost`.
    names: Vec<String>,
    is_of_this_machine: bool,
}

impl Hosts {
    pub(crate) fn of(names: Vec<String>, address: Option<SocketAddr>) -> Self {
        Self { names, is_of_this_machine: address.is_some_and(|address| address.ip().is_loopback()) }
    }

    /// Returns whether a request for this host is answered. `is_open` means that no token is required.
    fn answers(&self, host: &str, is_open: bool) -> bool {
        let is_checked = !self.names.is_empty() || (is_open && self.is_of_this_machine);
        if !is_checked {
            return true;
        }
        let Ok(authority) = host.parse::<Authority>() else { return false };
        let name = authority.host().trim_end_matches('.');
        let address = name.trim_start_matches('[').trim_end_matches(']');
        address.parse::<IpAddr>().is_ok()
            || name.eq_ignore_ascii_case("localhost")
            || self.names.iter().any(|known| known.eq_ignore_ascii_case(name))
    }
}

/// Refuses requests whose `Host` header names an unknown host. As HTTP/1.1 requires, also refuses requests
/// without `Host` or with several.
pub(super) fn refused(known: &Hosts, is_open: bool, request: &Request) -> Option<Problem> {
    let mut found = request.headers().get_all(header::HOST).iter();
    match (found.next().map(|host| host.to_str().unwrap_or_default()), found.next()) {
        (None, _) if request.version() == Version::HTTP_11 => {
            Some(Problem::invalid("the HTTP/1.1 request has no `Host` header; send one"))
        }
        (_, Some(_)) => Some(Problem::invalid("the request has several `Host` headers; send one")),
        (Some(host), None) if !known.answers(host, is_open) => {
            let detail = format!(
                "the `Host` {host:?} is not allowed; use localhost or an IP address, or run `idmill serve \
                 --http-hosts NAME`"
            );
            Some(Problem::new(StatusCode::MISDIRECTED_REQUEST, ErrorKind::Denied, detail))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(names: &[&str], address: &str) -> Hosts {
        Hosts::of(names.iter().map(ToString::to_string).collect(), Some(address.parse().unwrap()))
    }

    #[test]
    fn open_loopback_server_accepts_only_local_host_names() {
        let local = hosts(&[], "127.0.0.1:7381");
        for host in
            ["localhost", "LOCALHOST:7381", "localhost.:1", "127.0.0.1:7381", "[::1]:7381", "10.0.0.1"]
        {
            assert!(local.answers(host, true), "{host}");
        }
        for host in
            ["evil.example", "evil.example:7381", "127.0.0.1.evil.example", "localhost.evil", "", "a b"]
        {
            assert!(!local.answers(host, true), "{host}");
            assert!(local.answers(host, false), "{host}: with tokens, every host is accepted");
            assert!(
                hosts(&[], "0.0.0.0:7381").answers(host, true),
                "{host}: a server on all addresses accepts every host"
            );
        }
    }

    #[test]
    fn configured_host_names_exclude_other_names() {
        for address in ["127.0.0.1:1", "0.0.0.0:1"] {
            let named = hosts(&["ids.internal"], address);
            assert!(named.answers("ids.internal:7381", false) && named.answers("127.0.0.1", false));
            assert!(!named.answers("evil.example", false) && !named.answers("evil.example", true));
        }
    }
}
