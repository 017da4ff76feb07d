//! Sending commands: each once, each within the store's timeout, each write to a majority.
//!
//! The driver's own methods would send a write again where the client's `retryWrites` is on, as it is by
//! default. Against a replica set that is not wrong: the server knows the second by its transaction number,
//! and answers with the first one's result. But the error that comes back in the end may speak of the
//! second alone ("not primary"), while the first was applied. Commands that are run as documents are never
//! sent again after they may have arrived, whatever the client's options; so an error that says that
//! nothing was done can be believed.

use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::{Bson, Document, doc};
use mongodb::options::{CollectionOptions, ReadConcern, ReadPreference, SelectionCriteria, WriteConcern};
use mongodb::{ClientSession, Collection, Database};
use tokio::sync::OnceCell;

use super::classify::{Fault, check_reply};

/// A collection, and how long one command may take.
#[derive(Clone)]
pub(super) struct Commands {
    database: Database,
    collection: String,
    pub(super) timeout: Duration,
    /// How one document is read; asked of the server once.
    concern: Arc<OnceCell<ReadConcern>>,
}

/// The caller's session, whose transaction a command belongs to, or none.
pub(super) type Session<'a> = Option<&'a mut ClientSession>;

impl Commands {
    pub(super) fn new(database: Database, collection: String, timeout: Duration) -> Self {
        Self { database, collection, timeout, concern: Arc::default() }
    }

    /// The same, of another collection beside it.
    pub(super) fn beside(&self, collection: String) -> Self {
        Self { collection, ..self.clone() }
    }

    pub(super) fn collection_name(&self) -> &str {
        &self.collection
    }

    pub(super) fn namespace(&self) -> String {
        format!("{}.{}", self.database.name(), self.collection)
    }

    /// Adds a document; a [`Fault`] that is a duplicate if there is one of its `_id`.
    pub(super) async fn insert(&self, session: Session<'_>, document: Document) -> Result<(), Fault> {
        let command = doc! { "insert": &self.collection, "documents": [document] };
        match count(&self.write(session, command).await?)? {
            1 => Ok(()),
            n => Err(Fault::Reply(format!("to an insert of one document says that {n} were inserted"))),
        }
    }

    /// Changes the one document that matches, atomically; returns it as it is
    /// afterwards, or `None` if none matched.
    pub(super) async fn modify(
        &self,
        session: Session<'_>,
        matching: Document,
        change: Document,
    ) -> Result<Option<Document>, Fault> {
        let command =
            doc! { "findAndModify": &self.collection, "query": matching, "update": change, "new": true };
        let mut reply = self.write(session, command).await?;
        match reply.remove("value") {
            Some(Bson::Document(document)) => Ok(Some(document)),
            Some(Bson::Null) => Ok(None),
            other => Err(Fault::Reply(format!("to findAndModify has the value {other:?}"))),
        }
    }

    /// Removes the one document that matches; `false` if none did.
    pub(super) async fn remove(&self, matching: Document) -> Result<bool, Fault> {
        let command = doc! { "delete": &self.collection, "deletes": [{ "q": matching, "limit": 1 }] };
        Ok(count(&self.write(None, command).await?)? > 0)
    }

    async fn write(&self, session: Session<'_>, mut command: Document) -> Result<Document, Fault> {
        let running = if let Some(session) = session {
            // What a transaction writes is as durable as its commit, to which alone a write concern applies.
            self.database.run_command(command).session(session)
        } else {
            // The server gives up before we do, so that it can say that it has.
            let patience = i64::try_from(self.server_timeout().as_millis()).unwrap_or(i64::MAX);
            command.insert("writeConcern", doc! { "w": "majority", "j": true, "wtimeout": patience });
            self.database.run_command(command)
        };
        check_reply(self.timely(running).await?)
    }

