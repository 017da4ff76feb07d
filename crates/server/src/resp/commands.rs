//! The Redis commands. Many clients send `MULTI` and `EXEC` around a pipeline by default, so these are
//! supported.
//!
//! `EXEC` executes the queued commands one after the other. As in Redis, a failed command does not undo
//! the other commands. Other clients may draw between two of these commands.

use std::fmt::Write as _;

use idmill::{IdRange, SequenceName};

use super::reply::Answer;
use super::request::{Command, LONGEST};
use super::session::{CommandError, Queue, Session, text};
use crate::access::{Refusal, Right};

pub(super) type Outcome = Result<Answer, CommandError>;

/// The commands, with their number of words including the name.
const KNOWN: [(&str, std::ops::RangeInclusive<usize>); 17] = [
    ("incr", 2..=2),
    ("incrby", 3..=3),
    ("idmill.take", 3..=3),
    ("idmill.store", 3..=3),
    ("get", 2..=2),
    ("exists", 2..=usize::MAX),
    ("ping", 1..=2),
    ("echo", 2..=2),
    ("auth", 2..=3),
    ("hello", 1..=usize::MAX),
    ("client", 2..=usize::MAX),
    ("select", 2..=2),
    ("command", 1..=usize::MAX),
    ("info", 1..=usize::MAX),
    ("config", 3..=usize::MAX),
    ("reset", 1..=1),
    ("quit", 1..=1),
];

/// Commands that are allowed without a token.
const GREETINGS: [&str; 5] = ["auth", "hello", "ping", "quit", "reset"];

/// Maximum length of a client's name in bytes.
const LONGEST_NAME: usize = 64;

/// Rejected Redis commands: they would repeat an id, or need data that is not stored here.
const REFUSED: &str = "set setnx setex psetex getset getdel getex mset msetnx append setrange del unlink decr decrby incrbyfloat \
                       expire pexpire expireat pexpireat persist rename renamenx copy move restore flushdb flushall";

impl Session {
    /// Executes a command, which has at least a name.
    pub(super) async fn outcome(&mut self, command: Command<'_>) -> Outcome {
        if is_http(command) {
            // The client speaks HTTP: probably a browser that a page directed here. Nothing that follows may
            // be executed as a command.
            self.ends = true;
            return Err(CommandError::usage(
                "this port serves the Redis protocol; send HTTP requests to the HTTP port",
            ));
        }
        let name = known(command)?;
        let word = |at| command.word(at).unwrap_or_default();
        match name {
            "incr" => self.incr_of(word(1)).await,
            "incrby" => self.incrby(word(1), word(2)).await,
            "idmill.take" => self.take(word(1), word(2)).await,
            "idmill.store" => self.store(word(1), word(2)).await,
            "get" => self.get(word(1)),
            "exists" => self.exists(command).await,
            "ping" if command.len() == 1 => Ok(Answer::Word("PONG")),
            "ping" | "echo" => Ok(Answer::Bytes(word(1).to_vec())),
            "auth" => self.auth(word(command.len() - 1)).await,
            "hello" => self.hello(command).await,
            "client" => self.client(command),
            "select" => select(word(1)),
            "command" => Ok(Answer::List(Vec::new())),
            "info" => self.info(command),
            "config" => config(command),
            "reset" => {
                self.reset();
                Ok(Answer::Word("RESET"))
            }
            _ => {
                self.ends = true;
                Ok(Answer::OK)
            }
        }
    }

    async fn incr_of(&mut self, name: &[u8]) -> Outcome {
        let id = self.draw(name, async |served, due| served.next(due).await).await?;
        self.drawn += 1;
        Ok(Answer::Integer(id))
    }

    /// Draws `n` consecutive ids. Returns the last id, as in Redis: the block is `(answer - n, answer]`.
    async fn incrby(&mut self, name: &[u8], n: &[u8]) -> Outcome {
        let n = self.amount(n)?;
        let range = self.draw(name, async |served, due| served.take_in_a_row(n, due).await).await?;
        self.drawn += n;
        Ok(Answer::Integer(range.last().unwrap_or_default()))
    }

