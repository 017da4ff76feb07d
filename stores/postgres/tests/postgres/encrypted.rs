//! TLS: each `sslmode` with a server and its certificate.

use idmill::ErrorKind;
use idmill_postgres::PostgresStore;
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

/// Returns whether all connections of this application are encrypted. At least one must exist.
async fn is_encrypted(engine: &Engine, application: &str) -> bool {
    let sql =
        "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = $1";
    client(engine).await.query_one(sql, &[&application]).await.unwrap().get(0)
}
