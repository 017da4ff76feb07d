//! TLS: each `sslmode` with a server and its certificate.

use idmill::ErrorKind;
use idmill_postgres::driver::Config;
use idmill_postgres::{PostgresOptions, PostgresStore, SslMode};
use idmill_testing::engines::Engine;
use idmill_testing::engines::certificate::certify;

use crate::{client, ids, reserve, url};

#[tokio::test]
async fn each_sslmode_encrypts_and_verifies_as_documented() {
    let Some(engine) = Engine::down("postgres") else { return };
    let (certificate, _) = certify(engine.dir());
    engine.restart().await;
    let trusting = format!("&sslmode=verify-full&sslrootcert={certificate}");
    let modes =
        [("&sslmode=disable", false), ("", true), ("&sslmode=require", true), (trusting.as_str(), true)];
    for (next, (options, encrypted)) in (1..).zip(modes) {
        let store = PostgresStore::open(&url(&engine, &format!("{options}&application_name=m{next}"))).await;
        let store = store.unwrap();
        let grant = reserve(&store, "s", 1).await.unwrap();
        assert_eq!(ids(grant.range), (next, next), "{options}");
        assert_eq!(is_encrypted(&engine, &format!("m{next}")).await, encrypted, "{options}");
    }

    let unknown = url(&engine, "&sslmode=verify-full");
    let other = url(&engine, &trusting).replace("@127.0.0.1", "@localhost");
    let missing = url(&engine, "&sslmode=verify-full&sslrootcert=/no/such.pem");
    for (url, kind, remedy) in [
        (unknown, ErrorKind::Denied, "sslrootcert=FILE"),
        (other, ErrorKind::Denied, "certificate"),
        (missing, ErrorKind::InvalidInput, "/no/such.pem"),
    ] {
        let error = PostgresStore::open(&url).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{url}: {error}");
        assert!(error.to_string().contains(remedy), "{url}: {error}");
    }
}

#[tokio::test]
async fn client_certificate_is_shown_to_the_server() {
    let Some(engine) = Engine::down("postgres") else { return };
    let (certificate, key) = certify(engine.dir());
    engine.restart().await;
    let admin = client(&engine).await;
    admin.batch_execute("ALTER SYSTEM SET ssl_ca_file = 'server.pem'").await.unwrap();
    admin.batch_execute("CREATE ROLE shop LOGIN; GRANT ALL ON SCHEMA public TO shop").await.unwrap();
    engine.kill();
    let rules =
        "host all postgres 127.0.0.1/32 trust\nhostssl all shop 127.0.0.1/32 trust clientcert=verify-ca\n";
    std::fs::write(engine.dir().join("data/pg_hba.conf"), rules).unwrap();
    engine.restart().await;
    let shop = |options: &str| url(&engine, options).replace("//postgres@", "//shop@");
    let error = PostgresStore::open(&shop("")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    let shown = shop(&format!("&sslcert={certificate}&sslkey={key}"));
    let store = PostgresStore::open(&shown).await.unwrap();
    assert_eq!(ids(reserve(&store, "s", 1).await.unwrap().range), (1, 1));
    // The driver has no option for certificates: those of the store apply to its configuration.
    let address = engine.address();
    let mut config = Config::new();
    config.host(address.ip().to_string()).port(address.port()).user("shop").dbname("postgres");
    let options = PostgresOptions::default().ssl_cert(certificate.clone()).ssl_key(key);
    let options = options.ssl_mode(SslMode::VerifyFull).ssl_root(certificate);
    let store = PostgresStore::from_config(config.clone(), options.clone()).await.unwrap();
    assert_eq!(ids(reserve(&store, "s", 1).await.unwrap().range), (2, 2));
    let unknown = options.ssl_key("/no/such.pem");
    let error = PostgresStore::from_config(config, unknown).await.unwrap_err();
    assert!(error.to_string().contains("sslkey=\"/no/such.pem\""), "{error}");
}

/// Returns whether all connections of this application are encrypted. At least one must exist.
async fn is_encrypted(engine: &Engine, application: &str) -> bool {
    let sql =
        "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = $1";
    client(engine).await.query_one(sql, &[&application]).await.unwrap().get(0)
}
