//! TLS: the server's certificate and its expiry, and the certificates that clients must present.

use std::fmt;
use std::future::pending;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use derive_more::Debug;
use idmill::{Error, Operation, Result};
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::either::Either;
use x509_cert::Certificate;
use x509_cert::der::Decode as _;

use crate::counters;

/// Timeout of the handshake.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Interval at which the expiry is recorded. Recorders may drop a metric that is idle for minutes.
const RECORDED: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// A warning is logged daily once a certificate expires within this time.
const SOON: Duration = DAY.saturating_mul(14);

/// The server's TLS configuration. Clones share the configuration, so that it can be replaced while the
/// server runs.
#[derive(Clone, Debug)]
#[debug("Tls(…)")]
pub struct Tls(Arc<ArcSwap<Shown>>);

/// The current configuration.
struct Shown {
    config: Arc<ServerConfig>,
    expiry: Expiry,
}

impl Tls {
    /// Reads the certificate chain and its key from PEM files. If `authorities` is given, clients must
    /// present a certificate that one of them has signed.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) if a file cannot be read, or the key does not match
    /// the certificate.
    pub fn from_files(certificate: &Path, key: &Path, authorities: Option<&Path>) -> Result<Self> {
        let chain = certificates(certificate)?;
        let expiry = Expiry::of(certificate, &chain);
        let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| invalid_pem(key, &error))?;
        let provider = Arc::new(ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| unreadable(certificate, &error))?;
        let config = match authorities {
            None => config.with_no_client_auth(),
            Some(file) => {
                let mut roots = RootCertStore::empty();
                for authority in certificates(file)? {
                    roots.add(authority).map_err(|error| unreadable(file, &error))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider).build();
                config.with_client_cert_verifier(verifier.map_err(|error| unreadable(file, &error))?)
            }
        };
        let config =
            config.with_single_cert(chain, secret).map_err(|error| unreadable(certificate, &error))?;
        Ok(Self(Arc::new(ArcSwap::from_pointee(Shown { config: Arc::new(config), expiry }))))
    }

    /// Replaces the configuration. Connected clients keep the old configuration.
    pub fn replace(&self, other: &Self) {
        self.0.store(other.0.load_full());
        self.tell();
    }

    /// Returns the earliest expiry of the chain's certificates; `None` if no expiry could be read.
    pub fn expires(&self) -> Option<SystemTime> {
        self.0.load().expiry.end
    }

    /// Returns a warning if the certificate has expired, or expires within two weeks.
    pub fn warning(&self, now: SystemTime) -> Option<String> {
        self.0.load().expiry.warning(now)
    }

    /// Warns of an expiring certificate, and sets the expiry metric.
    pub(crate) fn tell(&self) {
        self.record();
        if let Some(warning) = self.0.load().expiry.warning(SystemTime::now()) {
            tracing::warn!("{warning}");
        }
    }

    /// Sets the expiry metric.
    fn record(&self) {
        let end = self.0.load().expiry.end;
        if let Some(since) = end.and_then(|end| end.duration_since(SystemTime::UNIX_EPOCH).ok()) {
            counters::expires(since.as_secs_f64());
        }
    }

    async fn accept(&self, stream: TcpStream) -> Option<tokio_rustls::server::TlsStream<TcpStream>> {
        let accepted = TlsAcceptor::from(self.0.load().config.clone()).accept(stream);
        match timeout(TIMEOUT, accepted).await {
            Ok(Ok(stream)) => Some(stream),
            Ok(Err(error)) => {
                tracing::debug!(%error, "a TLS handshake failed");
                None
            }
            Err(_) => None,
        }
    }
}

/// A connection, encrypted or not. The TLS state is boxed, so that plain connections need no space for it.
pub(crate) type Stream = Either<TcpStream, Box<tokio_rustls::server::TlsStream<TcpStream>>>;

