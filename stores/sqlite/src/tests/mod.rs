//! The store without a thread or a runtime, and its table in a real database.

mod table;

use idmill::store::Store as _;

use super::*;

#[tokio::test]
async fn write_of_a_dead_thread_is_unknown_and_the_store_works() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path().join("ids.db")).await.unwrap();
    let error = store.run(Asked::Write, |_, _| -> Result<()> { panic!("injected") }).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownOutcome);
    let error = store.run(Asked::Read, |_, _| -> Result<()> { panic!("injected") }).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(store.list_all().await.unwrap(), []);
}

#[test]
fn open_without_a_runtime_is_unsupported() {
    let opening = SqliteStore::open("ids.db");
    let error = futures_util::FutureExt::now_or_never(opening).expect("ready at once").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}