    /// Returns the first and the last id of each range.
    async fn take(&mut self, name: &[u8], n: &[u8]) -> Outcome {
        let n = self.amount(n)?;
        let ranges = self.draw(name, async |served, due| served.take(n, due).await).await?;
        self.drawn += n;
        let ends = |range: &IdRange<i64>| [range.first(), range.last()].map(Option::unwrap_or_default);
        Ok(Answer::List(ranges.ranges().iter().flat_map(ends).map(Answer::Integer).collect()))
    }

    fn amount(&self, digits: &[u8]) -> Result<u64, CommandError> {
        let number = text(digits).ok().and_then(|digits| digits.parse::<i64>().ok());
        let number = number.ok_or_else(|| CommandError::usage("value is not an integer or out of range"))?;
        let n = u64::try_from(number).ok().filter(|n| *n > 0);
        let n = n.ok_or_else(|| {
            CommandError::usage("sequences only count upwards; the increment must be at least 1")
        })?;
        self.caller()?.may_take(n)?;
        Ok(n)
    }

    /// Returns the largest id that this server handed out since it opened the sequence; `Null` if there is
    /// none.
    fn get(&self, name: &[u8]) -> Outcome {
        let name = text(name)?;
        self.caller()?.may(Right::Draw, name)?;
        let last = self.state.draws.open(name).and_then(|served| served.last());
        Ok(last.map_or(Answer::Null, |last| Answer::text(last.to_string())))
    }

    /// Returns how many of the sequences exist in the store, which is read in one call.
    async fn exists(&mut self, command: Command<'_>) -> Outcome {
        let caller = self.caller()?;
        let name = |at| {
            let name = text(command.word(at).unwrap_or_default())?;
            caller.may(Right::Draw, name)?;
            Ok(SequenceName::new(name)?)
        };
        let names = (1..command.len()).map(name).collect::<Result<Vec<_>, CommandError>>()?;
        let found = self.stored(names).await?;
        Ok(Answer::Integer(found.iter().map(|found| i64::from(found.is_some())).sum()))
    }

    async fn auth(&mut self, secret: &[u8]) -> Outcome {
        if self.state.access.is_open() {
            return Err(CommandError::usage("this server has no tokens; send commands without AUTH"));
        }
        self.authenticate(text(secret)?).await?;
        Ok(Answer::OK)
    }

    /// Answers `HELLO [2|3 [AUTH USER TOKEN] [SETNAME NAME]]`.
    async fn hello(&mut self, command: Command<'_>) -> Outcome {
        let version = match command.word(1) {
            None => None,
            Some(b"2") => Some(2),
            Some(b"3") => Some(3),
            Some(_) => {
                return Err(CommandError::Said(
                    "NOPROTO",
                    "unsupported protocol version; use 2 or 3".to_owned(),
                ));
            }
        };
        let mut at = 2;
        while at < command.len() {
            match (command.word(at + 1), command.word(at + 2)) {
                (Some(_), Some(secret)) if command.is(at, "auth") => {
                    self.auth(secret).await?;
                    at += 3;
                }
                (Some(name), _) if command.is(at, "setname") => {
                    self.rename(name)?;
                    at += 2;
                }
                _ => {
                    return Err(CommandError::usage(
                        "syntax error in HELLO: [2|3 [AUTH USER TOKEN] [SETNAME NAME]]",
                    ));
                }
            }
        }
        self.caller()?;
        self.version = version.unwrap_or(self.version);
        Ok(Answer::Map(vec![
            ("server", Answer::text("idmill")),
            ("version", Answer::text(env!("CARGO_PKG_VERSION"))),
            ("proto", Answer::Integer(self.version.into())),
            ("id", Answer::Integer(self.id)),
            ("mode", Answer::text("standalone")),
            ("role", Answer::text("master")),
            ("modules", Answer::List(Vec::new())),
        ]))
    }

