//! TLS for the stores of [`idmill`]: root certificates, and the handshake (feature `client`). The crate also
//! opens connections in the Redis protocol, with or without TLS (feature `resp`).

#[cfg(feature = "client")]
pub mod client;
#[cfg(feature = "resp")]
pub mod resp;

use std::path::Path;

use idmill::{Error, Result};
use idmill_kit::options::Tls;
use idmill_kit::refuse;
use rustls::client::WantsClientCert;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ConfigBuilder, RootCertStore};

/// Loads root certificates from `file` (PEM), or from the system if it is `None`. `option` is the name of the
/// file's option, for errors. The environment variable `SSL_CERT_FILE` replaces the system's roots. Blocks.
///
/// # Errors
/// [`InvalidInput`](idmill::ErrorKind::InvalidInput) if a certificate in the file cannot be read, or if there
/// are no certificates.
pub fn roots(file: Option<&Path>, option: &str) -> Result<RootCertStore> {
    if let Some(file) = file {
        return of_file(file, option);
    }
    let mut roots = RootCertStore::empty();
    // Skip an unreadable certificate and use the others.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(refuse(format!(
            "this system has no root certificates; install them (ca-certificates), or set `{option}=FILE`"
        )));
    }
    Ok(roots)
}

fn of_file(file: &Path, option: &str) -> Result<RootCertStore> {
    let shown = file.display().to_string();
    let unreadable =
        |error: &dyn std::fmt::Display| refuse(format!("{option}={shown:?} cannot be read: {error}"));
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file).map_err(|reason| unreadable(&reason))? {
        roots.add(certificate).map_err(|error| unreadable(&error))?;
    }
    if roots.is_empty() {
        return Err(unreadable(&"the file has no certificates"));
    }
    Ok(roots)
}

/// Completes a configuration with the client certificate in these PEM files (`cert=FILE&key=FILE`), if they
/// are set. Blocks on reading them.
///
/// # Errors
/// [`InvalidInput`](idmill::ErrorKind::InvalidInput) for an unusable file.
pub fn showing(builder: ConfigBuilder<ClientConfig, WantsClientCert>, tls: &Tls) -> Result<ClientConfig> {
    showing_files(builder, [("cert", tls.cert.as_deref()), ("key", tls.key.as_deref())])
}

/// Like [`showing`], with the options of the certificate and the key, each with its name.
///
/// # Errors
/// Those of [`showing`].
pub fn showing_files(
    builder: ConfigBuilder<ClientConfig, WantsClientCert>,
    files: [(&str, Option<&Path>); 2],
) -> Result<ClientConfig> {
    let [(of_cert, Some(cert)), (of_key, Some(key))] = files else {
        return Ok(builder.with_no_client_auth());
    };
    let chain = certificates(cert).map_err(|reason| unusable(of_cert, cert, &reason))?;
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| unusable(of_key, key, &reason(&error)))?;
    builder.with_client_auth_cert(chain, secret).map_err(|error| unusable(of_cert, cert, &error))
}

fn unusable(option: &str, file: &Path, error: &dyn std::fmt::Display) -> Error {
    refuse(format!("{option}={:?} cannot be used: {error}", file.display().to_string()))
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    CertificateDer::pem_file_iter(file).and_then(Iterator::collect).map_err(|error| reason(&error))
}

/// Describes an error in a PEM file, without the line of the file that some errors contain: it may be a key.
fn reason(error: &pem::Error) -> String {
    match error {
        pem::Error::IllegalSectionStart { .. } | pem::Error::MissingSectionEnd { .. } => {
            "invalid PEM: put `BEGIN` and `END` on separate lines".to_owned()
        }
        other => other.to_string(),
    }
}

/// Implements the signature checks of rustls' `ServerCertVerifier` with the cryptography provider in this
/// field.
#[doc(hidden)] // for the stores with a verifier of their own
#[macro_export]
macro_rules! signatures_by {
    ($provider:tt) => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            certificate: &::rustls::pki_types::CertificateDer<'_>,
            signature: &::rustls::DigitallySignedStruct,
        ) -> Result<::rustls::client::danger::HandshakeSignatureValid, ::rustls::Error> {
            let by = &self.$provider.signature_verification_algorithms;
            ::rustls::crypto::verify_tls12_signature(message, certificate, signature, by)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &::rustls::pki_types::CertificateDer<'_>,
            signature: &::rustls::DigitallySignedStruct,
        ) -> Result<::rustls::client::danger::HandshakeSignatureValid, ::rustls::Error> {
            let by = &self.$provider.signature_verification_algorithms;
            ::rustls::crypto::verify_tls13_signature(message, certificate, signature, by)
        }

        fn supported_verify_schemes(&self) -> Vec<::rustls::SignatureScheme> {
            self.$provider.signature_verification_algorithms.supported_schemes()
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pem_error_contains_no_line_of_the_file() {
        for key in ["-----BEGIN PRIVATE KEY----- c2VjcmV0", "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n"] {
            let error = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap_err();
            assert_eq!(reason(&error), "invalid PEM: put `BEGIN` and `END` on separate lines");
        }
        let none = PrivateKeyDer::from_pem_slice(b"").unwrap_err();
        assert_eq!(reason(&none), "no items found");
    }

    /// Writes a file for one test, and removes it at the end.
    struct File(std::path::PathBuf);

    impl File {
        fn of(name: &str, content: &str) -> Self {
            let path = std::env::temp_dir().join(format!("idmill-tls-{}-{name}", std::process::id()));
            std::fs::write(&path, content).unwrap();
            Self(path)
        }
    }

    impl Drop for File {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    #[test]
    fn file_without_usable_certificates_is_rejected() {
        let (begin, end) = ("-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----");
        for (name, content, reason) in [
            ("empty.pem", String::new(), "the file has no certificates"),
            ("text.pem", "no PEM".to_owned(), "the file has no certificates"),
            (
                "open.pem",
                format!("{begin}\nc2VjcmV0\n"),
                "invalid PEM: put `BEGIN` and `END` on separate lines",
            ),
            ("bad.pem", format!("{begin}\nc2VjcmV0\n{end}\n"), "invalid peer certificate: BadEncoding"),
        ] {
            let file = File::of(name, &content);
            let error = roots(Some(&file.0), "sslrootcert").unwrap_err();
            let message =
                format!("connect: sslrootcert={:?} cannot be read: {reason}", file.0.display().to_string());
            assert_eq!((error.kind(), error.to_string()), (idmill::ErrorKind::InvalidInput, message));
        }
    }
}
