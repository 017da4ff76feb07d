//! `MULTI` and `EXEC`, which many clients send around a pipeline unless told not to.
//!
//! The commands are kept and then carried out one after the other. As in Redis, one that fails takes none of
//! the others back; other clients may draw in between, which no id can tell.

use super::commands::is_known;
use super::reply::Answer;
use super::request::{Command, Kept, LONGEST};
use super::session::{Failure, Session};

/// Commands that are kept until `EXEC`.
#[derive(Debug, Default)]
pub(super) struct Queue {
    commands: Vec<Kept>,
    bytes: usize,
    /// Something was not understood: nothing will be carried out.
    broken: bool,
}

impl Session {
    /// Answers a command that has at least its name, and is not `EXEC`.
    pub(super) async fn answer(&mut self, command: Command<'_>) -> Answer {
        let alone = command.len() == 1;
        if alone && command.is(0, "multi") {
            return self.multi();
        }
        if alone && command.is(0, "discard") {
            let dropped = self.queue.take();
            return dropped.map_or(Answer::error("DISCARD without MULTI"), |_| Answer::OK);
        }
        // Those around a transaction cost nothing, so that one which was begun can be ended.
        let leaves = command.is(0, "reset") || command.is(0, "quit");
        if let Err(refusal) = if leaves { Ok(()) } else { self.pay() } {
            if let Some(queue) = &mut self.queue {
                queue.broken = true;
            }
            return Failure::Refused(refusal).answer();
        }
        match &mut self.queue {
            Some(queue) if !leaves => queue.add(command),
            _ => self.outcome(command).await.unwrap_or_else(Failure::answer),
        }
    }

    fn multi(&mut self) -> Answer {
        if self.queue.is_some() {
            return Answer::error("MULTI calls can not be nested");
        }
        self.queue = Some(Queue::default());
        Answer::OK
    }

    /// What is to be carried out now, if this is `EXEC`; or why nothing is.
    pub(super) fn exec(&mut self, command: Command<'_>) -> Option<Result<Vec<Kept>, Answer>> {
        if command.len() != 1 || !command.is(0, "exec") {
            return None;
        }
        Some(match self.queue.take() {
            None => Err(Answer::error("EXEC without MULTI")),
            Some(queue) if queue.broken => {
                let message = "Transaction discarded because of previous errors: nothing was carried out";
                Err(Answer::Error("EXECABORT", message.into()))
            }
            Some(queue) => Ok(queue.commands),
        })
    }
}

impl Queue {
    fn add(&mut self, command: Command<'_>) -> Answer {
        let refused = match is_known(command) {
            Err(failure) => Some(failure),
            Ok(()) if self.bytes >= LONGEST => {
                let message = format!("a transaction of more than {LONGEST} bytes; EXEC more often");
                Some(Failure::usage(message))
            }
            Ok(()) => None,
        };
        if let Some(failure) = refused {
            self.broken = true;
            return failure.answer();
        }
        let kept = command.keep();
        // A word has its place too.
        self.bytes += kept.len() + command.len() * size_of::<std::ops::Range<usize>>();
        self.commands.push(kept);
        Answer::Word("QUEUED")
    }
}
