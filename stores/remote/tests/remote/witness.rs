//! A witness that is in the same place as the store, where a server hides this.

use idmill::store::{MemoryStore, Store};
use idmill::{ErrorKind, Result};
use idmill_remote::protocol::{Answer, Ask, Request, Said};
use idmill_server::Right;
use idmill_sqlite::SqliteStore;
use idmill_url::Schemes;

use crate::common::{Running, access, open, reserve, token};
use crate::nonsense::{Stranger, bulk};

/// A store on a server with this identity.
#[derive(Clone, Debug)]
struct Named<S>(S, &'static str);

impl<S: Store> Store for Named<S> {
    idmill::store_calls!(|this| this.0 =>
        capabilities reserve give_back create inspect list set remove record swap_record list_records);

    fn server(&self) -> idmill::store::StoreFuture<'_, Result<Option<String>>> {
        Box::pin(async { Ok(Some(self.1.to_owned())) })
    }
}

async fn sqlite(directory: &tempfile::TempDir, file: &str) -> SqliteStore {
    SqliteStore::open(directory.path().join(file)).await.unwrap()
}

/// Opens a store that is guarded by a witness, and draws from it.
async fn guarded(store: &str, witness: &str) -> Result<()> {
    let schemes = Schemes::default().with(idmill_remote::SCHEMES)?.with(idmill_sqlite::SCHEMES)?;
    let url = schemes.parse(store)?.guarded(schemes.witness(witness)?)?;
    reserve(&url.connect().await?, "orders", 1).await.map(drop)
}

#[tokio::test]
async fn server_passes_on_the_identity_of_its_store() {
    let server = Running::over(Named(MemoryStore::new(), "test cluster 7")).await;
    assert_eq!(server.open().await.server().await.unwrap().as_deref(), Some("test cluster 7"));
    let nameless = Running::over(MemoryStore::new()).await;
    assert_eq!(nameless.open().await.server().await.unwrap(), None);
}

/// The databases differ, so only the identity shows that one restore reverts both.
#[tokio::test]
async fn witness_of_the_same_identity_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let [store, same, other] = [("a.db", "cluster 7"), ("b.db", "cluster 7"), ("c.db", "cluster 8")];
    let mut urls = Vec::new();
    let mut servers = Vec::new();
    for (file, identity) in [store, same, other] {
        let server = Running::over(Named(sqlite(&directory, file).await, identity)).await;
        urls.push(format!("idmill://{}", server.address));
        servers.push(server);
    }
    let error = guarded(&urls[0], &urls[1]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    assert!(format!("{error:?}").contains("on the store's server, cluster 7"), "{error:?}");
    guarded(&urls[0], &urls[2]).await.unwrap();
}

/// SQLite has no identity, so the guard writes a record to the witness and reads it through the store.
#[tokio::test]
async fn witness_in_the_same_sqlite_file_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let direct = format!("sqlite:{}", directory.path().join("ids.db").display());
    let elsewhere = format!("sqlite:{}", directory.path().join("other.db").display());
    let server = Running::over(sqlite(&directory, "ids.db").await).await;
    let remote = format!("idmill://{}", server.address);
    let renamed = format!("idmill://localhost:{}", server.address.port());
    for (store, witness) in [(&direct, &remote), (&remote, &direct), (&remote, &renamed)] {
        for witness in [witness.clone(), format!("{witness}?new=true")] {
            let error = guarded(store, &witness).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{store}, {witness}: {error}");
            assert!(format!("{error:?}").contains("is the store itself"), "{store}, {witness}: {error:?}");
        }
    }
    guarded(&remote, &elsewhere).await.unwrap();
}

/// The identity needs the same right as records.
#[tokio::test]
async fn identity_needs_the_right_to_reserve() {
    let (reserving, reserves) = token(&[Right::Reserve], &["shop.*"]);
    let (ruling, rules) = token(&[Right::Administer], &["*"]);
    let store = Named(MemoryStore::new(), "test cluster 7");
    let server = Running::with(store, access([reserves, rules])).await;
    let with = async |secret: &str| {
        let url = format!("idmill://:{secret}@{}?timeout=60s", server.address);
        idmill_remote::RemoteStore::open(&url).await.unwrap().server().await
    };
    assert_eq!(with(reserving.reveal()).await.unwrap().as_deref(), Some("test cluster 7"));
    let error = with(ruling.reveal()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(error.to_string().contains("right `reserve`"), "{error}");
}

/// A server of an earlier release rejects the request as invalid. Its store then has no identity.
#[tokio::test]
async fn identity_is_unknown_behind_an_older_server() {
    let older = Stranger::saying(|Request { number, ask }| match ask {
        Ask::Server => b"-ERR the request is not valid in version 1: unknown variant `server`\r\n".to_vec(),
        _ => bulk(&Answer { number, said: Said::Record(None) }.encode()),
    })
    .await;
    let remote = open(&[older.address], "timeout=20s").await.unwrap();
    assert_eq!(remote.server().await.unwrap(), None);
    // Any other failure is an error: a witness must not be accepted because a request failed.
    let silent = Stranger::saying(|_| b"-TRYAGAIN the store is unavailable\r\n".to_vec()).await;
    let remote = open(&[silent.address], "timeout=20s").await.unwrap();
    assert_eq!(remote.server().await.unwrap_err().kind(), ErrorKind::Unavailable);
}
