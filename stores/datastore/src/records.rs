//! Records, which are entities of a separate kind.
//!
//! A write is conditional on the version of the entity that was read. A commit is sent once, so its outcome
//! is unknown if there is no reply.

use idmill::store::{Page, Records};
use idmill::{Result, SequenceName};
use idmill_kit::{CompareAndSet as _, Swapped};
use serde_json::json;

use super::{DatastoreStore, over};

impl DatastoreStore {
    pub(super) async fn try_record(&self, name: &SequenceName) -> Result<Option<String>> {
        let found = self.client.find(&self.records.key(name)).await?;
        found.map(|found| Ok(self.records.decode_record(&found)?.0)).transpose()
    }

    pub(super) async fn try_swap_record(
        &self,
        name: &SequenceName,
        seen: Option<&str>,
        wanted: &str,
    ) -> Result<bool> {
        let mut contest = self.contention().begin();
        loop {
            let found = self.client.find(&self.records.key(name)).await?;
            let kept = found.as_ref().map(|found| self.records.decode_record(found)).transpose()?;
            if kept.as_ref().map(|(record, _)| record.as_str()) != seen {
                return Ok(false);
            }
            let entity = self.records.record(name, wanted);
            let mutation = match &kept {
                Some((_, version)) => over("update", &entity, version),
                None => json!({ "insert": entity }),
            };
            // Another writer was faster, or the server reported contention, so read again.
            let Swapped::Changed(cause) = self.client.commit(&mutation).await? else { return Ok(true) };
            contest.lost(cause).await?;
        }
    }

    pub(super) async fn try_list_records(&self, page: &Page) -> Result<Records> {
        self.listed(&self.records, page, |result| Ok(self.records.decode_record(result)?.0)).await
    }
}
