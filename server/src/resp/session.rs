//! One client: who it is, which version it speaks, and the sequence that it drew from last.

use std::sync::Arc;

use idmill::{Error, ErrorKind, Status};

use super::reply::Answer;
use super::request::Command;
use super::transaction::Queue;
use crate::access::{Caller, Refusal, Right};
use crate::core::Core;
use crate::served::Served;

pub(super) struct Session {
    pub(super) core: Arc<Core>,
    /// `None` until it has said so, where it has to.
    pub(super) caller: Option<Caller>,
    pub(super) id: i64,
    /// As the client calls itself.
    pub(super) name: Vec<u8>,
    /// Of the protocol: 2, until the client asks for 3.
    pub(super) version: u8,
    /// So many ids are in the answer that was made last.
    pub(super) drawn: u64,
    /// Since `MULTI`.
    pub(super) queue: Option<Queue>,
    /// Drawn from last, by somebody who may.
    recent: Option<(Vec<u8>, Arc<Served>)>,
    /// What follows is not answered any more.
    pub(super) ends: bool,
}

impl Session {
    pub(super) fn new(core: Arc<Core>, id: i64) -> Self {
        let caller = core.access.anybody().ok();
        Self {
            core,
            caller,
            id,
            name: Vec::new(),
            version: 2,
            drawn: 0,
            queue: None,
            recent: None,
            ends: false,
        }
    }

    /// `INCR` of the sequence that was drawn from last, if memory has an id: no lock, no allocation, no wait.
    #[inline]
    pub(super) fn incr(&self, command: Command<'_>) -> Option<i64> {
        if command.len() != 2 || !command.is(0, "incr") || self.queue.is_some() {
            return None;
        }
        let (name, served) = self.recent.as_ref().filter(|(name, _)| Some(&name[..]) == command.word(1))?;
        debug_assert!(!name.is_empty());
        served.try_next().ok()
    }

    /// To be called when bytes have come: whether the client still is who it said.
    pub(super) fn confirm(&mut self) -> Result<(), Refusal> {
        let Some(caller) = &mut self.caller else { return Ok(()) };
        let same = self.core.access.confirm(caller)?;
        if !same {
            self.recent = None;
        }
        Ok(())
    }

    pub(super) fn authenticate(&mut self, secret: &str) -> Result<(), Refusal> {
        self.recent = None;
        self.caller = None;
        self.caller = Some(self.core.access.caller(secret)?);
        Ok(())
    }

    /// As it was when it connected.
    pub(super) fn reset(&mut self) {
        *self = Self::new(self.core.clone(), self.id);
    }

    pub(super) fn caller(&self) -> Result<&Caller, Failure> {
        self.caller.as_ref().ok_or(Failure::Refused(Refusal::Nobody))
    }

    /// The sequence to draw from.
    pub(super) async fn sequence(&mut self, name: &[u8]) -> Result<Arc<Served>, Failure> {
        let text = text(name)?;
        self.caller()?.may(Right::Draw, text)?;
        let served = self.core.draws.find(text).await?;
        self.recent = Some((name.to_vec(), served.clone()));
        Ok(served)
    }
}

pub(super) fn text(word: &[u8]) -> Result<&str, Failure> {
    std::str::from_utf8(word)
        .map_err(|_| Failure::Said("ERR", "this is not UTF-8; names of sequences are".to_owned()))
}

/// Why a command has no other answer.
#[derive(Debug)]
pub(super) enum Failure {
    Refused(Refusal),
    Failed(Error),
    Said(&'static str, String),
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Failure {
    pub(super) fn usage(message: impl Into<String>) -> Self {
        Self::Said("ERR", message.into())
    }

    pub(super) fn answer(self) -> Answer {
        match self {
            Self::Refused(Refusal::Nobody) => {
                Answer::Error("NOAUTH", "Authentication required: AUTH with a token of this server".into())
            }
            Self::Refused(refusal @ (Refusal::Wrong | Refusal::Ended)) => {
                Answer::Error("WRONGPASS", refusal.to_string().into())
            }
            Self::Refused(refusal) => Answer::Error("NOPERM", refusal.to_string().into()),
            Self::Failed(error) => Answer::Error(code(&error), error.to_string().into()),
            Self::Said(code, message) => Answer::Error(code, message.into()),
        }
    }
}

/// By which a client tells errors apart: `TRYAGAIN` is transient, `UNKNOWN` may have happened or not, and
/// all others are permanent.
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
        _ => "ERR",
    }
}