    fn client(&mut self, command: Command<'_>) -> Outcome {
        let word = |at| command.word(at).unwrap_or_default();
        let known = |name: &str, words: usize| command.is(1, name) && command.len() == words;
        if known("setname", 3) {
            self.rename(word(2))?;
        } else if known("id", 2) {
            return Ok(Answer::Integer(self.id));
        } else if known("getname", 2) {
            return Ok(if self.name.is_empty() { Answer::Null } else { Answer::Bytes(self.name.clone()) });
        } else if !known("setinfo", 4) && !known("no-evict", 3) && !known("no-touch", 3) {
            return Err(CommandError::usage(
                "unknown CLIENT subcommand; use SETNAME, GETNAME, SETINFO or ID",
            ));
        }
        Ok(Answer::OK)
    }

    fn rename(&mut self, name: &[u8]) -> Result<(), CommandError> {
        if name.len() > LONGEST_NAME {
            let message =
                format!("a client's name may have at most {LONGEST_NAME} bytes, not {}", name.len());
            return Err(CommandError::usage(message));
        }
        self.name = name.to_vec();
        Ok(())
    }

    /// Libraries send `INFO` on each new connection, so the size of the answer does not depend on the number
    /// of open sequences. `INFO sequences` lists the open sequences.
    fn info(&self, command: Command<'_>) -> Outcome {
        let caller = self.caller()?;
        let mut text = format!(
            "# Server\r\nredis_version:7.0.0\r\nredis_mode:standalone\r\nidmill_version:{}\r\ntcp_port:{}\r\n\r\n# Sequences\r\n",
            env!("CARGO_PKG_VERSION"),
            self.state.port,
        );
        if !(1..command.len()).any(|at| command.is(at, "sequences")) {
            return Ok(Answer::text(text));
        }
        caller.has(Right::Observe)?;
        let open = self.state.draws.open.read();
        for (name, served) in open.iter().filter(|(name, _)| caller.may(Right::Observe, name).is_ok()) {
            let (snapshot, last) = (served.allocator.snapshot(), served.last());
            let _ = write!(
                text,
                "{name}:last={},remaining={},drawn={},rate={:.1}\r\n",
                last.map_or_else(|| "-".to_owned(), |last| last.to_string()),
                snapshot.remaining,
                snapshot.drawn,
                snapshot.rate,
            );
        }
        Ok(Answer::text(text))
    }
}

/// Returns whether a client without a token may send this command.
fn is_greeting(command: Command<'_>) -> bool {
    GREETINGS.iter().any(|greeting| command.is(0, greeting))
}

/// Returns the number of requests that a command counts as: one per name for `EXISTS`, and one for each other
/// command. The entries of `IDMILL.STORE` are counted when they are decoded.
fn requests(command: Command<'_>) -> u64 {
    if command.is(0, "exists") { (command.len() as u64).saturating_sub(1).max(1) } else { 1 }
}

/// Detects HTTP: the first line of a request ends with its version. `GET /x` without a version reads the
/// sequence `/x`.
fn is_http(command: Command<'_>) -> bool {
    let begins = |at, how: &[u8]| command.word(at).is_some_and(|word| word.starts_with(how));
    command.is(0, "host:") || begins(1, b"/") && begins(2, b"HTTP/")
}

