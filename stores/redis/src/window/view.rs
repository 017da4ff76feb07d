//! A read-only view of the window.

use idmill::store::{SequenceInfo, StoreFuture};
use idmill::{ErrorKind, Result};
use idmill_kit::WindowView;
use idmill_shared_cache::known::Known;

use super::key::key;
use super::{LOOK, RedisWindow};
use crate::classify::{Asked, Fault};
use crate::link::Call;

impl RedisWindow {
    async fn look(&self, sequence: &SequenceInfo) -> Result<Option<u128>> {
        let known = Known::of(sequence, key(&self.options.window.prefix, sequence), None);
        let keys = vec![known.key.to_string()];
        let call = Call { script: LOOK, keys, arguments: Vec::new(), asked: Asked::Read };
        let failed = |fault: Fault| self.link.failed(&fault, Asked::Read);
        let answer = self.link.run(call).await.map_err(failed)?;
        match answer.word() {
            "until" => {
                let end = answer.words.get(1).and_then(|word| word.parse().ok());
                end.map(Some).ok_or_else(|| failed(answer.garbled()))
            }
            "nothing" => Ok(None),
            "replica" => {
                Err(self.error(ErrorKind::Unavailable, "the server became a replica; name the master"))
            }
            "foreign" => Err(self.foreign(&known)),
            _ => Err(failed(answer.garbled())),
        }
    }
}

impl WindowView for RedisWindow {
    fn end<'a>(&'a self, sequence: &'a SequenceInfo) -> StoreFuture<'a, Result<Option<u128>>> {
        Box::pin(async move { self.look(sequence).await.map_err(|error| error.of(&sequence.name)) })
    }
}
