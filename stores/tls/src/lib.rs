//! The root certificates that a server's certificate is checked against, and the handshake (feature
//! `client`): for the stores of [`idmill`] that speak TLS.

#[cfg(feature = "client")]
pub mod client;

use idmill::Result;
use idmill::store::kit::refuse;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

/// Those of this file (PEM), which `option` named, or else the system's; `SSL_CERT_FILE` in the environment
/// names others. Blocks for as long as it takes to read them.
///
/// # Errors
/// [`InvalidInput`](idmill::ErrorKind::InvalidInput) where there are none, with what to do about it.
pub fn roots(file: Option<&str>, option: &str) -> Result<RootCertStore> {
    match file {
        Some(file) => of_file(file, option),
        None => of_system(option),
    }
}

fn of_system(option: &str) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    // One that cannot be read is of no use, and no reason to do without the others.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(refuse(format!(
            "this system has no root certificates: install them (ca-certificates), or name a file of them with {option}=FILE"
        )));
    }
    Ok(roots)
}

fn of_file(file: &str, option: &str) -> Result<RootCertStore> {
    let unreadable =
        |error: &dyn std::fmt::Display| refuse(format!("{option}={file:?} cannot be read: {error}"));
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|error| unreadable(&error))? {
        let certificate = certificate.map_err(|error| unreadable(&error))?;
        roots.add(certificate).map_err(|error| unreadable(&error))?;
    }
    if roots.is_empty() {
        return Err(unreadable(&"there is no certificate in it"));
    }
    Ok(roots)
}
