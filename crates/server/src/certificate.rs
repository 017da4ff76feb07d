//! The subject and the end of a certificate.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustls::pki_types::CertificateDer;
use x509_cert::Certificate;
use x509_cert::der::Decode as _;

use crate::counters;

pub(crate) const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Before the end, there is a warning a day.
const SOON: Duration = DAY.saturating_mul(14);

/// Whose it is; `None` where it does not say so in a way that is understood.
pub(crate) fn subject(certificate: &CertificateDer<'_>) -> Option<String> {
    let read = Certificate::from_der(certificate).ok()?;
    Some(read.tbs_certificate.subject.to_string()).filter(|subject| !subject.is_empty())
}

/// When it ends.
fn end(certificate: &CertificateDer<'_>) -> Option<SystemTime> {
    let read = Certificate::from_der(certificate).ok()?;
    Some(read.tbs_certificate.validity.not_after.to_system_time())
}

/// The end of a chain: that of its first certificate to end.
#[derive(Clone, Debug)]
pub(crate) struct Expiry {
    file: PathBuf,
    end: Option<SystemTime>,
}

impl Expiry {
    pub(crate) fn of(file: &Path, chain: &[CertificateDer<'_>]) -> Self {
        Self { file: file.to_owned(), end: chain.iter().filter_map(end).min() }
    }

    pub(crate) fn end(&self) -> Option<SystemTime> {
        self.end
    }

    pub(crate) fn warning(&self, now: SystemTime) -> Option<String> {
        let file = self.file.display();
        match self.end?.duration_since(now) {
            Ok(left) if left > SOON => None,
            Ok(left) => {
                let days = left.as_secs() / DAY.as_secs();
                Some(format!(
                    "the certificate of {file} ends in {days} days, and clients then refuse it: renew it, and put it in its place"
                ))
            }
            Err(_) => Some(format!(
                "the certificate of {file} has ended, and clients refuse it: renew it, and put it in its place"
            )),
        }
    }

    pub(crate) fn tell(&self, now: SystemTime) {
        if let Some(since) = self.end.and_then(|end| end.duration_since(SystemTime::UNIX_EPOCH).ok()) {
            counters::expires(since.as_secs_f64());
        }
        if let Some(warning) = self.warning(now) {
            tracing::warn!("{warning}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_two_weeks_are_warned_of_and_what_has_ended() {
        let now = SystemTime::now();
        let warning = |end| Expiry { file: "server.pem".into(), end: Some(end) }.warning(now);
        assert_eq!(warning(now + SOON + Duration::from_secs(1)), None);
        assert!(warning(now + SOON).unwrap().contains("server.pem ends in 14 days"));
        assert!(warning(now + DAY / 2).unwrap().contains("in 0 days"));
        assert!(warning(now - DAY).unwrap().contains("has ended"));
        assert_eq!(Expiry { file: "server.pem".into(), end: None }.warning(now), None);
    }
}
