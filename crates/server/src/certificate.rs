//! What a certificate says.

use std::time::SystemTime;

use rustls::pki_types::CertificateDer;
use x509_cert::Certificate;
use x509_cert::der::Decode as _;

/// Whose it is; `None` where it does not say so in a way that is understood.
pub(crate) fn subject(certificate: &CertificateDer<'_>) -> Option<String> {
    let read = Certificate::from_der(certificate).ok()?;
    Some(read.tbs_certificate.subject.to_string()).filter(|subject| !subject.is_empty())
}

/// When it ends.
pub(crate) fn end(certificate: &CertificateDer<'_>) -> Option<SystemTime> {
    let read = Certificate::from_der(certificate).ok()?;
    Some(read.tbs_certificate.validity.not_after.to_system_time())
}
