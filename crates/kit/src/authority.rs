//! The login and hosts of a URL: `USER:PASSWORD@HOST:PORT,HOST:PORT`.

use std::fmt;

use idmill::Result;

use super::secrets::HIDDEN;
use super::{Address, query, refuse};

/// The hosts of a URL and the login before them. `Display` and `Debug` hide the password.
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Authority {
    /// The user name; `None` if it is missing or empty.
    pub user: Option<String>,
    /// The password. `Display` and `Debug` hide it.
    pub password: Option<String>,
    /// The hosts as given: `HOST` or `HOST:PORT`.
    pub hosts: Vec<String>,
}

impl Authority {
    /// Creates an authority with these hosts and no login.
    pub fn of<H: Into<String>>(hosts: impl IntoIterator<Item = H>) -> Self {
        Self { user: None, password: None, hosts: hosts.into_iter().map(Into::into).collect() }
    }

    /// Parses the text between `//` and the next `/` of a URL.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for a login that is not UTF-8.
    pub fn parse(text: &str) -> Result<Self> {
        let (login, hosts) = text.rsplit_once('@').map_or(("", text), |(login, hosts)| (login, hosts));
        let (user, password) = login.split_once(':').map_or((login, None), |(user, word)| (user, Some(word)));
        Ok(Self {
            user: Some(query::decoded(user)?).filter(|user| !user.is_empty()),
            password: password.map(query::decoded).transpose()?,
            ..Self::of(hosts.split(','))
        })
    }

    /// Sets the login. Two empty strings remove it.
    pub fn log_in(&mut self, user: impl Into<String>, password: impl Into<String>) {
        let (user, password) = (user.into(), password.into());
        self.password = Some(password).filter(|password| !(user.is_empty() && password.is_empty()));
        self.user = Some(user).filter(|user| !user.is_empty());
    }

    /// Returns the user and password, or `None` without a login.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) if only the user or only the password is set. The
    /// message contains neither.
    pub fn login(&self) -> Result<Option<(&str, &str)>> {
        match (&self.user, &self.password) {
            (Some(user), Some(password)) => Ok(Some((user, password))),
            (None, None) => Ok(None),
            _ => Err(refuse(
                "the user or the password is missing; write `USER:PASSWORD@`, with special \
                 characters percent-encoded",
            )),
        }
    }

    /// Returns the address of every host. `port` is the default port.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) if a host is invalid or missing.
    pub fn addresses(&self, port: u16) -> Result<Vec<Address>> {
        if self.hosts.is_empty() {
            return Err(refuse("the host is missing; write `HOST` or `HOST:PORT`"));
        }
        self.hosts.iter().map(|host| Self::address(host, port)).collect()
    }

    /// Parses one host. `port` is the default port.
    ///
    /// # Errors
    /// As [`addresses`](Self::addresses).
    pub fn address(host: &str, port: u16) -> Result<Address> {
        Address::parse(host, Some(port)).ok_or_else(|| {
            refuse(format!(
                "the host {host:?} is invalid; write `HOST` or `HOST:PORT`, such as `10.0.0.7:{port}`"
            ))
        })
    }

    /// Returns the login and the hosts as in a URL, including the password. Pass it only to a driver.
    pub fn revealed(&self) -> String {
        self.text(self.password.as_deref().map(query::encoded))
    }

    fn text(&self, password: Option<String>) -> String {
        let user = self.user.as_deref().map(query::encoded).unwrap_or_default();
        let login = match password {
            Some(password) => format!("{user}:{password}@"),
            None if user.is_empty() => user,
            None => user + "@",
        };
        login + &self.hosts.join(",")
    }
}

/// Prints `***` in place of the password.
impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(self.password.as_ref().map(|_| HIDDEN.to_owned())))
    }
}

/// Uses the `Display` form, which hides the password.
impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Authority({self})")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn login_is_decoded_and_its_password_hidden() {
        for (text, user, password, printed) in [
            ("a,b:1", None, None, "a,b:1"),
            ("me%40x:s%2Fcret@a", Some("me@x"), Some("s/cret"), "me%40x:***@a"),
            (":s@[::1]:5", None, Some("s"), ":***@[::1]:5"),
            ("u:@a", Some("u"), Some(""), "u:***@a"),
            ("u@a", Some("u"), None, "u@a"),
            ("@a", None, None, "a"),
        ] {
            let read = Authority::parse(text).unwrap();
            assert_eq!((read.user.as_deref(), read.password.as_deref()), (user, password), "{text}");
            assert_eq!(
                (read.to_string(), format!("{read:?}")),
                (printed.into(), format!("Authority({printed})"))
            );
        }
        let error = Authority::parse("u:%ffsecret@a").unwrap_err().to_string();
        assert_eq!(error, "connect: percent-encoded bytes in the URL are not UTF-8");
    }

    #[test]
    fn login_needs_user_and_password() {
        for (text, login) in
            [("a", Some(None)), ("u:p@a", Some(Some(("u", "p")))), ("u@a", None), (":p@a", None)]
        {
            let read = Authority::parse(text).unwrap();
            let refused = "connect: the user or the password is missing; write `USER:PASSWORD@`, with special characters \
                           percent-encoded";
            let expected = login.ok_or_else(|| refused.to_owned());
            assert_eq!(read.login().map_err(|error| error.to_string()), expected, "{text}");
        }
    }

    #[test]
    fn hosts_have_a_port_or_the_default() {
        let addresses = Authority::of(["a", "b:1", "[::1]"]).addresses(7).unwrap();
        assert_eq!(addresses.iter().map(Address::to_string).collect::<Vec<_>>(), ["a:7", "b:1", "[::1]:7"]);
        let form = "write `HOST` or `HOST:PORT`, such as `10.0.0.7:7`";
        let wrong = [
            (&[][..], "the host is missing; write `HOST` or `HOST:PORT`".to_owned()),
            (&["a", ""], format!("the host \"\" is invalid; {form}")),
            (&["a b"], format!("the host \"a b\" is invalid; {form}")),
        ];
        for (hosts, says) in wrong {
            let error = Authority::of(hosts.iter().copied()).addresses(7).unwrap_err().to_string();
            assert_eq!(error, format!("connect: {says}"));
        }
    }

    proptest! {
        #[test]
        fn revealed_authority_reads_back(user in "\\PC{0,9}", password in "\\PC{0,9}", host in "[a-z]{1,9}") {
            let mut authority = Authority::of([host]);
            authority.log_in(user, password);
            prop_assert_eq!(Authority::parse(&authority.revealed()).unwrap(), authority);
        }
    }

    #[test]
    fn two_empty_strings_remove_the_login() {
        for (user, password, printed) in
            [("u", "p", "u:p@a"), ("u", "", "u:@a"), ("", "p", ":p@a"), ("", "", "a")]
        {
            let mut authority = Authority::parse("x:y@a").unwrap();
            authority.log_in(user, password);
            assert_eq!(authority.revealed(), printed);
        }
    }
}
