//! Which servers, and who asks them, as a URL says it: `idmill://:TOKEN@HOST:PORT,HOST:PORT`.

use std::fmt;

use idmill::Result;
use idmill::store::kit::{query, refuse};

const DEFAULT_PORT: u16 = 7380;
/// What stands for a token where a URL is printed.
const HIDDEN: &str = "***";

/// One server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Server {
    pub(super) host: String,
    pub(super) port: u16,
}

/// Shown to nobody but the server.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Token(pub(crate) String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

/// The servers, and the token for all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) tls: bool,
    pub(super) servers: Vec<Server>,
    pub(super) token: Option<Token>,
}

impl Place {
    /// Reads what lies between the scheme's colon and the question mark.
    pub(super) fn parse(tls: bool, rest: &str) -> Result<Self> {
        let rest = rest
            .strip_prefix("//")
            .ok_or_else(|| refuse("servers follow two slashes: `idmill://HOST:PORT`"))?;
        let (login, servers) = rest.rsplit_once('@').map_or((None, rest), |(l, servers)| (Some(l), servers));
        let servers = servers.strip_suffix('/').unwrap_or(servers);
        if servers.contains('/') {
            return Err(refuse("no path follows the servers; the store behind them is theirs to know"));
        }
        let servers = servers.split(',').map(Server::parse).collect::<Result<_>>()?;
        Ok(Self { tls, servers, token: login.map(token).transpose()? })
    }
}

/// Not echoed.
fn token(login: &str) -> Result<Token> {
    let token = login.strip_prefix(':').map(query::decoded).transpose()?.filter(|token| !token.is_empty());
    token.map(Token).ok_or_else(|| {
        refuse("a token has a colon before it and no user: write `idmill://:TOKEN@HOST`, or name a file by token_file=FILE")
    })
}

impl Server {
    /// Reads `HOST` or `HOST:PORT`.
    pub(super) fn parse(address: &str) -> Result<Self> {
        let bad = || {
            refuse(format!(
                "{address:?} is no HOST:PORT of a server, such as 10.0.0.7:7380; commas go between several"
            ))
        };
        // The colons inside the brackets of an IPv6 address are none of a port.
        let after = address.rfind(']').map_or(0, |bracket| bracket + 1);
        let (host, port) = match address[after..].split_once(':') {
            Some((tail, port)) => (&address[..after + tail.len()], port.parse().map_err(|_| bad())?),
            None => (address, DEFAULT_PORT),
        };
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let plain = |byte: u8| {
            byte.is_ascii_alphanumeric() || b"._-%".contains(&byte) || (byte == b':' && bare != host)
        };
        if bare.is_empty() || port == 0 || !bare.bytes().all(plain) {
            return Err(bad());
        }
        Ok(Self { host: bare.to_owned(), port })
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.tls { "idmills://" } else { "idmill://" })?;
        if self.token.is_some() {
            write!(f, ":{HIDDEN}@")?;
        }
        let servers: Vec<_> = self.servers.iter().map(Server::to_string).collect();
        f.write_str(&servers.join(","))
    }
}
