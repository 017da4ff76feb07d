//! The TLS options, which are the same for all stores that support TLS.

use std::path::PathBuf;

use idmill::Result;

use super::super::refuse;
use super::{FILE, words};

crate::options! {
    /// How a connection is encrypted.
    #[derive(Debug, Default)]
    pub struct Tls {}

    /// Whether connections are encrypted. Default: `true` if a certificate file is set.
    pub on ("tls"): Option<bool> = "" in words::<bool>();
    /// For TLS: a PEM file with the certificate authorities to trust, instead of the default ones.
    pub ca: Option<PathBuf> = "" in FILE;
    /// For TLS: a PEM file with the client's certificate, if the server requires one.
    pub cert: Option<PathBuf> = "" in FILE;
    /// For TLS: a PEM file with the private key of `cert`.
    pub key: Option<PathBuf> = "" in FILE;
}

impl Tls {
    /// Turns TLS on or off.
    pub fn fixed(on: bool) -> Self {
        Self { on: Some(on), ..Self::default() }
    }

    /// Returns whether connections are encrypted.
    pub fn is_on(&self) -> bool {
        self.on.unwrap_or(self.ca.is_some() || self.cert.is_some())
    }

    /// Checks that files are set only if TLS is on. `without` is the URL form that turns TLS off, and `with`
    /// the form that turns it on.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for a file that has no effect, and for a certificate
    /// without its key.
    pub fn check(&self, without: &str, with: &str) -> Result<()> {
        if self.cert.is_some() != self.key.is_some() {
            return Err(refuse("the certificate or its key is missing; set both, `cert=FILE&key=FILE`"));
        }
        if !self.is_on() && (self.ca.is_some() || self.cert.is_some()) {
            return Err(refuse(format!(
                "certificates are not used with {without}; write {with}, or omit the certificates"
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options as _;

    fn tls(query: &str) -> Tls {
        Tls::with_defaults().read(query).unwrap()
    }

    #[test]
    fn certificate_file_turns_tls_on() {
        for (query, is_on) in [
            ("", false),
            ("tls=true", true),
            ("tls=false", false),
            ("ca=/c", true),
            ("cert=/c", true),
            ("key=/k", false),
            ("tls=false&ca=/c", false),
        ] {
            assert_eq!(tls(query).is_on(), is_on, "{query}");
        }
        assert!(Tls::fixed(true).is_on() && !Tls::fixed(false).is_on());
    }

    #[test]
    fn certificates_are_complete_and_used() {
        for query in ["", "tls=true", "tls=false", "ca=/c", "cert=/c&key=/k", "tls=true&ca=/a&cert=/c&key=/k"]
        {
            tls(query).check("toy://", "toys://").unwrap();
        }
        let incomplete = "the certificate or its key is missing; set both, `cert=FILE&key=FILE`";
        let unused = "certificates are not used with toy://; write toys://, or omit the certificates";
        for (query, says) in [
            ("cert=/c", incomplete),
            ("key=/k", incomplete),
            ("tls=false&key=/k", incomplete),
            ("tls=false&ca=/c", unused),
            ("tls=false&cert=/c&key=/k", unused),
        ] {
            let error = tls(query).check("toy://", "toys://").unwrap_err().to_string();
            assert_eq!(error, format!("connect: {says}"), "{query}");
        }
    }
}
