//! The TLS handshake with a server, over tokio and with the cryptography of ring.

use std::io;
use std::path::Path;
use std::sync::Arc;

use idmill::{Error, ErrorKind, Result};
use rustls::client::WantsClientCert;
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ConfigBuilder, Error as Tls};
use tokio::net::TcpStream;
use tokio::task::spawn_blocking;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::roots;

/// The advice in errors.
#[derive(Clone, Copy, Debug)]
pub struct Advice {
    /// The URL scheme without TLS, such as `redis://`.
    pub without: &'static str,
    /// The options for a client certificate, such as `cert=FILE&key=FILE`; `None` for a store without them.
    pub certificate: Option<&'static str>,
}

/// Creates a configuration that trusts the [roots] in this file, or else the system's. Blocks on reading
/// them.
///
/// # Errors
/// Those of [`roots`].
pub fn trusting(file: Option<&Path>, option: &str) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>> {
    // Set the provider explicitly: with two providers in one program, rustls has no default.
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder =
        builder.with_safe_default_protocol_versions().expect("the provider supports TLS 1.2 and 1.3");
    Ok(builder.with_root_certificates(roots(file, option)?))
}

/// Performs the handshake with the server `host`. `config` may block. It runs on each call, so that
/// certificates can be renewed without a restart.
///
/// # Errors
/// Those of `config`. [`Denied`](ErrorKind::Denied) if a certificate is not trusted, or if the server sends
/// an alert and `advice` has a `certificate`; [`Unsupported`](ErrorKind::Unsupported) if the server does not
/// use TLS; [`Unavailable`](ErrorKind::Unavailable) for other failures.
pub async fn shake_hands(
    config: impl FnOnce() -> Result<ClientConfig> + Send + 'static,
    host: &str,
    stream: TcpStream,
    advice: Advice,
) -> Result<TlsStream<TcpStream>> {
    let config = spawn_blocking(config).await;
    let config = config.map_err(|error| Error::from(ErrorKind::Unavailable).because(error))??;
    let failed = |error| failed(error, advice);
    let name = ServerName::try_from(host.to_owned()).map_err(|error| failed(io::Error::other(error)))?;
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.map_err(failed)
}

fn failed(error: io::Error, Advice { without, certificate }: Advice) -> Error {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref());
    let (kind, remedy) = match (cause, certificate) {
        (Some(Tls::InvalidCertificate(_)), _) => (
            ErrorKind::Denied,
            "; set `ca=FILE` to the CA certificate, and check that the server's certificate is for this host"
                .to_owned(),
        ),
        (Some(Tls::InvalidMessage(_)), _) => {
            (ErrorKind::Unsupported, format!("; if the server does not use TLS, use {without}"))
        }
        (Some(Tls::AlertReceived(_)), Some(certificate)) => {
            (ErrorKind::Denied, format!("; if the server requires a certificate, use {certificate}"))
        }
        _ => (ErrorKind::Unavailable, String::new()),
    };
    Error::new(kind, format!("the TLS handshake with the server failed: {error}{remedy}")).because(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::{AlertDescription, CertificateError, InvalidMessage};

    fn expect(cause: Tls, certificate: Option<&'static str>, kind: ErrorKind, remedy: &str) {
        let shown = cause.to_string();
        let advice = Advice { without: "toy://", certificate };
        let error = failed(io::Error::new(io::ErrorKind::InvalidData, cause), advice);
        let message = format!("the TLS handshake with the server failed: {shown}{remedy}");
        assert_eq!((error.kind(), error.to_string()), (kind, message));
        assert_eq!(std::error::Error::source(&error).unwrap().to_string(), shown);
    }

    #[test]
    fn failed_handshake_has_the_remedy_for_its_cause() {
        let ca =
            "; set `ca=FILE` to the CA certificate, and check that the server's certificate is for this host";
        let (denied, unavailable) = (ErrorKind::Denied, ErrorKind::Unavailable);
        expect(Tls::InvalidCertificate(CertificateError::Expired), None, denied, ca);
        let plain = "; if the server does not use TLS, use toy://";
        expect(Tls::InvalidMessage(InvalidMessage::InvalidContentType), None, ErrorKind::Unsupported, plain);
        let required = "; if the server requires a certificate, use cert=FILE&key=FILE";
        let alert = || Tls::AlertReceived(AlertDescription::HandshakeFailure);
        expect(alert(), Some("cert=FILE&key=FILE"), denied, required);
        expect(alert(), None, unavailable, "");
        expect(Tls::HandshakeNotComplete, Some("cert=FILE&key=FILE"), unavailable, "");
    }
}
