//! TLS by URL, with a node that accepts only TLS and requires a client certificate.

use idmill::ErrorKind;
use idmill_testing::engines::Engine;
use idmill_testing::engines::certificate::certify_for;
use idmill_url::Schemes;

use crate::{request, until};

/// As is common, the certificate is for the host in the URL, not for the node's address.
#[tokio::test]
async fn connection_is_encrypted_and_certificates_are_checked() {
    let Some(engine) = Engine::down("cassandra") else { return };
    let (certificate, key) = certify_for(engine.dir(), "localhost");
    engine.restart().await;
    let schemes = Schemes::default().with(idmill_cassandra::SCHEMES).unwrap();
    let port = engine.address().port();
    let plain = format!("cassandra://localhost:{port}/ids?create_keyspace=dc1:1&timeout=20s");
    let url = format!("{plain}&ca={certificate}&cert={certificate}&key={key}");
    let first = || async {
        let grant = schemes.open(&url).await?.reserve(&request("s", 1)).await?;
        Ok(grant.range.start())
    };
    assert!(until("it grants", first).await < until("it grants again", first).await);

    let refused = async |url: &str| {
        let error = schemes.open(url).await.unwrap_err();
        (error.kind(), error.to_string())
    };
    let (kind, text) = refused(&plain).await;
    assert_eq!(kind, ErrorKind::Unavailable, "the server accepts only TLS: {text}");
    for (url, remedy) in [
        (format!("{plain}&tls=true&cert={certificate}&key={key}"), "ca=FILE"),
        (url.replace("localhost", "127.0.0.1"), "a host of the URL"),
        (format!("{plain}&ca={certificate}"), "cert=FILE&key=FILE"),
    ] {
        let (kind, text) = refused(&url).await;
        assert_eq!(kind, ErrorKind::Denied, "{url}: {text}");
        assert!(text.contains(remedy), "{url}: {text}");
    }
    let (kind, text) = refused(&format!("{plain}&ca=/no/such.pem")).await;
    assert_eq!(kind, ErrorKind::InvalidInput, "{text}");
}
