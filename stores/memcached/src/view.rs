//! A read-only view of the window.

use idmill::Result;
use idmill::store::{SequenceInfo, StoreFuture};
use idmill_kit::WindowView;
use idmill_shared_cache::cache::{Command, Layout, LookReply};
use idmill_shared_cache::known::Known;

use super::connection::Failure;
use super::key::key;
use super::{MemcachedWindow, unexpected};

impl MemcachedWindow {
    async fn look(&self, sequence: &SequenceInfo) -> Result<Option<u128>> {
        let known = Known::of(sequence, key(&self.options.window.prefix, sequence), None);
        let deadline = self.deadline();
        let connection = self.connected(deadline).await?;
        let looked = self.send(&connection, &known, Command::Peek, deadline).await;
        // A read changes nothing, so every failure can be reported as not sent.
        let failed = |reason| self.failed(&Failure::NotSent(reason));
        let reply = looked.map_err(|(Failure::NotSent(reason) | Failure::Lost(reason))| failed(reason))?;
        match reply.seen().map_err(|other| failed(unexpected(&other)))? {
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
