//! Errors of a real etcd.

use idmill::store::Store;
use idmill::{Error, ErrorKind};
use idmill_etcd::{EtcdOptions, EtcdStore};

use super::{TIMEOUT, daemon, name, post, reserve};
use idmill_testing::engines::Engine;

async fn refused(options: EtcdOptions) -> Error {
    EtcdStore::open_with(options).await.unwrap_err()
}

/// Enables authentication for `root` and for `app`, which may use only `/ids/`. Returns root's token.
async fn authenticate(engine: &Engine) -> String {
    let address = engine.address();
    let call = |path: &'static str, body: &'static str| post(address, path, body, None);
    call("/v3/auth/user/add", r#"{"name":"root","password":"toor"}"#).await;
    call("/v3/auth/role/add", r#"{"name":"root"}"#).await;
    call("/v3/auth/user/grant", r#"{"user":"root","role":"root"}"#).await;
    call("/v3/auth/user/add", r#"{"name":"app","password":"hunter2"}"#).await;
    call("/v3/auth/role/add", r#"{"name":"ids"}"#).await;
    // The key range is from `/ids/` to `/ids0`, in base64.
    let grant = r#"{"name":"ids","perm":{"permType":"READWRITE","key":"L2lkcy8=","range_end":"L2lkczA="}}"#;
    call("/v3/auth/role/grant", grant).await;
    call("/v3/auth/user/grant", r#"{"user":"app","role":"ids"}"#).await;
    call("/v3/auth/enable", "{}").await;
    let answer = call("/v3/auth/authenticate", r#"{"name":"root","password":"toor"}"#).await;
    let (_, token) = answer.split_once(r#""token":""#).expect("a token");
    token.split_once('"').unwrap().0.to_owned()
}

#[tokio::test]
async fn users_authenticate_and_denials_name_the_remedy() {
    let Some(engine) = Engine::start("etcd").await else { return };
    let options = EtcdOptions::new([engine.address().to_string()]).prefix("/ids/").timeout(TIMEOUT);
    let app = options.clone().credentials("app", "hunter2");
    let error = refused(app.clone()).await;
    assert!(
        error.kind() == ErrorKind::Denied && error.to_string().contains("remove `USER:PASSWORD@`"),
        "{error}"
    );
    let root = authenticate(&engine).await;
    let store = EtcdStore::open_with(app.clone()).await.unwrap();
    assert_eq!(reserve(&store, "s", 10).await.unwrap(), (1, 10));
    assert_eq!(store.list_all().await.unwrap().len(), 1);
    for (options, remedy) in [
        (options.clone(), "USER:PASSWORD@"),
        (options.clone().credentials("app", "hunter3"), "invalid user ID or password"),
        (options.clone().credentials("nobody", "hunter2"), "invalid user ID or password"),
        (app.clone().prefix("/others/"), "readwrite on the prefix"),
    ] {
        let error = refused(options).await;
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert!(error.to_string().contains(remedy), "{error}");
        let printed = format!("{error} {error:?}");
        assert!(!printed.contains("hunter"), "{printed}");
    }
    // Tokens do not survive a restart.
    engine.kill();
    engine.restart().await;
    assert_eq!(reserve(&store, "s", 10).await.unwrap(), (11, 10));
    // Every change of users and roles invalidates earlier tokens.
    let root_again =
        post(engine.address(), "/v3/auth/authenticate", r#"{"name":"root","password":"toor"}"#, None).await;
    let token = root_again.split_once(r#""token":""#).unwrap().1.split_once('"').unwrap().0;
    assert_ne!(token, root);
    post(engine.address(), "/v3/auth/role/add", r#"{"name":"another"}"#, Some(token)).await;
    assert_eq!(reserve(&store, "s", 10).await.unwrap(), (21, 10));
    // Revoke the role's rights.
    let revoke = r#"{"role":"ids","key":"L2lkcy8=","range_end":"L2lkczA="}"#;
    let again =
        post(engine.address(), "/v3/auth/authenticate", r#"{"name":"root","password":"toor"}"#, None).await;
    let token = again.split_once(r#""token":""#).unwrap().1.split_once('"').unwrap().0;
    post(engine.address(), "/v3/auth/role/revoke", revoke, Some(token)).await;
    let error = reserve(&store, "s", 10).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(!format!("{store:?}").contains("hunter2"));
}

/// etcd applies the transaction that fills its database, but answers it with the same error as later,
/// rejected ones. Several concurrent sequences make this case likely.
#[tokio::test]
async fn a_full_database_is_not_an_unknown_outcome() {
    let Some(engine) = Engine::down("etcd") else { return };
    let (down, _, dir) = engine.into_parts();
    drop(down);
    let port = idmill_conformance::free_port();
    // The quota in bytes is little more than an empty database needs.
    let daemon = daemon(dir.path(), port, &[("ETCD_QUOTA_BACKEND_BYTES", "100000")]);
    daemon.start().await.unwrap();
    let store =
        EtcdStore::open_with(EtcdOptions::new([format!("127.0.0.1:{port}")]).timeout(TIMEOUT)).await.unwrap();
    let filling = (0..16).map(|number| {
        let store = store.clone();
        tokio::spawn(async move { fill(&store, &format!("s{number}")).await })
    });
    for filled in filling.collect::<Vec<_>>() {
        filled.await.unwrap();
    }
}

/// Reserves until the database is full.
async fn fill(store: &EtcdStore, text: &str) {
    let mut granted = 0;
    let error = loop {
        match reserve(store, text, 10).await {
            Ok(range) => assert_eq!(range, (granted + 1, 10)),
            Err(error) => break error,
        }
        granted += 10;
    };
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert!(error.to_string().contains("alarm disarm"), "{error}");
    let next = store.inspect(&name(text)).await.unwrap().map_or(1, |info| info.next.unwrap());
    assert_eq!(next, granted + 1, "nothing was reserved");
}

#[tokio::test]
async fn unreachable_server_is_unavailable_until_it_returns() {
    let Some(engine) = Engine::start("etcd").await else { return };
    let dead = format!("127.0.0.1:{}", idmill_conformance::free_port());
    let error = refused(EtcdOptions::new([dead.clone()])).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("refused"), "{error}");
    // One reachable member is enough.
    for hosts in [[dead.clone(), engine.address().to_string()], [engine.address().to_string(), dead]] {
        // Keep the timeout short: while the member is down, a reserve that may have arrived is resent until
        // this timeout.
        let options = EtcdOptions::new(hosts).timeout(std::time::Duration::from_secs(20));
        let store = EtcdStore::open_with(options).await.unwrap();
        reserve(&store, "s", 10).await.unwrap();
        engine.kill();
        let error = reserve(&store, "s", 10).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::UnknownOutcome), "{error}");
        engine.restart().await;
        reserve(&store, "s", 10).await.unwrap();
    }
}

#[tokio::test]
async fn server_other_than_etcd_is_unavailable() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let serving = tokio::spawn(async move {
        use tokio::io::AsyncWriteExt;
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            let _ = client.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").await;
        }
    });
    let options = EtcdOptions::new([address]).timeout(std::time::Duration::from_millis(200));
    let error = refused(options).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    serving.abort();
}