/// Returns the command's name, if the number of its words is right.
fn known(command: Command<'_>) -> Result<&'static str, CommandError> {
    let name = command.word(0).unwrap_or_default().to_ascii_lowercase();
    let known = KNOWN.iter().find(|(known, _)| known.as_bytes() == name);
    let (name, words) = known.ok_or_else(|| unknown(&name))?;
    if !words.contains(&command.len()) {
        return Err(CommandError::usage(format!("wrong number of arguments for '{name}' command")));
    }
    Ok(name)
}

/// Answers `SELECT`. The only database is 0.
fn select(index: &[u8]) -> Outcome {
    match index {
        b"0" => Ok(Answer::OK),
        _ => Err(CommandError::usage(
            "DB index is out of range: only 0 exists; separate sequences by a prefix of their names",
        )),
    }
}

/// Answers `CONFIG GET` for the settings that `redis-benchmark` and clients read. The values state that this
/// server saves no data, because the store saves the data.
fn config(command: Command<'_>) -> Outcome {
    if !command.is(1, "get") {
        return Err(CommandError::usage(
            "unknown CONFIG subcommand; use GET, and set options in the server's configuration file, flags \
             or environment",
        ));
    }
    let known =
        ["save", "appendonly"].into_iter().filter(|known| (2..command.len()).any(|at| command.is(at, known)));
    Ok(Answer::Map(known.map(|key| (key, Answer::text(if key == "save" { "" } else { "no" }))).collect()))
}

fn unknown(name: &[u8]) -> CommandError {
    let shown: String = String::from_utf8_lossy(name).chars().take(40).collect();
    if REFUSED.split(' ').any(|refused| refused.as_bytes() == name) {
        return CommandError::usage(format!(
            "'{shown}' is refused: sequences only count upwards, and never move or expire; use `idmill \
             set`, `idmill remove` or HTTP"
        ));
    }
    let known: Vec<_> = KNOWN.iter().map(|(known, _)| known.to_ascii_uppercase()).collect();
    CommandError::usage(format!("unknown command '{shown}'; idmill supports {}", known.join(", ")))
}

impl Session {
    /// Answers a command, which has at least a name and is not `EXEC`.
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
        // `RESET` and `QUIT` end a transaction. These commands do not count towards the request rate, so they
        // work when the rate is exceeded.
        let leaves = command.is(0, "reset") || command.is(0, "quit");
        if let Some(queue) = self.queue.as_mut().filter(|_| !leaves) {
            return queue.add(command);
        }
        if let Err(refusal) = if leaves { Ok(()) } else { self.pay(requests(command)) } {
            return CommandError::Refused(refusal).answer();
        }
        self.outcome(command).await.unwrap_or_else(CommandError::answer)
    }

    fn multi(&mut self) -> Answer {
        if self.queue.is_some() {
            return Answer::error("MULTI calls can not be nested");
        }
        self.queue = Some(Queue::default());
        Answer::OK
    }

    /// For `EXEC`, counts the requests of the queued commands, and returns the commands; `None` for other
    /// commands.
    pub(super) fn exec(&mut self, command: Command<'_>) -> Option<Result<Queue, Answer>> {
        if command.len() != 1 || !command.is(0, "exec") {
            return None;
        }
        Some(match self.queue.take() {
            None => Err(Answer::error("EXEC without MULTI")),
            Some(queue) if queue.broken => {
                let message = "Transaction discarded because of previous errors: nothing was executed";
                Err(Answer::Error("EXECABORT", message.into()))
            }
            Some(queue) => match self.pay(queue.requests) {
                Ok(()) => Ok(queue),
                Err(refusal) => Err(CommandError::Refused(refusal).answer()),
            },
        })
    }
}

/// Refuses a client without a token. As in Redis, an unknown command has its own error, for example a
/// mistyped `AUTH`.
fn refused_nobody(command: Command<'_>) -> CommandError {
    let is_around = command.is(0, "multi") || command.is(0, "discard");
    let unknown = known(command).err().filter(|_| !is_around);
    unknown.unwrap_or(CommandError::Refused(Refusal::Nobody))
}

impl Queue {
    pub(super) fn add(&mut self, command: Command<'_>) -> Answer {
        let length = command.bytes().len() + 2;
        let refused = if command.is(0, "auth") || command.is(0, "hello") {
            // After AUTH in a transaction, the following commands would count towards another token.
            Some(CommandError::usage("AUTH and HELLO are refused within MULTI; send them before it"))
        } else if self.bytes.len() + length > LONGEST {
            let message = format!("the transaction is larger than {LONGEST} bytes; send EXEC more often");
            Some(CommandError::usage(message))
        } else {
            known(command).err()
        };
        if let Some(error) = refused {
            (self.broken, self.bytes) = (true, Vec::new());
            return error.answer();
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
