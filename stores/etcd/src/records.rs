//! A record is a key under a separate prefix, inside the prefix of the sequences. The key's value is the
//! record's text.
//!
//! A transaction requires the text that was read, or that the key is absent. Once false, a condition stays
//! false: no text is written twice under a name, and record keys are never deleted. The transaction can
//! therefore be resent, like those of sequences: see [`reserve`](super::reserve).

use idmill::store::{Page, Records};
use idmill::{Error, ErrorKind, Result, SequenceName};
use idmill_kit::{Asked, Resend};

use super::EtcdStore;
use super::classify::{OVERTAKEN, failed};
use super::connection::Answered;
use super::reserve::SequenceKeys;
use super::wire::{Compare, KeyValue, Put, Request, Txn};

impl EtcdStore {
    pub(super) async fn try_record(&self, name: &SequenceName) -> Result<Option<String>> {
        let SequenceKeys { client, records, .. } = &*self.sequences;
        client.range(&records.the_key(name)).await?.kvs.into_iter().next().map(text).transpose()
    }

    pub(super) async fn try_swap_record(
        &self,
        name: &SequenceName,
        seen: Option<&str>,
        wanted: &str,
    ) -> Result<bool> {
        let SequenceKeys { client, records, .. } = &*self.sequences;
        let key = records.key(name).into_bytes();
        let compare = match seen {
            Some(seen) => Compare::value(&key, seen.as_bytes()),
            None => Compare::absent(&key),
        };
        let put = Request::Put(Put { key, value: wanted.as_bytes().to_vec() });
        let txn = Txn::new(vec![compare], put, Request::Range(records.the_key(name)));
        let answered = client.txn(&txn, Resend::Harmless).await;
        let Answered { answer, resent } = answered.map_err(|fault| failed(fault, Asked::Write))?;
        if answer.succeeded || !resent {
            return Ok(answer.succeeded);
        }
        match answer.found()?.first() {
            Some(kept) if kept.value == wanted.as_bytes() => Ok(true),
            _ => Err(Error::new(ErrorKind::UnknownOutcome, OVERTAKEN)),
        }
    }

    pub(super) async fn try_list_records(&self, page: &Page) -> Result<Records> {
        self.sequences.listed(&self.sequences.records, page, text).await
    }
}

fn text(stored: KeyValue) -> Result<String> {
    String::from_utf8(stored.value).map_err(|_| {
        let key = String::from_utf8_lossy(&stored.key);
        Error::new(ErrorKind::StoreViolation, format!("the key {key:?} is not text; nothing was changed"))
    })
}
