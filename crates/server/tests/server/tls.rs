//! TLS, over both protocols.

use std::path::PathBuf;
use std::sync::Arc;

use idmill_server::Tls;
use idmill_testing::faulty::FaultyStore;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::common::Running;

/// A certificate authority, and files with the certificates that it has signed.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    directory: TempDir,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { issuer, directory }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Signs a certificate for `localhost`, and returns the files of the certificate and of its key.
    pub(crate) fn signs(&self, name: &str) -> [PathBuf; 2] {
        self.signs_with(name, |_| {})
    }

    /// Signs a certificate like `signs`, with changed parameters.
    pub(crate) fn signs_with(&self, name: &str, with: impl FnOnce(&mut CertificateParams)) -> [PathBuf; 2] {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        with(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let files = [self.file(&format!("{name}.pem")), self.file(&format!("{name}.key"))];
        std::fs::write(&files[0], certificate.pem()).unwrap();
        std::fs::write(&files[1], key.serialize_pem()).unwrap();
        files
    }

    /// Returns a client that trusts this authority, and presents a certificate if it has one.
    pub(crate) fn client(&self, shown: Option<&[PathBuf; 2]>) -> TlsConnector {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_root_certificates(roots);
        let config = match shown {
            None => config.with_no_client_auth(),
            Some([certificate, key]) => {
                let chain = CertificateDer::pem_file_iter(certificate).unwrap().map(Result::unwrap).collect();
                config.with_client_auth_cert(chain, PrivateKeyDer::from_pem_file(key).unwrap()).unwrap()
            }
        };
        TlsConnector::from(Arc::new(config))
    }
}

/// Sends a text, and returns the answer or the error.
pub(crate) async fn asked(
    client: &TlsConnector,
    address: std::net::SocketAddr,
    text: &str,
) -> std::io::Result<String> {
    let stream = TcpStream::connect(address).await?;
    let mut stream = client.connect(ServerName::try_from("localhost").unwrap(), stream).await?;
    stream.write_all(text.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

#[tokio::test]
async fn both_protocols_are_encrypted() {
    let authority = Authority::new();
    let [certificate, key] = authority.signs("server");
    let tls = Tls::from_files(&certificate, &key, None).unwrap();
    let server = Running::with(FaultyStore::new(), |server| server.tls(tls)).await;
    let client = authority.client(None);
    assert_eq!(asked(&client, server.resp, "INCR s\r\nQUIT\r\n").await.unwrap(), ":1\r\n+OK\r\n");
    let request = "POST /v1/sequences/s/ids HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    assert!(asked(&client, server.http, request).await.unwrap().ends_with(r#"{"sequence":"s","ids":[2]}"#));
    // A client without TLS gets no id.
    let mut plain = server.client().await;
    plain.send("INCR s\r\n").await;
    let mut answer = Vec::new();
    let _ = plain.0.stream().read_to_end(&mut answer).await;
    assert!(!answer.starts_with(b":"), "{}", answer.escape_ascii());
    let stranger = Authority::new().client(None);
    assert!(asked(&stranger, server.resp, "INCR s\r\nQUIT\r\n").await.is_err());
    assert_eq!(asked(&client, server.resp, "INCR s\r\nQUIT\r\n").await.unwrap(), ":3\r\n+OK\r\n");
}

#[tokio::test]
async fn client_certificate_is_required_with_an_authority() {
    let authority = Authority::new();
    let ([certificate, key], known) = (authority.signs("server"), authority.signs("client"));
    let other = Authority::new();
    let stranger = other.signs("client");
    let tls = Tls::from_files(&certificate, &key, Some(&authority.file("ca.pem"))).unwrap();
    let server = Running::with(FaultyStore::new(), |server| server.tls(tls)).await;
    for shown in [None, Some(&stranger)] {
        assert!(asked(&authority.client(shown), server.resp, "INCR s\r\nQUIT\r\n").await.is_err());
    }
    assert_eq!(
        asked(&authority.client(Some(&known)), server.resp, "INCR s\r\nQUIT\r\n").await.unwrap(),
        ":1\r\n+OK\r\n"
    );
}

#[tokio::test]
async fn certificate_is_replaced_while_clients_are_connected() {
    let (old, new) = (Authority::new(), Authority::new());
    let tls_of = |authority: &Authority| {
        let [certificate, key] = authority.signs("server");
        Tls::from_files(&certificate, &key, None).unwrap()
    };
    let tls = tls_of(&old);
    let server = Running::with(FaultyStore::new(), |server| server.tls(tls.clone())).await;
    let stream = TcpStream::connect(server.resp).await.unwrap();
    let mut stays =
        old.client(None).connect(ServerName::try_from("localhost").unwrap(), stream).await.unwrap();
    tls.replace(&tls_of(&new));
    assert!(asked(&old.client(None), server.resp, "INCR s\r\nQUIT\r\n").await.is_err());
    assert_eq!(asked(&new.client(None), server.resp, "INCR s\r\nQUIT\r\n").await.unwrap(), ":1\r\n+OK\r\n");
    stays.write_all(b"INCR s\r\n").await.unwrap();
    let mut answer = [0; 4];
    stays.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b":2\r\n");
}

#[test]
fn error_names_the_unusable_tls_file() {
    let authority = Authority::new();
    let ([certificate, key], [_, other]) = (authority.signs("server"), authority.signs("other"));
    let (none, empty) = (authority.file("none.pem"), authority.file("empty.pem"));
    std::fs::write(&empty, "").unwrap();
    for (certificate, key, authorities, named) in [
        (&none, &key, None, "none.pem"),
        (&certificate, &none, None, "none.pem"),
        (&empty, &key, None, "it has no certificate"),
        (&certificate, &other, None, "server.pem"),
        (&certificate, &key, Some(&*empty), "empty.pem"),
    ] {
        let error = Tls::from_files(certificate, key, authorities).unwrap_err().to_string();
        assert!(error.contains(named) && error.contains("for TLS"), "{error}");
    }
}
