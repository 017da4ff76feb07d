//! Certificates that have expired, have another issuer, or are replaced.

use std::time::{Duration, SystemTime};

use idmill_server::Tls;
use idmill_testing::faulty::FaultyStore;
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::common::Running;
use crate::tls::{Authority, asked};

const INCR: &str = "INCR s\r\nQUIT\r\n";

/// Sets a validity period in the past.
fn ended(params: &mut rcgen::CertificateParams) {
    (params.not_before, params.not_after) =
        (rcgen::date_time_ymd(2020, 1, 1), rcgen::date_time_ymd(2021, 1, 1));
}

#[tokio::test]
async fn expired_server_certificate_is_rejected_until_replaced() {
    let recorder = DebuggingRecorder::new();
    let (_guard, seen) = (metrics::set_default_local_recorder(&recorder), recorder.snapshotter());
    let expiry = || {
        let all = seen.snapshot().into_vec();
        let found = all.into_iter().find(|(key, ..)| key.key().name().ends_with("_expiry_timestamp_seconds"));
        found.map(|(_, _, what, value)| match value {
            DebugValue::Gauge(value) if what.is_some() => value.into_inner(),
            other => panic!("{other:?}, {what:?}"),
        })
    };
    let authority = Authority::new();
    let [certificate, key] = authority.signs_with("server", ended);
    let tls = Tls::from_files(&certificate, &key, None).unwrap();
    assert!(tls.warning(SystemTime::now()).unwrap().contains("server.pem has expired"));
    let server = Running::with(FaultyStore::new(), |server| server.tls(tls.clone())).await;
    let client = authority.client(None);
    let error = asked(&client, server.resp, INCR).await.unwrap_err();
    assert!(error.to_string().contains("expired"), "{error}");
    assert_eq!(expiry(), Some(1_609_459_200.0), "1 January 2021");
    let [certificate, key] = authority.signs("renewed");
    tls.replace(&Tls::from_files(&certificate, &key, None).unwrap());
    assert_eq!(tls.warning(SystemTime::now()), None);
    assert_eq!(asked(&client, server.resp, INCR).await.unwrap(), ":1\r\n+OK\r\n");
    assert!(expiry().unwrap() > 1_609_459_200.0);
}

#[test]
fn chain_expires_with_its_first_expiring_certificate() {
    let authority = Authority::new();
    let [certificate, key] = authority.signs("server");
    let [other, _] = authority.signs_with("intermediate", ended);
    let chain = [certificate, other].map(|file| std::fs::read_to_string(file).unwrap()).concat();
    std::fs::write(authority.file("chain.pem"), chain).unwrap();
    let tls = Tls::from_files(&authority.file("chain.pem"), &key, None).unwrap();
    let end = SystemTime::UNIX_EPOCH + Duration::from_secs(1_609_459_200);
    assert_eq!(tls.expires(), Some(end));
    assert!(tls.warning(end - Duration::from_secs(13 * 24 * 3600)).unwrap().contains("in 13 days"));
}

#[tokio::test]
async fn client_with_an_expired_certificate_is_rejected() {
    let authority = Authority::new();
    let ([certificate, key], known) = (authority.signs("server"), authority.signs("client"));
    let old = authority.signs_with("old", ended);
    let tls = Tls::from_files(&certificate, &key, Some(&authority.file("ca.pem"))).unwrap();
    let server = Running::with(FaultyStore::new(), |server| server.tls(tls)).await;
    assert!(asked(&authority.client(Some(&old)), server.resp, INCR).await.is_err());
    assert_eq!(asked(&authority.client(Some(&known)), server.resp, INCR).await.unwrap(), ":1\r\n+OK\r\n");
}

#[tokio::test]
async fn replaced_authority_keeps_connected_clients() {
    let (old, new) = (Authority::new(), Authority::new());
    let [certificate, key] = old.signs("server");
    let (before, after) = (old.signs("client"), new.signs("client"));
    let of =
        |authority: &Authority| Tls::from_files(&certificate, &key, Some(&authority.file("ca.pem"))).unwrap();
    let tls = of(&old);
    let server = Running::with(FaultyStore::new(), |server| server.tls(tls.clone())).await;
    let (before, after) = (old.client(Some(&before)), old.client(Some(&after)));
    let stream = TcpStream::connect(server.resp).await.unwrap();
    let mut stays = before.connect(ServerName::try_from("localhost").unwrap(), stream).await.unwrap();
    stays.write_all(b"INCR s\r\n").await.unwrap();
    let mut answer = [0; 4];
    stays.read_exact(&mut answer).await.unwrap();
    tls.replace(&of(&new));
    assert!(asked(&before, server.resp, INCR).await.is_err());
    assert_eq!(asked(&after, server.resp, INCR).await.unwrap(), ":2\r\n+OK\r\n");
    stays.write_all(b"INCR s\r\n").await.unwrap();
    stays.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b":3\r\n");
}

/// Sends the same greeting as TLS 1.0, 1.1 and 1.2, so that only the version can cause the refusal.
#[tokio::test]
async fn older_versions_of_tls_are_refused() {
    let authority = Authority::new();
    let [certificate, key] = authority.signs("server");
    let tls = Tls::from_files(&certificate, &key, None).unwrap();
    let server = Running::with(FaultyStore::new(), |server| server.tls(tls)).await;
    for (version, refused) in [(3, false), (2, true), (1, true)] {
        let mut stream = TcpStream::connect(server.http).await.unwrap();
        stream.write_all(&greeting(version)).await.unwrap();
        let mut answer = [0; 7];
        stream.read_exact(&mut answer).await.unwrap();
        // The answer is a fatal alert about the protocol version, or else a ServerHello.
        assert_eq!(answer[0], if refused { 21 } else { 22 }, "3.{version}: {answer:?}");
        assert!(!refused || answer.ends_with(&[2, 70]), "3.{version}: {answer:?}");
    }
}

fn greeting(version: u8) -> Vec<u8> {
    let mut hello = vec![3, version];
    hello.extend([7; 32]);
    // The ClientHello has no session id, two ciphers (ECDHE with ECDSA and AES), and no compression. Both
    // sides support the groups, points and signatures.
    hello.extend([0, 0, 4, 0xc0, 0x2b, 0xc0, 0x09, 1, 0]);
    let extensions = [0, 10, 0, 4, 0, 2, 0, 23, 0, 11, 0, 2, 1, 0, 0, 13, 0, 4, 0, 2, 4, 3, 0, 23, 0, 0];
    hello.extend([0, u8::try_from(extensions.len()).unwrap()]);
    hello.extend(extensions);
    let len = u8::try_from(hello.len()).unwrap();
    let mut record = vec![22, 3, 1, 0, len + 4, 1, 0, 0, len];
    record.extend(hello);
    record
}
