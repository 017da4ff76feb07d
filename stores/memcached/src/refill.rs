//! Installs reserved ranges in a window.

use idmill::store::{Grant, Reserve};
use idmill::{ErrorKind, Result};
use idmill_shared_cache::Installed;
use idmill_shared_cache::cache;
use idmill_shared_cache::cache::{Command, Fence};
use idmill_shared_cache::counts::late;
use idmill_shared_cache::known::Known;
use tokio::time::Instant;

use super::connection::{Connection, Fault};
use super::wire::Reply;
use super::{MemcachedToken, MemcachedWindow, Right};

/// Maximum number of attempts to extend a window, after which the range is abandoned. Each failure means
/// that another draw was faster.
const TRIES: usize = 200;
/// Number of preparations that are skipped after a range that did not follow the window.
const APART: u32 = 16;

impl MemcachedWindow {
    pub(super) async fn install(
        &self,
        request: &Reserve,
        token: MemcachedToken,
        grant: Grant,
    ) -> Result<Installed> {
        let MemcachedToken { right, asked, known } = token;
        if grant.identity != known.identity {
            // The sequence was recreated or reset, so its window has another key now. The range must not be
            // stored under the old key.
            self.sequences.forget(&request.name);
            self.give_back(right, &known).await;
            return Ok(Installed::Refused);
        }
        let end = u64::try_from(grant.range.end()).ok().filter(|end| *end <= grant.bounds.max());
        self.sequences.update(&request.name, |latest| latest.advance(known.identity, end));
        let took = asked.elapsed();
        self.sequences.update(&request.name, |latest| latest.pace.took(took));
        match right {
            Right::Low { end, .. } => Ok(self.extend(request, &known, end, grant).await),
            Right::Stub { fence, lives } => {
                let installed = self.put(request, &known, fence, grant).await;
                if installed == Installed::Refused && took >= lives {
                    let late = late("stub", took, lives, grant.range.len());
                    return Err(self.error(ErrorKind::Unavailable, &late).of(&request.name));
                }
                Ok(installed)
            }
        }
    }

    /// Replaces a stub with the range.
    async fn put(&self, request: &Reserve, known: &Known, fence: Fence, grant: Grant) -> Installed {
        let Some(connection) = self.live() else { return Installed::Refused };
        let refill = cache::refill(known.layout(), fence, connection.number, grant.range, request.count);
        let Some(refill) = refill else { return Installed::Refused };
        let held = self.holds(&connection, known, refill.command, self.deadline()).await;
        if held != Installed::Done {
            return held;
        }
        self.counts.refills.add(1);
        self.counts.abandoned.add(refill.unused);
        let size = grant.range.len() - refill.own.len() - refill.unused;
        self.sequences.update(&request.name, |latest| latest.pace.installed(size));
        Installed::Ids(grant.range(refill.own))
    }

    /// Extends the window with the range if the window's end is unchanged.
    async fn extend(&self, request: &Reserve, known: &Known, end: u64, grant: Grant) -> Installed {
        let deadline = self.deadline();
        for _ in 0..TRIES {
            let Some(connection) = self.live() else { return Installed::Refused };
            let looked = self.send(&connection, known, Command::Peek, deadline).await;
            let seen = looked.ok().and_then(|reply| reply.seen().ok());
            let extend = seen.and_then(|seen| cache::extend(known.layout(), end, grant.range, seen));
            let Some(extend) = extend else { break };
            // A cas is valid only on the connection that returned it.
            match self.holds(&connection, known, extend.command, deadline).await {
                Installed::Done => {
                    self.counts.ahead.add(1);
                    self.counts.abandoned.add(extend.unused);
                    self.sequences.update(&request.name, |latest| latest.pace.installed(extend.size));
                    return Installed::Done;
                }
                Installed::Refused => {}
                unknown => return unknown,
            }
        }
        if !known.layout().follows(end, grant.range) {
            self.sequences.update(&request.name, |latest| latest.apart = APART);
        }
        Installed::Refused
    }

    /// Sends a conditional command. Returns whether it was applied.
    async fn holds(
        &self,
        connection: &Connection,
        known: &Known,
        command: Command,
        deadline: Instant,
    ) -> Installed {
        match self.send(connection, known, command, deadline).await.map(Reply::held) {
            Ok(Ok(true)) => Installed::Done,
            Ok(Ok(false)) | Err(Fault::NotSent(_)) => Installed::Refused,
            Ok(Err(_)) | Err(_) => Installed::Unknown,
        }
    }

    /// Deletes a stub, so that other callers need not wait until it expires. A failure is ignored, because
    /// the stub then expires.
    pub(super) async fn give_back(&self, right: Right, known: &Known) {
        let (Some(connection), Right::Stub { fence, .. }) = (self.live(), right) else { return };
        if let Some(cas) = fence.cas_on(connection.number) {
            let _ = self.send(&connection, known, Command::Release { cas }, self.deadline()).await;
        }
    }
}
