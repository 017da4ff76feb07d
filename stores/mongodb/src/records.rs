//! Records, which are documents of a separate collection. The server creates the collection for the first
//! record.
//!
//! A write is sent once, so its outcome is unknown if there is no reply.

use idmill::store::{Page, Records};
use idmill::{Error, ErrorKind, Result, SequenceName};

use super::connection::Commands;
use super::{MongoStore, listed, schema};

impl MongoStore {
    fn witness(&self) -> Result<Commands> {
        Ok(self.commands.beside(schema::witness(&self.commands.collection)?))
    }

    pub(super) async fn try_record(&self, name: &SequenceName) -> Result<Option<String>> {
        let found = self.witness()?.find(None, schema::by_name(name)).await?;
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
        Ok(self.witness()?.modify(None, unchanged, schema::replace_record(wanted)).await?.is_some())
    }

    async fn first_record(&self, name: &SequenceName, wanted: &str) -> Result<bool> {
        let witness = self.witness()?;
        if self.must_exist && !witness.exists().await? {
            let message = format!(
                "there is no records collection `{}`; restore it; if the witness is new, create it or \
                 remove `existing=true`",
                witness.namespace()
            );
            return Err(Error::new(ErrorKind::NotFound, message));
        }
        match witness.insert(None, schema::encode_record(name, wanted)).await? {
            None => Ok(true),
            // The record exists, or the write violates another unique index of the collection.
            Some(_) if self.try_record(name).await?.is_some() => Ok(false),
            Some(duplicate) => Err(duplicate),
        }
    }

    pub(super) async fn try_list_records(&self, page: &Page) -> Result<Records> {
        listed(&self.witness()?, page, schema::decode_record).await
    }
}
