//! Connections over TLS (`idmills://`), with server and client certificates.

use idmill::ErrorKind;
use idmill::store::MemoryStore;
use idmill_server::Tls;
use idmill_testing::certificate::certify;
use idmill_url::Schemes;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use crate::common::{Running, request};

async fn first(url: &str) -> idmill::Result<u64> {
    let store = Schemes::default().with(idmill_remote::SCHEMES)?.open(url).await?;
    Ok(store.reserve(&request("s", 1)).await?.range.start())
}

#[tokio::test]
async fn connection_is_encrypted_and_certificates_are_checked() {
    let dir = tempfile::tempdir().unwrap();
    let (certificate, key) = certify(dir.path());
    let tls = Tls::from_files(certificate.as_ref(), key.as_ref(), None).unwrap();
    let server = Running::with(MemoryStore::new(), |server| server.tls(tls)).await;
    let address = server.address;
    let trusting = format!("idmills://{address}?ca={certificate}");
    assert_eq!(first(&trusting).await.unwrap(), 1);
    assert_eq!(first(&trusting).await.unwrap(), 2);
    let plain = format!("idmill://{address}?timeout=4s");
    let error = first(&plain).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "the server accepts only TLS");
    assert!(error.to_string().contains("whether it uses TLS (`idmills://`)"), "{error}");
    for (url, kind, remedy) in [
        (format!("idmills://{address}"), ErrorKind::Denied, "ca=FILE"),
        (trusting.replace("127.0.0.1", "localhost"), ErrorKind::Denied, "certificate"),
        (format!("idmills://{address}?ca=/no/such.pem"), ErrorKind::InvalidInput, "/no/such.pem"),
        (format!("{trusting}&cert=/no/a.pem&key=/no/b.pem"), ErrorKind::InvalidInput, "/no/a.pem"),
    ] {
        let error = first(&url).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{url}: {error}");
        assert!(error.to_string().contains(remedy), "{url}: {error}");
    }
}

#[tokio::test]
async fn client_presents_its_certificate_where_required() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [(certificate, key), (client, client_key)] = dirs.each_ref().map(|dir| certify(dir.path()));
    let tls = Tls::from_files(certificate.as_ref(), key.as_ref(), Some(client.as_ref())).unwrap();
    let server = Running::with(MemoryStore::new(), |server| server.tls(tls)).await;
    let trusting = format!("idmills://{}?timeout=20s&ca={certificate}", server.address);
    assert_eq!(first(&format!("{trusting}&cert={client}&key={client_key}")).await.unwrap(), 1);
    let without = first(&trusting).await.unwrap_err();
    assert!(matches!(without.kind(), ErrorKind::Denied | ErrorKind::Unavailable), "{without}");
    let anothers = first(&format!("{trusting}&cert={certificate}&key={key}")).await.unwrap_err();
    assert!(matches!(anothers.kind(), ErrorKind::Denied | ErrorKind::Unavailable), "{anothers}");
}

#[tokio::test]
async fn server_without_tls_is_unsupported_not_unavailable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("idmills://{}?timeout=60s", listener.local_addr().unwrap());
    let (error, ()) = tokio::join!(first(&url), async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.write_all(b"-ERR Protocol error\r\n").await;
    });
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("use idmill://"), "{error}");
}
