//! TLS to the server according to `sslmode=`, with an explicit cryptography provider.

use std::path::Path;
use std::sync::Arc;

use idmill::Result;
use idmill_kit::options::Word;
use idmill_tls::{roots, showing_files};
use rustls::ClientConfig;
use rustls::client::danger::{ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_postgres::config::SslMode as DriverSslMode;
use tokio_postgres_rustls::MakeRustlsConnect;

/// Whether the connection is encrypted, and how the server is verified. The names are PostgreSQL's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SslMode {
    /// Not encrypted.
    Disable,
    /// Encrypted if the server supports it. Its certificate is not checked.
    #[default]
    Prefer,
    /// Always encrypted. The server's certificate is not checked.
    Require,
    /// Always encrypted. The server's certificate must be valid for the host name and signed by a trusted
    /// root.
    VerifyFull,
}

impl Word for SslMode {
    const WORDS: &'static [(Self, &'static str, &'static str)] = &[
        (Self::Disable, "disable", "not encrypted"),
        (Self::Prefer, "prefer", "encrypted if the server supports it"),
        (Self::Require, "require", "encrypted, but the server's identity is not checked"),
        (Self::VerifyFull, "verify-full", "encrypted, and the certificate and the host's name are checked"),
    ];
}

impl SslMode {
    pub(super) fn driver(self) -> DriverSslMode {
        match self {
            Self::Disable => DriverSslMode::Disable,
            Self::Prefer => DriverSslMode::Prefer,
            Self::Require | Self::VerifyFull => DriverSslMode::Require,
        }
    }
}

/// Reads the root certificates if the mode needs them, and the client's certificate and its key. Blocks while
/// reading.
pub(super) fn connector(
    mode: SslMode,
    root: Option<&Path>,
    [cert, key]: [Option<&Path>; 2],
) -> Result<MakeRustlsConnect> {
    // rustls panics if it has to choose between the providers that several stores link.
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone());
    let builder =
        builder.with_safe_default_protocol_versions().expect("the provider supports TLS 1.2 and 1.3");
    let config = if mode == SslMode::VerifyFull {
        builder.with_root_certificates(roots(root, "sslrootcert")?)
    } else {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(Unverified(provider)))
    };
    Ok(MakeRustlsConnect::new(showing_files(config, [("sslcert", cert), ("sslkey", key)])?))
}

/// Accepts any certificate, as `prefer` and `require` do in PostgreSQL. A server that requests
/// SCRAM still has to prove over this channel that it has the password's verifier.
#[derive(Debug)]
struct Unverified(Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    idmill_tls::signatures_by!(0);
}

#[cfg(test)]
mod tests {
    use idmill_kit::options::Word;

    use super::*;

    #[test]
    fn certificates_that_cannot_be_read_are_named() {
        let missing =
            connector(SslMode::VerifyFull, Some(Path::new("/no/such.pem")), [None; 2]).err().unwrap();
        assert!(missing.to_string().contains("/no/such.pem"), "{missing}");
        // Must not panic, whichever providers other stores link.
        for mode in SslMode::WORDS.iter().map(|(mode, ..)| *mode).filter(|mode| *mode != SslMode::VerifyFull)
        {
            assert!(connector(mode, None, [None; 2]).is_ok());
        }
    }
}
