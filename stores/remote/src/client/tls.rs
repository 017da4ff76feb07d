//! TLS for `idmills://`.

use std::io;
use std::path::Path;
use std::sync::Arc;

use idmill::store::kit::refuse;
use idmill::{Error, ErrorKind, Result};
use idmill_tls::roots;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::net::TcpStream;
use tokio::task::spawn_blocking;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::{ClientConfig, Error as Tls};

use super::options::RemoteOptions;

/// Shakes hands. The files are read each time: they may be renewed under a running service.
pub(super) async fn wrap(
    options: &RemoteOptions,
    host: &str,
    stream: TcpStream,
) -> Result<TlsStream<TcpStream>> {
    let options = options.clone();
    let config = spawn_blocking(move || config(&options)).await;
    let config = config.map_err(|error| Error::from(ErrorKind::Unavailable).because(error))??;
    let name = ServerName::try_from(host.to_owned()).map_err(|error| failed(io::Error::other(error)))?;
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.map_err(failed)
}

/// The cryptography is named here, not looked up: where two stores bring one each, nobody else could choose.
fn config(options: &RemoteOptions) -> Result<ClientConfig> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().expect("the provider has TLS 1.2 and 1.3");
    let builder = builder.with_root_certificates(roots(options.ca.as_deref(), "ca")?);
    let (Some(cert), Some(key)) = (&options.cert, &options.key) else {
        return Ok(builder.with_no_client_auth());
    };
    let chain = CertificateDer::pem_file_iter(cert).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = chain.map_err(|error| unreadable("cert", cert, &error))?;
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable("key", key, &error))?;
    builder.with_client_auth_cert(chain, secret).map_err(|error| unreadable("cert", cert, &error))
}

fn unreadable(option: &str, file: &Path, error: &dyn std::fmt::Display) -> Error {
    refuse(format!("{option}={:?} cannot be used: {error}", file.display().to_string()))
}

pub(super) fn failed(error: io::Error) -> Error {
    let (kind, remedy) = match error.get_ref().and_then(|cause| cause.downcast_ref()) {
        Some(Tls::InvalidCertificate(_)) => (
            ErrorKind::Denied,
            "; ca=FILE names who may have signed it, and the host has to be the one that it is for",
        ),
        Some(Tls::InvalidMessage(_)) => {
            (ErrorKind::Unsupported, "; is it TLS that it speaks? idmill:// does without")
        }
        Some(Tls::AlertReceived(_)) => {
            (ErrorKind::Denied, "; does it require a certificate? cert=FILE&key=FILE shows one")
        }
        _ => (ErrorKind::Unavailable, ""),
    };
    Error::new(kind, format!("no TLS with the server: {error}{remedy}")).because(error)
}