/// Runs the TLS handshake if `tls` is set. Returns `None` if the handshake fails.
pub(crate) async fn secured(tls: Option<Tls>, stream: TcpStream) -> Option<Stream> {
    match tls {
        None => Some(Either::Left(stream)),
        Some(tls) => Box::pin(tls.accept(stream)).await.map(Box::new).map(Either::Right),
    }
}

/// Warns daily of a certificate that expires soon.
pub(crate) async fn watch(tls: Option<&Tls>) {
    let Some(tls) = tls else { return pending().await };
    loop {
        tls.tell();
        let end = Instant::now() + DAY;
        while Instant::now() < end {
            sleep(RECORDED).await;
            tls.record();
        }
    }
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let found = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = found.map_err(|error| invalid_pem(file, &error))?;
    if found.is_empty() {
        return Err(unreadable(file, &"it has no certificate"));
    }
    Ok(found)
}

/// Returns an error for an invalid PEM file, without the line of the file that some errors contain: it may be
/// the key.
fn invalid_pem(file: &Path, error: &pem::Error) -> Error {
    match error {
        pem::Error::IllegalSectionStart { .. } | pem::Error::MissingSectionEnd { .. } => {
            unreadable(file, &"invalid PEM: put `BEGIN` and `END` on separate lines")
        }
        other => unreadable(file, other),
    }
}

fn unreadable(file: &Path, error: &dyn fmt::Display) -> Error {
    Error::invalid(format!("{} cannot be used for TLS: {error}", file.display())).during(Operation::Configure)
}

/// Returns the subject; `None` if it is empty or cannot be parsed.
pub(crate) fn subject(certificate: &CertificateDer<'_>) -> Option<String> {
    let read = Certificate::from_der(certificate).ok()?;
    Some(read.tbs_certificate.subject.to_string()).filter(|subject| !subject.is_empty())
}

/// Returns when the certificate expires.
fn end(certificate: &CertificateDer<'_>) -> Option<SystemTime> {
    let read = Certificate::from_der(certificate).ok()?;
    Some(read.tbs_certificate.validity.not_after.to_system_time())
}

/// The expiry of a chain: the earliest expiry of its certificates.
#[derive(Clone, Debug)]
struct Expiry {
    file: PathBuf,
    end: Option<SystemTime>,
}

impl Expiry {
    fn of(file: &Path, chain: &[CertificateDer<'_>]) -> Self {
        Self { file: file.to_owned(), end: chain.iter().filter_map(end).min() }
    }

    fn warning(&self, now: SystemTime) -> Option<String> {
        let file = self.file.display();
        match self.end?.duration_since(now) {
            Ok(left) if left > SOON => None,
            Ok(left) => {
                let days = left.as_secs() / DAY.as_secs();
                Some(format!(
                    "the certificate in {file} expires in {days} days, and clients will then reject it; \
                     replace it with a new one"
                ))
            }
            Err(_) => Some(format!(
                "the certificate in {file} has expired, and clients reject it; replace it with a new one"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_on_one_line_is_rejected_and_not_printed() {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = (folder.path().join("server.pem"), folder.path().join("server.key"));
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        std::fs::write(&certificate, made.cert.pem()).unwrap();
        std::fs::write(&key, made.signing_key.serialize_pem().replace('\n', " ")).unwrap();
        let error = Tls::from_files(&certificate, &key, None).unwrap_err();
        let expected =
            "server.key cannot be used for TLS: invalid PEM: put `BEGIN` and `END` on separate lines";
        assert!(error.to_string().contains(expected), "{error}");
    }

    #[test]
    fn certificate_warns_two_weeks_before_and_after_expiry() {
        let now = SystemTime::now();
        let warning = |end| Expiry { file: "server.pem".into(), end: Some(end) }.warning(now);
        assert_eq!(warning(now + SOON + Duration::from_secs(1)), None);
        assert!(warning(now + SOON).unwrap().contains("server.pem expires in 14 days"));
        assert!(warning(now + DAY / 2).unwrap().contains("in 0 days"));
        assert!(warning(now - DAY).unwrap().contains("has expired"));
        assert_eq!(Expiry { file: "server.pem".into(), end: None }.warning(now), None);
    }
}
