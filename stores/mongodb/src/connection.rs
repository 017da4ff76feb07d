//! Sends each write once, and every command with the store's timeout. Writes must be confirmed by a majority.
//!
//! The driver's own methods resend a write if the client's `retryWrites` is on, which is the default. On a
//! replica set this is safe: the server detects the second attempt by its transaction number, and returns the
//! result of the first. But the final error may describe only the second attempt ("not primary") although the
//! first attempt was applied. The driver never resends a command of `run_command` that may have been applied,
//! whatever the client's options. So an error that means "not applied" is reliable.

use std::sync::Arc;
use std::time::Duration;

use idmill::{Error, Result};
use mongodb::bson::{Bson, Document, doc};
use mongodb::options::{CollectionOptions, ReadConcern, ReadPreference, SelectionCriteria, WriteConcern};
use mongodb::{ClientSession, Collection, Database};
use tokio::sync::OnceCell;

use super::classify::{Asked, Fault, Rejection, check_reply, failed, is_duplicate, misfit};

/// A collection, and the timeout of one command.
#[derive(Clone)]
pub(super) struct Commands {
    database: Database,
    pub(super) collection: String,
    pub(super) timeout: Duration,
    /// Read concern for reads of a single document. The concern is determined once, by a request to the
    /// server.
    concern: Arc<OnceCell<ReadConcern>>,
}

/// The caller's session, if the command belongs to its transaction.
pub(super) type TxSession<'a> = Option<&'a mut ClientSession>;

impl Commands {
    pub(super) fn new(database: Database, collection: String, timeout: Duration) -> Self {
        Self { database, collection, timeout, concern: Arc::default() }
    }

    /// Returns a copy for another collection of the same database.
    pub(super) fn beside(&self, collection: String) -> Self {
        Self { collection, ..self.clone() }
    }

    pub(super) fn namespace(&self) -> String {
        format!("{}.{}", self.database.name(), self.collection)
    }

    /// Inserts a document. Returns the error if its `_id`, or another value that must be unique, exists.
    pub(super) async fn insert(&self, session: TxSession<'_>, document: Document) -> Result<Option<Error>> {
        let asked = asked(&session);
        let command = doc! { "insert": &self.collection, "documents": [document] };
        let fault = match self.write(session, command).await.and_then(|reply| count(&reply)) {
            Ok(1) => return Ok(None),
            Ok(n) => misfit(&format!("to an insert of one document reports {n} inserted documents")),
            Err(fault) if is_duplicate(&fault) => return Ok(Some(failed(&fault, asked))),
            Err(fault) => fault,
        };
        Err(failed(&fault, asked))
    }

    /// Changes one matching document atomically. Returns its new state, or `None` if no document matched.
    pub(super) async fn modify(
        &self,
        session: TxSession<'_>,
        matching: Document,
        change: Document,
    ) -> Result<Option<Document>> {
        let asked = asked(&session);
        let command =
            doc! { "findAndModify": &self.collection, "query": matching, "update": change, "new": true };
        let modified = self.write(session, command).await.and_then(|mut reply| match reply.remove("value") {
            Some(Bson::Document(document)) => Ok(Some(document)),
            Some(Bson::Null) => Ok(None),
            other => Err(misfit(&format!("to findAndModify has the value {other:?}"))),
        });
        modified.map_err(|fault| failed(&fault, asked))
    }

    /// Removes one matching document. Returns `false` if no document matched.
    pub(super) async fn remove(&self, matching: Document) -> Result<bool> {
        let command = doc! { "delete": &self.collection, "deletes": [{ "q": matching, "limit": 1 }] };
        let removed = self.write(None, command).await.and_then(|reply| count(&reply));
        removed.map(|n| n > 0).map_err(|fault| failed(&fault, Asked::Write))
    }

