//! Records, which are documents of a separate collection. The server creates the collection for the first
//! record.
//!
//! A write is sent once, so its outcome is unknown if there is no reply.

use idmill::store::{Page, Records};
use idmill::{Error, ErrorKind, Result, SequenceName};
use idmill_kit::Asked;

use super::classify::{failed, is_duplicate};
use super::commands::Commands;
use super::{MongoStore, listed, schema};

impl MongoStore {
    fn witness(&self) -> Result<Commands> {
        Ok(self.commands.beside(schema::witness(self.commands.collection_name())?))
    }

    pub(super) async fn try_record(&self, name: &SequenceName) -> Result<Option<String>> {
        let found = self.witness()?.find(None, schema::by_name(name)).await;
        let found = found.map_err(|fault| failed(&fault, Asked::Read))?;
        found.map(|document| schema::decode_record(&document, name)).transpose()
    }

    pub(super) async fn try_swap_record(
        &self,
        name: &SequenceName,
        seen: Option<&str>,
        wanted: &str,
    ) -> Result<bool> {
        let Some(seen) = seen else { return self.first_record(name, wanted).await };
        let unchanged = schema::encode_record(name, seen);
        let outcome = self.witness()?.modify(None, unchanged, schema::replace_record(wanted)).await;
        Ok(outcome.map_err(|fault| failed(&fault, Asked::Write))?.is_some())
    }

    async fn first_record(&self, name: &SequenceName, wanted: &str) -> Result<bool> {
        let witness = self.witness()?;
        if self.must_exist && !witness.exists().await.map_err(|fault| failed(&fault, Asked::Read))? {
            let message = format!(
                "there is no records collection `{}`; restore it; if the witness is new, create it or \
                 remove `existing=true`",
                witness.namespace()
            );
            return Err(Error::new(ErrorKind::NotFound, message));
        }
        match witness.insert(None, schema::encode_record(name, wanted)).await {
            Ok(()) => Ok(true),
            // The record exists, or the write violates another unique index of the collection.
            Err(fault) if is_duplicate(&fault) && self.try_record(name).await?.is_some() => Ok(false),
            Err(fault) => Err(failed(&fault, Asked::Write)),
        }
    }

    pub(super) async fn try_list_records(&self, page: &Page) -> Result<Records> {
        listed(&self.witness()?, page, schema::decode_record).await
    }
}
