//! The state of one client: its identity, its protocol version, and the sequence it drew from last.

use std::sync::Arc;

use derive_more::From;
use idmill::store::SequenceInfo;
use idmill::{Error, ErrorKind, Operation, SequenceName, Status};
use idmill_kit::{among, no_answer};
use tokio::time::{Instant, timeout_at};

use super::reply::Answer;
use super::request::{Command, LONGEST, LONGEST_OF_NOBODY};
use crate::access::{Caller, Memory, Refusal, Right};
use crate::counters;
use crate::peer::Peer;
use crate::sequences::OpenSequence;
use crate::state::ServerState;

pub(super) struct Session {
    pub(super) state: Arc<ServerState>,
    /// The caller; `None` until a valid token was sent, if a token is required.
    pub(super) caller: Option<Caller>,
    pub(super) peer: Arc<Peer>,
    pub(super) id: i64,
    /// The name that the client set.
    pub(super) name: Vec<u8>,
    /// The protocol version: 2, unless the client requests 3.
    pub(super) version: u8,
    /// Number of drawn ids that are not yet encoded.
    pub(super) drawn: u64,
    /// The open transaction, from `MULTI` to `EXEC`.
    pub(super) queue: Option<Queue>,
    /// The time at which bytes last arrived, in nanoseconds since the start; `None` if the token does not
    /// limit requests.
    metered: Option<u64>,
    /// Whether the current command was already counted towards the request rate.
    paid: bool,
    /// The sequence that was drawn from last. The caller's right was checked.
    recent: Option<(Vec<u8>, Arc<OpenSequence>)>,
    /// Commands wait until this time for ids and for the store. See [`waited`](Self::waited).
    due: Instant,
    /// This connection's share of its token's memory.
    memory: Option<Memory>,
    /// Whether the connection ends without answers to further commands.
    pub(super) ends: bool,
}

/// Commands that wait for `EXEC`, as they were received.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) bytes: Vec<u8>,
    pub(super) commands: usize,
    /// The number of requests that the commands count as.
    pub(super) requests: u64,
    /// Whether a command was invalid, so that `EXEC` executes nothing.
    pub(super) broken: bool,
}

impl Session {
    pub(super) fn new(state: Arc<ServerState>, peer: Arc<Peer>, id: i64) -> Self {
        let caller = state.access.anybody().ok();
        Self {
            state,
            caller,
            peer,
            id,
            name: Vec::new(),
            version: 2,
            drawn: 0,
            queue: None,
            metered: None,
            paid: false,
            recent: None,
            due: Instant::now(),
            memory: None,
            ends: false,
        }
    }

    /// Returns the next id on the fast path: for `INCR` of the last sequence, if memory has an id. Needs
    /// no lock, no allocation and no wait.
    #[inline]
    pub(super) fn incr(&mut self, command: Command<'_>) -> Option<i64> {
        if command.len() != 2 || !command.is(0, "incr") || self.queue.is_some() {
            return None;
        }
        let (name, served) = self.recent.as_ref().filter(|(name, _)| Some(&name[..]) == command.word(1))?;
        debug_assert!(!name.is_empty());
        if let (Some(now), Some(caller)) = (self.metered, &self.caller) {
            caller.pays(1, now).ok()?;
            self.paid = true;
        }
        let id = served.try_next().ok();
        self.paid &= id.is_none();
        id
    }

    /// Counts a command outside the fast path as this number of requests.
    pub(super) fn pay(&mut self, requests: u64) -> Result<(), Refusal> {
        let paid = std::mem::take(&mut self.paid);
        match &self.caller {
            Some(caller) if !paid => self.state.pays(caller, requests),
            _ => Ok(()),
        }
    }

    /// Counts unread bytes and the open transaction towards the token's memory. Call it before each read.
    pub(super) fn hold(&mut self, unread: usize) -> Result<(), Refusal> {
        let bytes = unread + self.queue.as_ref().map_or(0, |queue| queue.bytes.len());
        let before = self.memory.as_ref().map_or(0, |memory| memory.bytes);
        match &self.caller {
            Some(caller) if bytes != before => caller.holds(bytes, &mut self.memory),
            _ => Ok(()),
        }
    }

    /// Returns the maximum size of the next command.
    pub(super) fn longest(&self) -> usize {
        if self.caller.is_some() { LONGEST } else { LONGEST_OF_NOBODY }
    }

    /// Checks that the token is still valid. Call it after each read.
    pub(super) fn confirm(&mut self) -> Result<(), Refusal> {
        let Some(caller) = &mut self.caller else { return Ok(()) };
        let access = &self.state.access;
        let same = access.confirm(caller).inspect_err(|refusal| {
            self.state.audit.guessed(&self.peer, *refusal);
        })?;
        if !same {
            self.recent = None;
        }
        self.metered = caller.is_metered().then(|| access.clock.elapsed());
        Ok(())
    }

    /// Begins the time to wait for the commands that were read at this time. Commands that were read together
    /// share it: otherwise a pipeline would wait once for each command while the store is unreachable.
    ///
    /// Bytes that were read while earlier commands were answered have at least the time of these commands.
    pub(super) fn came(&mut self, at: Instant) {
        self.due = self.due.max(at + self.state.proxy.limit);
    }

    /// Returns the time until which a command may wait.
    ///
    /// # Errors
    /// If this time is over, so that a call to the store must not begin.
    pub(super) fn due(&self) -> Result<Instant, CommandError> {
        if self.due > Instant::now() {
            return Ok(self.due);
        }
        let message = "the commands before this one, which were sent together with it, waited in vain for \
                       the store; retry";
        Err(Error::new(ErrorKind::Unavailable, message).into())
    }