    async fn write(&self, session: TxSession<'_>, mut command: Document) -> Result<Document, Fault> {
        let running = if let Some(session) = session {
            // In a transaction, only the commit accepts a write concern, and the commit determines
            // durability.
            self.database.run_command(command).session(session)
        } else {
            // The server's timeout is shorter than the client's, so that the server can report it.
            let timeout = i64::try_from(self.server_timeout().as_millis()).unwrap_or(i64::MAX);
            command.insert("writeConcern", doc! { "w": "majority", "j": true, "wtimeout": timeout });
            self.database.run_command(command)
        };
        self.timely(running).await.and_then(check_reply)
    }

    /// Reads the current state of a document. See [`Self::concern`] for the read concern.
    pub(super) async fn find(&self, session: TxSession<'_>, matching: Document) -> Result<Option<Document>> {
        if let Some(session) = session {
            let found = self.timely(self.collection(None).find_one(matching).session(session)).await;
            return found.map_err(|fault| failed(&fault, Asked::InTransaction));
        }
        let collection = self.collection(Some(self.concern().await?));
        self.read(collection.find_one(matching).max_time(self.server_timeout())).await
    }

    /// Returns up to `most` matching documents in the order of `_id`. A failover cannot undo the returned
    /// documents.
    pub(super) async fn find_some(&self, matching: Document, most: i32) -> Result<Vec<Document>> {
        let collection = self.collection(Some(ReadConcern::majority()));
        self.read(async {
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

    /// Returns the document with the largest non-null value of this field.
    pub(super) async fn top(&self, field: &str) -> Result<Option<Document>> {
        let collection = self.collection(Some(ReadConcern::majority()));
        let finding = collection.find_one(doc! { field: { "$exists": true, "$ne": Bson::Null } });
        let finding = finding.sort(doc! { field: -1 }).projection(doc! { field: 1 });
        self.read(finding.max_time(self.server_timeout())).await
    }

    /// Returns whether the collection exists. The command needs no privileges except on the collection.
    pub(super) async fn exists(&self) -> Result<bool> {
        let command = doc! {
            "listCollections": 1, "filter": { "name": &self.collection },
            "nameOnly": true, "authorizedCollections": true,
        };
        let reply = self.read(self.database.run_command(command)).await?;
        let listed = reply.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
        let misfit = |_| failed(&misfit("to listCollections has no list"), Asked::Read);
        listed.map(|listed| !listed.is_empty()).map_err(misfit)
    }

    /// Returns the read concern for one document. On a replica set it is *linearizable*, so neither a
    /// deposed nor a new primary can return stale data. A single server does not support this level, and
    /// does not need it.
    pub(super) async fn concern(&self) -> Result<ReadConcern> {
        let asking = self.concern.get_or_try_init(|| async {
            let hello = self.read(self.database.run_command(doc! { "hello": 1 })).await?;
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

    async fn read<R>(&self, running: impl IntoFuture<Output = mongodb::error::Result<R>>) -> Result<R> {
        self.timely(running).await.map_err(|fault| failed(&fault, Asked::Read))
    }

    async fn timely<R>(
        &self,
        running: impl IntoFuture<Output = mongodb::error::Result<R>>,
    ) -> Result<R, Fault> {
        // Without this timeout, the driver would wait forever for a server that accepts a request but never
        // replies. A dropped request closes its connection, so a late reply cannot be matched to another
        // request.
        match tokio::time::timeout(self.timeout, running.into_future()).await {
            Ok(outcome) => Ok(outcome.map_err(Rejection::from)?),
            Err(_) => Err(Fault::silent(self.timeout)),
        }
    }
}

/// Returns the kind of a write.
fn asked(session: &TxSession<'_>) -> Asked {
    if session.is_some() { Asked::InTransaction } else { Asked::Write }
}

/// Returns the number of documents that a write affected.
fn count(reply: &Document) -> Result<i64, Fault> {
    match reply.get("n") {
        Some(Bson::Int32(n)) => Ok((*n).into()),
        Some(Bson::Int64(n)) => Ok(*n),
        other => Err(misfit(&format!("has the count {other:?}"))),
    }
}
