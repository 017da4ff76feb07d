//! Builds the TLS configuration from the options.

use std::sync::Arc;

use idmill::Result;
use idmill_kit::options::Tls;
use idmill_kit::{Address, refuse};
use idmill_tls::{roots, showing};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, Error};

/// Returns the client configuration for nodes of these hosts. Blocks while it reads the certificate files.
pub(super) fn config(hosts: &[Address], tls: &Tls) -> Result<ClientConfig> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let roots = Arc::new(roots(tls.ca.as_deref(), "ca")?);
    let inner = WebPkiServerVerifier::builder_with_provider(roots, provider.clone()).build();
    let inner = inner.map_err(|error| refuse(format!("ca= cannot be used: {error}")))?;
    let names = hosts
        .iter()
        .map(|host| ServerName::try_from(host.host().to_owned()).map_err(|error| refuse(error.to_string())));
    let names = names.collect::<Result<_>>()?;
    let verifier = Arc::new(Named { inner, names, provider: provider.clone() });
    let builder = ClientConfig::builder_with_provider(provider);
    let builder =
        builder.with_safe_default_protocol_versions().expect("the provider supports TLS 1.2 and 1.3");
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
    showing(builder, tls)
}

/// A verifier that accepts a certificate for the node's address or for a host from the options.
///
/// The driver identifies nodes only by address, but certificates are often issued for names.
#[derive(Debug)]
struct Named {
    inner: Arc<WebPkiServerVerifier>,
    names: Vec<ServerName<'static>>,
    provider: Arc<CryptoProvider>,
}

fn is_of_name(error: &Error) -> bool {
    use CertificateError::{NotValidForName, NotValidForNameContext};
    matches!(error, Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. }))
}

impl ServerCertVerifier for Named {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        node: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verify = |name| self.inner.verify_server_cert(certificate, chain, name, ocsp, now);
        let mut outcome = verify(node);
        for name in &self.names {
            match &outcome {
                Err(error) if is_of_name(error) => outcome = verify(name),
                _ => break,
            }
        }
        outcome
    }

    idmill_tls::signatures_by!(provider);
}
