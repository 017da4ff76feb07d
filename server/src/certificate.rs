//! What a certificate says.

use std::time::{Duration, SystemTime};

use rustls::pki_types::CertificateDer;
use x509_parser::parse_x509_certificate;

/// Whose it is; `None` where it does not say so in a way that is understood.
pub(crate) fn subject(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, read) = parse_x509_certificate(certificate).ok()?;
    Some(read.subject().to_string()).filter(|subject| !subject.is_empty())
}

/// When it ends.
pub(crate) fn end(certificate: &CertificateDer<'_>) -> Option<SystemTime> {
    let (_, read) = parse_x509_certificate(certificate).ok()?;
    let seconds = u64::try_from(read.validity().not_after.timestamp()).ok()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}
