//! TLS for `rediss://`.

use std::io;
use std::sync::Arc;

use idmill::{Error, ErrorKind, Result};
use idmill_tls::roots;
use tokio::net::TcpStream;
use tokio::task::spawn_blocking;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, Error as Tls};

use super::place::Place;

/// Shakes hands, and holds the certificate against the roots as they are now: they may be
/// renewed under a running service.
///
/// The cryptography is named here, not looked up: where two stores bring one each, nobody else could choose.
pub(super) async fn wrap(place: &Place, stream: TcpStream) -> Result<TlsStream<TcpStream>> {
    let file = place.ca.clone();
    let roots = spawn_blocking(move || roots(file.as_deref(), "ca")).await;
    let roots = roots.map_err(|error| Error::from(ErrorKind::Unavailable).because(error))??;
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().expect("the provider has TLS 1.2 and 1.3");
    let config = builder.with_root_certificates(roots).with_no_client_auth();
    let name = ServerName::try_from(place.host.clone()).map_err(|error| failed(io::Error::other(error)))?;
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.map_err(failed)
}

fn failed(error: io::Error) -> Error {
    let (kind, remedy) = match error.get_ref().and_then(|cause| cause.downcast_ref()) {
        Some(Tls::InvalidCertificate(_)) => (
            ErrorKind::Denied,
            "; ca=FILE names who may have signed it, and the host has to be the one that it is for",
        ),
        Some(Tls::InvalidMessage(_)) => {
            (ErrorKind::Unsupported, "; is it TLS that it speaks? redis:// does without")
        }
        _ => (ErrorKind::Unavailable, ""),
    };
    Error::new(kind, format!("no TLS with the server: {error}{remedy}")).because(error)
}
