//! A server's address in URLs: `redis://USER:PASSWORD@HOST:PORT/DB`, and `rediss://` over TLS.

use std::fmt;

use idmill::Result;
use idmill_kit::options::{Entry, Options, Tls};
use idmill_kit::{Address, Authority, refuse};

const DEFAULT_PORT: u16 = 6379;
pub(crate) const TLS: &str = "rediss";

/// The URL of a server, without options: the server, and the user to log in as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerUrl {
    /// The user to log in as, and the host.
    pub(crate) authority: Authority,
    pub(crate) server: Address,
    pub(crate) tls: Tls,
    pub(crate) database: u32,
}

impl ServerUrl {
    /// The URL of the server at `HOST:PORT` or `HOST`.
    pub(crate) fn at(address: &str) -> Result<Self> {
        Self::of(Authority::of([address]))
    }

    fn of(mut authority: Authority) -> Result<Self> {
        let server = Authority::address(&authority.hosts.join(","), DEFAULT_PORT)?;
        authority.hosts = vec![server.to_string()];
        Ok(Self { authority, server, tls: Tls::fixed(false), database: 0 })
    }

    /// Parses the URL between the scheme's colon and the question mark.
    pub(crate) fn parse(scheme: &str, place: &str) -> Result<Self> {
        let (authority, path) = place.split_once('/').unwrap_or((place, ""));
        let url = Self::of(Authority::parse(authority)?)?;
        Ok(Self { tls: Tls::fixed(scheme == TLS), database: database(path)?, ..url })
    }

    pub(crate) fn scheme(&self) -> &'static str {
        if self.tls.is_on() { TLS } else { "redis" }
    }

    /// Checks everything that needs no connection.
    pub(crate) fn check(&self) -> Result<()> {
        let Authority { user, password, .. } = &self.authority;
        if user.is_some() && password.as_ref().is_none_or(String::is_empty) {
            return Err(refuse("the URL has a user but no password; write `redis://USER:PASSWORD@HOST`"));
        }
        self.tls.check("redis://", "rediss://")
    }
}

impl Options for ServerUrl {
    /// Only `ca`: TLS itself follows from the scheme.
    fn entries(&mut self) -> Vec<Entry<'_>> {
        self.tls.entries().into_iter().filter_map(|entry| entry.among(&["ca"])).collect()
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme(), self.authority)?;
        if self.database == 0 { Ok(()) } else { write!(f, "/{}", self.database) }
    }
}

fn database(path: &str) -> Result<u32> {
    if path.is_empty() {
        return Ok(0);
    }
    let known = path.bytes().all(|byte| byte.is_ascii_digit()).then(|| path.parse().ok()).flatten();
    known.ok_or_else(|| refuse(format!("/{path} is not the number of a database, such as /0")))
}
