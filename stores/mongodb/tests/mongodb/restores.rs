//! Restored server files, restored or deleted documents, and another database. Without a guard, ids are
//! repeated; with a guard, they are not.

use idmill_mongodb::driver::bson::doc;
use idmill_testing::restores::Drawn;

use super::*;

/// Starts a separate server, and a `Drawn` over its store.
async fn drawn() -> Option<(Engine, Drawn)> {
    let engine = Engine::start(ENGINE).await?;
    let ids = Drawn::from(schemes(), url(engine.address(), ""));
    Some((engine, ids))
}

#[tokio::test]
async fn restored_files_are_detected_by_a_guard() {
    let Some((engine, mut ids)) = drawn().await else { return };
    ids.survives_a_restore(&engine, engine.dir()).await;
}

/// Simulates `mongodump` and `mongorestore --drop`.
#[tokio::test]
async fn restored_documents_are_detected_by_a_guard() {
    let Some((engine, mut ids)) = drawn().await else { return };
    ids.draw(30).await;
    let documents = documents(engine.address()).await;
    let kept = documents.find_one(doc! {}).await.unwrap().unwrap();
    ids.draw(50).await;
    documents.delete_many(doc! {}).await.unwrap();
    documents.insert_one(kept).await.unwrap();
    ids.went_back().await;
}

#[tokio::test]
async fn deleted_documents_are_detected_by_a_guard() {
    let Some((engine, mut ids)) = drawn().await else { return };
    ids.draw(50).await;
    let documents = documents(engine.address()).await;
    documents.delete_many(doc! {}).await.unwrap();
    assert_eq!(ids.repeated(20).await, 20);
    documents.delete_many(doc! {}).await.unwrap();
    ids.another().await;
    documents.drop().await.unwrap();
    ids.another().await;
}

#[tokio::test]
async fn another_database() {
    let Some((engine, mut ids)) = drawn().await else { return };
    ids.draw(50).await;
    let right = url(engine.address(), "");
    ids.moves_to(right.replace("/test?", "/another?"));
    assert_eq!(ids.repeated(20).await, 20);
    ids.refused().await;
    ids.moves_to(right);
    assert_eq!(ids.draw(50).await, 0);
}
