//! The options of TLS, which are the same for all stores that have them.

use std::path::PathBuf;

use idmill::Result;

use super::super::refuse;
use super::{FILE, words};

crate::options! {
    /// How a connection is encrypted.
    #[derive(Debug, Default)]
    pub struct Tls {}

    /// Whether connections are encrypted; without it, they are if a file is named.
    pub on ("tls"): Option<bool> = "" in words::<bool>();
    /// For TLS: a PEM file with the authorities that sign the server's certificate, in place of the default
    /// ones.
    pub ca: Option<PathBuf> = "" in FILE;
    /// For TLS: a PEM file with the client's certificate, if the server requires one.
    pub cert: Option<PathBuf> = "" in FILE;
    /// A PEM file with the key of that certificate.
    pub key: Option<PathBuf> = "" in FILE;
}

impl Tls {
    /// Encrypted, or not.
    pub fn fixed(on: bool) -> Self {
        Self { on: Some(on), ..Self::default() }
    }

    /// Whether connections are encrypted.
    pub fn is_on(&self) -> bool {
        self.on.unwrap_or(self.ca.is_some() || self.cert.is_some())
    }

    /// That the files have a use. `without` says how a URL turns TLS off, and `with` how it turns it on.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) if they have none.
    pub fn check(&self, without: &str, with: &str) -> Result<()> {
        if self.cert.is_some() != self.key.is_some() {
            return Err(refuse("a certificate and its key go together: cert=FILE&key=FILE"));
        }
        if !self.is_on() && (self.ca.is_some() || self.cert.is_some()) {
            return Err(refuse(format!(
                "{without} has no use for certificates; write {with}, or leave them out"
            )));
        }
        Ok(())
    }
}
