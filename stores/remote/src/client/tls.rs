//! TLS for `idmills://`.

use std::path::Path;

use idmill::store::kit::refuse;
use idmill::{Error, Result};
use idmill_tls::client::{Advice, shake_hands, trusting};
use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::options::RemoteOptions;

const ADVICE: Advice = Advice { without: "idmill://", certificate: Some("cert=FILE&key=FILE") };

pub(super) async fn wrap(
    options: &RemoteOptions,
    host: &str,
    stream: TcpStream,
) -> Result<TlsStream<TcpStream>> {
    let options = options.clone();
    shake_hands(move || config(&options), host, stream, ADVICE).await
}

fn config(options: &RemoteOptions) -> Result<ClientConfig> {
    let builder = trusting(options.ca.as_deref(), "ca")?;
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
