//! Which server, as a URL says it: `redis://USER:PASSWORD@HOST:PORT/DB`, and `rediss://` over TLS.

use std::fmt;

use idmill::Result;
use idmill_kit::query;
use idmill_kit::query::ESCAPED_VALUE;
use idmill_kit::{Address, refuse};
use percent_encoding::utf8_percent_encode;

const DEFAULT_PORT: u16 = 6379;
/// What stands for a password where a URL is printed.
const HIDDEN: &str = "***";

/// A server, and who asks it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) tls: bool,
    /// A file of the authorities that may have signed its certificate; `None` for the system's.
    pub(crate) ca: Option<String>,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<Password>,
    pub(crate) server: Address,
    pub(crate) database: u32,
}

/// Shown to nobody but the server.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Password(pub(crate) String);

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl Place {
    /// The place at `HOST:PORT`, or `HOST` alone.
    pub(crate) fn at(address: &str) -> Result<Self> {
        let server = server(address)?;
        Ok(Self { tls: false, ca: None, user: None, password: None, server, database: 0 })
    }

    /// Reads what lies between the scheme's colon and the question mark.
    pub(crate) fn parse(tls: bool, rest: &str) -> Result<Self> {
        let Some(rest) = rest.strip_prefix("//") else {
            return Err(refuse("a Redis URL begins with two slashes: `redis://HOST:PORT/DB`"));
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, address) = authority.rsplit_once('@').map_or((None, authority), |(l, a)| (Some(l), a));
        let mut place = Self { tls, database: database(path)?, ..Self::at(address)? };
        if let Some((user, password)) = login.map(|login| login.split_once(':').unwrap_or((login, ""))) {
            place.log_in(&query::decoded(user)?, &query::decoded(password)?);
            if place.password.is_none() {
                return Err(refuse("the URL has a user and no password: write `redis://USER:PASSWORD@HOST`"));
            }
        }
        Ok(place)
    }

    /// The user and password to log in with; empty for neither.
    pub(crate) fn log_in(&mut self, user: &str, password: &str) {
        self.user = Some(user.to_owned()).filter(|user| !user.is_empty());
        self.password = Some(Password(password.to_owned())).filter(|password| !password.0.is_empty());
    }

    /// Speaks TLS, and trusts the authorities in this file.
    pub(crate) fn trust(&mut self, file: String) {
        (self.tls, self.ca) = (true, Some(file));
    }

    /// That nothing is said of TLS where the scheme says that there is none.
    pub(crate) fn check(&self) -> Result<()> {
        if self.ca.is_some() && !self.tls {
            return Err(refuse("ca= is looked at with rediss:// only: write that"));
        }
        Ok(())
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", if self.tls { "rediss" } else { "redis" })?;
        if self.password.is_some() {
            let user = self.user.as_deref().unwrap_or_default();
            write!(f, "{}:{HIDDEN}@", utf8_percent_encode(user, LOGIN))?;
        }
        write!(f, "{}", self.server)?;
        if self.database == 0 { Ok(()) } else { write!(f, "/{}", self.database) }
    }
}

const LOGIN: &percent_encoding::AsciiSet = &ESCAPED_VALUE.add(b'/').add(b':');

fn database(path: &str) -> Result<u32> {
    if path.is_empty() {
        return Ok(0);
    }
    let known = path.bytes().all(|byte| byte.is_ascii_digit()).then(|| path.parse().ok()).flatten();
    known.ok_or_else(|| refuse(format!("/{path} is not the number of a database, such as /0")))
}

fn server(address: &str) -> Result<Address> {
    Address::parse(address, Some(DEFAULT_PORT)).ok_or_else(|| {
        refuse(format!("{address:?} is not HOST:PORT of a Redis server, such as 10.0.0.7:6379"))
    })
}