    /// The document of this `_id`, as it really is now: see [`Self::concern`].
    pub(super) async fn find(
        &self,
        session: Session<'_>,
        matching: Document,
    ) -> Result<Option<Document>, Fault> {
        if let Some(session) = session {
            let collection = self.collection(None);
            return self.timely(collection.find_one(matching).session(session)).await;
        }
        let collection = self.collection(Some(self.concern().await?));
        self.timely(collection.find_one(matching).max_time(self.server_timeout())).await
    }

    /// So many of the documents that match, by their `_id`, none of which a failover can undo.
    pub(super) async fn find_some(&self, matching: Document, most: i32) -> Result<Vec<Document>, Fault> {
        let collection = self.collection(Some(ReadConcern::majority()));
        self.timely(async {
            let find = collection.find(matching).sort(doc! { "_id": 1 }).limit(i64::from(most));
            let mut cursor = find.max_time(self.server_timeout()).await?;
            let mut all = Vec::new();
            while cursor.advance().await? {
                all.push(cursor.deserialize_current()?);
            }
            Ok(all)
        })
        .await
    }

    /// The document with the largest value of this field, of those that have one.
    pub(super) async fn top(&self, field: &str) -> Result<Option<Document>, Fault> {
        let collection = self.collection(Some(ReadConcern::majority()));
        let finding = collection.find_one(doc! { field: { "$exists": true, "$ne": Bson::Null } });
        let finding = finding.sort(doc! { field: -1 }).projection(doc! { field: 1 });
        self.timely(finding.max_time(self.server_timeout())).await
    }

    /// Whether there is such a collection; needs no privilege beyond those on it.
    pub(super) async fn exists(&self) -> Result<bool, Fault> {
        let command = doc! {
            "listCollections": 1, "filter": { "name": &self.collection },
            "nameOnly": true, "authorizedCollections": true,
        };
        let reply = self.timely(self.database.run_command(command)).await?;
        let listed = reply.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
        listed
            .map(|listed| !listed.is_empty())
            .map_err(|_| Fault::Reply("to listCollections has no list".into()))
    }

    /// How one document is read. *Linearizable*, so that neither a primary that has been deposed nor one that
    /// is new can answer with what was; a single server knows no such thing, and needs none.
    pub(super) async fn concern(&self) -> Result<ReadConcern, Fault> {
        let asking = self.concern.get_or_try_init(|| async {
            let hello = self.timely(self.database.run_command(doc! { "hello": 1 })).await?;
            let replicated =
                hello.contains_key("setName") || hello.get_str("msg").is_ok_and(|msg| msg == "isdbgrid");
            Ok(if replicated { ReadConcern::linearizable() } else { ReadConcern::majority() })
        });
        asking.await.cloned()
    }

    fn collection(&self, concern: Option<ReadConcern>) -> Collection<Document> {
        let mut options = CollectionOptions::default();
        options.selection_criteria = Some(SelectionCriteria::ReadPreference(ReadPreference::Primary));
        options.write_concern = Some(WriteConcern::majority());
        options.read_concern = concern;
        self.database.collection_with_options(&self.collection, options)
    }

    fn server_timeout(&self) -> Duration {
        self.timeout / 2
    }

    async fn timely<R>(
        &self,
        running: impl IntoFuture<Output = mongodb::error::Result<R>>,
    ) -> Result<R, Fault> {
        // The driver itself would wait for ever for a server that takes a request and never answers. A
        // request that is dropped closes its connection, so that no late answer can be taken for another's.
        match tokio::time::timeout(self.timeout, running.into_future()).await {
            Ok(outcome) => Ok(outcome?),
            Err(_) => Err(Fault::Silent(self.timeout)),
        }
    }
}

/// How many documents a write says that it touched.
fn count(reply: &Document) -> Result<i64, Fault> {
    match reply.get("n") {
        Some(Bson::Int32(n)) => Ok((*n).into()),
        Some(Bson::Int64(n)) => Ok(*n),
        other => Err(Fault::Reply(format!("has the count {other:?}"))),
    }
}
