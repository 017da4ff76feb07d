//! `rediss://`: over TLS, for the store and for the window.

use idmill::store::{Bounds, Reserve};
use idmill::{ErrorKind, SequenceName};
use idmill_testing::engines::Engine;
use idmill_testing::engines::certificate::certify;
use idmill_url::Schemes;
use tokio::io::AsyncWriteExt;

async fn first(url: &str) -> idmill::Result<u64> {
    let name = SequenceName::new("s").unwrap();
    let request = Reserve::new(name, 1).create(Bounds::new(1, u64::MAX).unwrap());
    let schemes = Schemes::default().with(idmill_redis::SCHEMES)?.with(idmill_sqlite::SCHEMES)?;
    let store = schemes.open(url).await?;
    Ok(store.reserve(&request).await?.range.start())
}

#[tokio::test]
async fn connection_is_encrypted_and_certificates_are_checked() {
    let Some((engine, certificate)) = encrypted().await else { return };
    let address = engine.address();
    let trusting = format!("rediss://{address}?ca={certificate}");
    assert_eq!(first(&trusting).await.unwrap(), 1);
    assert_eq!(first(&trusting).await.unwrap(), 2);
    let window = trusting.replace('?', "%3F").replace('=', "%3D");
    let behind = engine.dir().join("ids.db");
    assert_eq!(first(&format!("sqlite:{}?window={window}", behind.display())).await.unwrap(), 1);

    let plain = format!("redis://{address}?timeout=2s");
    assert_eq!(
        first(&plain).await.unwrap_err().kind(),
        ErrorKind::Unavailable,
        "the server accepts only TLS"
    );
    for (url, kind, remedy) in [
        (format!("rediss://{address}"), ErrorKind::Denied, "ca=FILE"),
        (trusting.replace("127.0.0.1", "localhost"), ErrorKind::Denied, "certificate"),
        (format!("rediss://{address}?ca=/no/such.pem"), ErrorKind::InvalidInput, "/no/such.pem"),
    ] {
        let error = first(&url).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{url}: {error}");
        assert!(error.to_string().contains(remedy), "{url}: {error}");
    }
}

#[tokio::test]
async fn server_without_tls_is_unsupported_not_unavailable() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("rediss://{}", listener.local_addr().unwrap());
    let (error, ()) = tokio::join!(first(&url), async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.write_all(b"-ERR Protocol error\r\n").await;
    });
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("use redis://"), "{error}");
}

/// A server that accepts only TLS, and its certificate.
async fn encrypted() -> Option<(Engine, String)> {
    let engine = Engine::down("redis")?;
    let (certificate, _) = certify(engine.dir());
    engine.restart().await;
    Some((engine, certificate))
}
