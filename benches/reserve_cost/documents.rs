//! MongoDB and Cassandra.

use idmill_cassandra::scylla;
use idmill_cassandra::{CassandraOptions, CassandraStore};
use idmill_mongodb::driver::Client;
use idmill_mongodb::driver::bson::{Document, doc};
use idmill_testing::engines::Engine;

use crate::{COUNT, Costs, TIMES, WARM};

/// `by hand` is `findAndModify` with `$inc`, with the write concern of the store. The engine is FerretDB.
pub(crate) async fn mongodb() -> Option<Costs> {
    let engine = Engine::start("ferretdb").await?;
    let (url, mut costs) =
        (format!("mongodb://{}/test?directConnection=true", engine.address()), Costs::default());
    let store = idmill_mongodb::MongoStore::open(&url).await.expect("a store");
    let database = Client::with_uri_str(&url).await.expect("a client").database("test");
    let documents = database.collection::<Document>("by_hand");
    documents.insert_one(doc! { "_id": "s", "last": 0_i64 }).await.expect("a document");
    let command = doc! {
        "findAndModify": "by_hand", "query": { "_id": "s" }, "new": true,
        "update": { "$inc": { "last": i64::try_from(COUNT).expect("a few") } },
        "writeConcern": { "w": "majority", "j": true },
    };
    for _ in 0..WARM + TIMES {
        costs.reserve(&store).await;
        let run = async { drop(database.run_command(command.clone()).await.expect("a document")) };
        costs.by_hand.time(run).await;
    }
    Some(costs)
}

/// `by hand` is a prepared `UPDATE … IF next = ?`. The engine is one node.
pub(crate) async fn cassandra() -> Option<Costs> {
    let engine = Engine::start("cassandra").await?;
    let (host, mut costs) = (engine.address().to_string(), Costs::default());
    let options = CassandraOptions::new([host.clone()], "ids").create_keyspace([("dc1", 1)]);
    let store = CassandraStore::open(options).await.expect("a store");
    let builder = scylla::client::session_builder::SessionBuilder::new().known_node(host);
    let session = builder.use_keyspace("ids", false).build().await.expect("a session");
    for cql in [
        "CREATE TABLE by_hand (name text PRIMARY KEY, next bigint)",
        "INSERT INTO by_hand (name, next) VALUES ('s', 1)",
    ] {
        session.query_unpaged(cql, ()).await.expect("a table");
    }
    let cql = "UPDATE by_hand SET next = ? WHERE name = ? IF next = ?";
    let statement = session.prepare(cql).await.expect("a statement");
    let (mut next, count) = (1, i64::try_from(COUNT).expect("a few"));
    for _ in 0..WARM + TIMES {
        costs.reserve(&store).await;
        let values = (next + count, "s", next);
        costs
            .by_hand
            .time(async { session.execute_unpaged(&statement, values).await.map(drop).expect("runs") })
            .await;
        next += count;
    }
    Some(costs)
}