    /// Gives the following commands the time since `begun`, in which no command failed.
    pub(super) fn used(&mut self, begun: Instant) {
        self.due += begun.elapsed();
    }

    /// Runs a wait of a command. Only the time of failed waits counts, so that a long pipeline of draws that
    /// each need the store succeeds.
    async fn waited<T, E>(&mut self, wait: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        let begun = Instant::now();
        wait.await.inspect(|_| self.used(begun))
    }

    /// Draws from a sequence: `draw` gets the sequence and the time until which it may wait.
    pub(super) async fn draw<T>(
        &mut self,
        name: &[u8],
        draw: impl AsyncFnOnce(&OpenSequence, Instant) -> Result<T, Error>,
    ) -> Result<T, CommandError> {
        let served = self.sequence(name).await?;
        let due = self.due;
        Ok(self.waited(draw(&served, due)).await?)
    }

    /// Reads sequences from the store in one call. Fails with the first error.
    pub(super) async fn stored(
        &mut self,
        names: Vec<SequenceName>,
    ) -> Result<Vec<Option<SequenceInfo>>, CommandError> {
        let (due, state) = (self.due()?, self.state.clone());
        let late = |_| Error::new(ErrorKind::Unavailable, no_answer(state.proxy.limit));
        let read = async |names: Vec<SequenceName>| state.proxy.store.inspect_many(&names).await;
        let found = async {
            let found = among(names.into_iter().map(Ok), ErrorKind::Unavailable, read);
            timeout_at(due, found).await.map_err(late)?.into_iter().collect::<Result<_, _>>()
        };
        let found = self.waited(found).await;
        Ok(found.map_err(|error| error.during(Operation::Inspect))?)
    }

    pub(super) async fn authenticate(&mut self, secret: &str) -> Result<(), Refusal> {
        (self.recent, self.caller, self.metered) = (None, None, None);
        self.peer.forgets();
        match self.state.caller(secret, &self.peer).await {
            Ok(caller) => {
                self.metered = caller.is_metered().then(|| self.state.access.clock.elapsed());
                self.caller = Some(caller);
                Ok(())
            }
            Err((refusal, closes)) => {
                self.ends |= closes;
                Err(refusal)
            }
        }
    }

    /// Restores the state of a new connection.
    pub(super) fn reset(&mut self) {
        self.peer.forgets();
        let fresh = Self::new(self.state.clone(), self.peer.clone(), self.id);
        *self = Self { due: self.due, ..fresh };
    }

    pub(super) fn caller(&self) -> Result<&Caller, CommandError> {
        self.caller.as_ref().ok_or(CommandError::Refused(Refusal::Nobody))
    }

    /// Returns the sequence to draw from.
    async fn sequence(&mut self, name: &[u8]) -> Result<Arc<OpenSequence>, CommandError> {
        let text = text(name)?;
        self.caller()?.may(Right::Draw, text)?;
        let served = if let Some(served) = self.state.draws.open(text) {
            served
        } else {
            self.due()?;
            let (state, caller) = (self.state.clone(), self.caller()?.clone());
            self.waited(state.sequence::<CommandError>(&caller, text)).await?
        };
        self.recent = Some((name.to_vec(), served.clone()));
        Ok(served)
    }
}

pub(super) fn text(word: &[u8]) -> Result<&str, CommandError> {
    std::str::from_utf8(word)
        .map_err(|_| CommandError::usage("the argument is not UTF-8; send names and tokens as UTF-8"))
}

/// The error of a command.
#[derive(Debug, From)]
pub(super) enum CommandError {
    #[from]
    Refused(Refusal),
    #[from]
    Failed(Error),
    Said(&'static str, String),
}

impl CommandError {
    pub(super) fn usage(message: impl Into<String>) -> Self {
        Self::Said("ERR", message.into())
    }

    pub(super) fn answer(self) -> Answer {
        if let Self::Refused(refusal) = &self {
            counters::refused(refusal.reason());
        }
        match self {
            Self::Refused(Refusal::Nobody) => Answer::Error(
                "NOAUTH",
                "Authentication required: send AUTH with a token of this server".into(),
            ),
            Self::Refused(refusal @ (Refusal::Wrong | Refusal::Ended)) => {
                Answer::Error("WRONGPASS", refusal.to_string().into())
            }
            Self::Refused(refusal) if refusal.is_transient() => {
                Answer::Error("TRYAGAIN", refusal.to_string().into())
            }
            Self::Refused(refusal) => Answer::Error("NOPERM", refusal.to_string().into()),
            Self::Failed(error) => Answer::Error(code(&error), error.to_string().into()),
            Self::Said(code, message) => Answer::Error(code, message.into()),
        }
    }
}

/// Returns the error code for clients. `TRYAGAIN` is transient, `UNKNOWN` has an unknown outcome, and all
/// other codes are permanent.
fn code(error: &Error) -> &'static str {
    match (error.status(), error.kind()) {
        (Status::Transient, _) => "TRYAGAIN",
        (Status::Unknown, _) => "UNKNOWN",
        (_, ErrorKind::Exhausted) => "EXHAUSTED",
        (_, ErrorKind::NotFound) => "NOTFOUND",
        (_, ErrorKind::AlreadyExists) => "EXISTS",
        (_, ErrorKind::Conflict) => "CONFLICT",
        (_, ErrorKind::Closed) => "CLOSED",
        (_, ErrorKind::StoreViolation) => "VIOLATION",
        (_, ErrorKind::Witness) => "WITNESS",
        _ => "ERR",
    }
}
