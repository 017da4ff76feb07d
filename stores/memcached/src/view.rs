//! A read-only view of the window.

use idmill::Result;
use idmill::store::{SequenceInfo, StoreFuture};
use idmill_kit::{Asked, WindowView};
use idmill_shared_cache::cache::{Command, Layout, LookReply};
use idmill_shared_cache::known::Known;

use super::key::key;
use super::{MemcachedWindow, unexpected};

impl MemcachedWindow {
    async fn look(&self, sequence: &SequenceInfo) -> Result<Option<u128>> {
        let known = Known::of(sequence, key(&self.options.window.prefix, sequence), None);
        let deadline = self.deadline();
        let connection = self.connected(deadline).await?;
        let looked = self.send(&connection, &known, Command::Peek, deadline).await;
        let seen = looked.and_then(|reply| reply.seen().map_err(|other| unexpected(&other)));
        match seen.map_err(|fault| self.failed(&fault, Asked::Read))? {
            // Use `u128`, because the sum can be 2^64.
            LookReply::Number { number, .. } => Ok(Layout::decode(number)
                .map(|standing| u128::from(sequence.bounds.start()) + u128::from(standing.end))),
            _ => Ok(None),
        }
    }
}

impl WindowView for MemcachedWindow {
    fn end<'a>(&'a self, sequence: &'a SequenceInfo) -> StoreFuture<'a, Result<Option<u128>>> {
        Box::pin(async move { self.look(sequence).await.map_err(|error| error.of(&sequence.name)) })
    }
}
