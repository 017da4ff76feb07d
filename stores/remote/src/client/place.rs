//! Which servers, and who asks them, as a URL says it: `idmill://:TOKEN@HOST:PORT,HOST:PORT`.

use std::fmt;

use idmill::Result;
use idmill_kit::{Address, query, refuse};

const DEFAULT_PORT: u16 = 7380;
/// What stands for a token where a URL is printed.
const HIDDEN: &str = "***";

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
    pub(super) servers: Vec<Address>,
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
        let servers = servers.split(',').map(server).collect::<Result<_>>()?;
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

/// Reads `HOST` or `HOST:PORT`.
pub(super) fn server(address: &str) -> Result<Address> {
    Address::parse(address, Some(DEFAULT_PORT)).ok_or_else(|| {
        refuse(format!(
            "{address:?} is no HOST:PORT of a server, such as 10.0.0.7:7380; commas go between several"
        ))
    })
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.tls { "idmills://" } else { "idmill://" })?;
        if self.token.is_some() {
            write!(f, ":{HIDDEN}@")?;
        }
        let servers: Vec<_> = self.servers.iter().map(Address::to_string).collect();
        f.write_str(&servers.join(","))
    }
}
