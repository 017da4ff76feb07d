//! `MULTI` and `EXEC`, which many clients send around a pipeline unless told not to.
//!
//! The commands are kept and then carried out one after the other. As in Redis, one that fails takes none of
//! the others back; other clients may draw in between, which no id can tell.

use super::commands::{is_greeting, is_http, is_known, requests};
use super::reply::Answer;
use super::request::{Command, LONGEST};
use super::session::{Failure, Queue, Session};
use crate::access::Refusal;

impl Session {
    /// Answers a command that has at least its name, and is not `EXEC`.
    pub(super) async fn answer(&mut self, command: Command<'_>) -> Answer {
        if self.caller.is_none() && !is_greeting(command) && !is_http(command) {
            return refused_nobody(command).answer();
        }
        let alone = command.len() == 1;
        if alone && command.is(0, "multi") {
            return self.multi();
        }
        if alone && command.is(0, "discard") {
            let dropped = self.queue.take();
            return dropped.map_or(Answer::error("DISCARD without MULTI"), |_| Answer::OK);
        }
        // Ending a transaction costs nothing: it is possible beyond the limit.
        let leaves = command.is(0, "reset") || command.is(0, "quit");
        if let Some(queue) = self.queue.as_mut().filter(|_| !leaves) {
            return queue.add(command);
        }
        if let Err(refusal) = if leaves { Ok(()) } else { self.pay(requests(command)) } {
            return Failure::Refused(refusal).answer();
        }
        self.outcome(command).await.unwrap_or_else(Failure::answer)
    }

    fn multi(&mut self) -> Answer {
        if self.queue.is_some() {
            return Answer::error("MULTI calls can not be nested");
        }
        self.queue = Some(Queue::default());
        Answer::OK
    }

    /// For `EXEC`: the commands to carry out, all paid for; or the error.
    pub(super) fn exec(&mut self, command: Command<'_>) -> Option<Result<Queue, Answer>> {
        if command.len() != 1 || !command.is(0, "exec") {
            return None;
        }
        Some(match self.queue.take() {
            None => Err(Answer::error("EXEC without MULTI")),
            Some(queue) if queue.broken => {
                let message = "Transaction discarded because of previous errors: nothing was carried out";
                Err(Answer::Error("EXECABORT", message.into()))
            }
            Some(queue) => match self.pay(queue.requests) {
                Ok(()) => Ok(queue),
                Err(refusal) => Err(Failure::Refused(refusal).answer()),
            },
        })
    }
}

/// The refusal of a client without a token. As in Redis, an unknown command, such as a mistyped `AUTH`, has its
/// own error.
fn refused_nobody(command: Command<'_>) -> Failure {
    let is_around = command.is(0, "multi") || command.is(0, "discard");
    let unknown = is_known(command).err().filter(|_| !is_around);
    unknown.unwrap_or(Failure::Refused(Refusal::Nobody))
}

impl Queue {
    fn add(&mut self, command: Command<'_>) -> Answer {
        let length = command.bytes().len() + 2;
        let refused = if command.is(0, "auth") || command.is(0, "hello") {
            // Another token would pay for the commands behind it.
            Some(Failure::usage("AUTH and HELLO are refused within MULTI; send them before it"))
        } else if self.bytes.len() + length > LONGEST {
            let message = format!("a transaction of more than {LONGEST} bytes; EXEC more often");
            Some(Failure::usage(message))
        } else {
            is_known(command).err()
        };
        if let Some(failure) = refused {
            (self.broken, self.bytes) = (true, Vec::new());
            return failure.answer();
        }
        if !self.broken {
            self.bytes.extend_from_slice(command.bytes());
            self.bytes.extend_from_slice(b"\r\n");
            self.commands += 1;
            self.requests = self.requests.saturating_add(requests(command));
        }
        Answer::Word("QUEUED")
    }
}
