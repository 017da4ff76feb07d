//! One connection to one server, shared by all callers of a store or a window.
//!
//! Nothing is resent after it may have run. Answers are verified: each script returns a nonce that was sent
//! with it, so an answer to another request is detected.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{Pipeline, RedisConnectionInfo, Value, from_redis_value, from_redis_value_ref};
use idmill::{Error, ErrorKind, Operation, Result};
use idmill_kit::{SharedConnection, no_answer};
use idmill_tls::client::{Advice, trusting};
use idmill_tls::resp::{ErrorReply, Line, broken, code, garbled};
use tokio::time::{Instant, timeout, timeout_at};

use super::classify::{Asked, Fault, REDIS};
use super::server_url::ServerUrl;
use super::verify::{Demands, unverified, verify};

const ADVICE: Advice = Advice { without: "redis://", certificate: None };
/// Pause between attempts while a server loads its data.
const LOADING: Duration = Duration::from_millis(20);

/// Settings of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) url: ServerUrl,
    pub(crate) demands: Demands,
    /// Timeout of a call, including its wait for a connection.
    pub(crate) timeout: Duration,
    /// Number of replicas that must acknowledge a change.
    pub(crate) replicas: u32,
    pub(crate) scripts: &'static [&'static str],
}

/// A script to run.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// One of [`Terms::scripts`].
    pub(crate) script: &'static str,
    pub(crate) keys: Vec<String>,
    /// Arguments after the nonce.
    pub(crate) arguments: Vec<String>,
    pub(crate) asked: Asked,
}

/// The script's answer after the nonce.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) words: Vec<String>,
}

/// The connection: opened on first use, and reopened after a failure.
pub(crate) struct Link {
    pub(crate) terms: Terms,
    live: SharedConnection<Live>,
    nonce: AtomicU64,
    round_trips: AtomicU64,
}

struct Live {
    line: Line,
    /// SHA-1 hashes of the scripts, as returned by the server.
    hashes: Vec<String>,
}

impl Answer {
    /// The word that names the result.
    pub(crate) fn word(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }

    /// The number at this index.
    pub(crate) fn number(&self, index: usize) -> Result<u64, Fault> {
        let number = self.words.get(index).and_then(|word| word.parse().ok());
        number.ok_or_else(|| self.garbled())
    }

    pub(crate) fn garbled(&self) -> Fault {
        garbled(format_args!("{:?}", self.words))
    }

    /// Whether replicas must acknowledge the script's write. A claim needs no acknowledgement, since it
    /// grants no ids.
    fn wrote(&self) -> bool {
        matches!(self.word(), "done" | "granted" | "ids")
    }
}

impl Link {
    pub(crate) fn new(terms: Terms) -> Self {
        Self {
            terms,
            live: SharedConnection::default(),
            nonce: AtomicU64::new(fastrand::u64(..)),
            round_trips: AtomicU64::new(0),
        }
    }

    /// Number of round trips so far.
    pub(crate) fn round_trips(&self) -> u64 {
        self.round_trips.load(Ordering::Relaxed)
    }

    /// Connects if necessary, and checks the server.
    pub(crate) async fn greet(&self) -> Result<()> {
        self.connected(self.deadline()).await.map(drop)
    }

    /// Deadline of a call that begins now.
    fn deadline(&self) -> Instant {
        Instant::now() + self.terms.timeout
    }

    /// Converts a fault to this crate's error.
    pub(crate) fn failed(&self, fault: &Fault, asked: Asked) -> Error {
        REDIS.failed(fault, asked, &self.terms.url.server)
    }

    /// Runs one script once.
    pub(crate) async fn run(&self, call: Call) -> Result<Answer, Fault> {
        let answer = self.run_all(&[call]).await.pop();
        answer.unwrap_or_else(|| Err(garbled("no answer")))
    }

    /// Returns about `count` members of a set from this cursor on, and the next cursor: "0" at the end.
    pub(crate) async fn members(
        &self,
        key: &str,
        cursor: &str,
        count: i32,
    ) -> Result<(String, Vec<String>), Fault> {
        let deadline = self.deadline();
        let live = self.connected(deadline).await.map_err(Fault::NotSent)?;
        let mut pipeline = Pipeline::with_capacity(1);
        pipeline.cmd("SSCAN").arg(key).arg(cursor).arg("COUNT").arg(count);
        let value =
            self.send(&live, &pipeline, 1, deadline).await?.pop().ok_or_else(|| garbled("no answer"))?;
        answered(value)
            .and_then(|value| scanned(&value))
            .inspect_err(|fault| self.discard_after(&live, fault))
    }

    /// Runs scripts in one round trip, each once. Only a script that the server did not have loaded, and so
    /// did not run, is resent.
    pub(crate) async fn run_all(&self, calls: &[Call]) -> Vec<Result<Answer, Fault>> {
        let deadline = self.deadline();
        let (live, mut answers) = self.try_all(calls, deadline).await;
        let unknown =
            |answer: &Result<Answer, Fault>| matches!(answer, Err(fault) if code(fault) == "NOSCRIPT");
        let again: Vec<usize> = (0..answers.len()).filter(|index| unknown(&answers[*index])).collect();
        if !again.is_empty() {
            // The next connection loads the scripts. Another caller may have replaced this one by now.
            live.inspect(|live| self.live.discard(live));
            let calls: Vec<Call> = again.iter().map(|index| calls[*index].clone()).collect();
            for (index, answer) in again.into_iter().zip(self.try_all(&calls, deadline).await.1) {
                answers[index] = answer;
            }
        }
        answers
    }

    /// Returns the answers, and the connection that they came over.
    async fn try_all(
        &self,
        calls: &[Call],
        deadline: Instant,
    ) -> (Option<Arc<Live>>, Vec<Result<Answer, Fault>>) {
        let live = match self.connected(deadline).await {
            Ok(live) => live,
            Err(error) => return (None, vec![Err(Fault::NotSent(error)); calls.len()]),
        };
        let nonces: Vec<u64> = calls.iter().map(|_| self.nonce.fetch_add(1, Ordering::Relaxed)).collect();
        let mut pipeline = Pipeline::with_capacity(calls.len() + 1);
        for (call, nonce) in calls.iter().zip(&nonces) {
            let at = self.terms.scripts.iter().position(|script| *script == call.script);
            let hash = &live.hashes[at.expect("the connection has the script of each call")];
            let evaluated = pipeline.cmd("EVALSHA").arg(hash).arg(call.keys.len());
            evaluated.arg(&call.keys).arg(*nonce).arg(&call.arguments);
        }
        let is_write = calls.iter().any(|call| call.asked == Asked::Write);
        let replicas = Some(self.terms.replicas).filter(|replicas| *replicas > 0 && is_write);
        if let Some(replicas) = replicas {
            // Shorter than the timeout for the answer.
            let timeout = (deadline - Instant::now()) * 3 / 4;
            pipeline.cmd("WAIT").arg(replicas).arg(timeout.as_millis().max(1).to_string());
        }
        let replies = calls.len() + usize::from(replicas.is_some());
        let sent = self.send(&live, &pipeline, replies, deadline).await;
        let read = |values| {
            read_all(values, &nonces, replicas).inspect_err(|fault| self.discard_after(&live, fault))
        };
        let answers = sent.and_then(read).unwrap_or_else(|fault| vec![Err(fault); calls.len()]);
        (Some(live), answers)
    }

    /// Sends commands once. After a failure, discards the connection, unless the call had little time left:
    /// if it waited long for the connection, its timeout does not show a dead connection.
    async fn send(
        &self,
        live: &Arc<Live>,
        pipeline: &Pipeline,
        answers: usize,
        deadline: Instant,
    ) -> Result<Vec<Value>, Fault> {
        self.round_trips.fetch_add(1, Ordering::Relaxed);
        let (mut connection, began) = (live.line.connection.clone(), Instant::now());
        let sent = timeout_at(deadline, connection.send_packed_commands(pipeline, 0, answers)).await;
        let fault = match sent {
            Ok(Ok(values)) if values.len() == answers => return Ok(values),
            Ok(Ok(values)) => garbled(format_args!("{} replies instead of {answers}", values.len())),
            Ok(Err(error)) => broken(&error),
            Err(_) if began.elapsed() < self.terms.timeout / 2 => {
                return Err(Fault::silent(self.terms.timeout));
            }
            Err(_) => Fault::silent(self.terms.timeout),
        };
        self.discard_after(live, &fault);
        Err(fault)
    }

    /// Closes a connection that can no longer be used. Calls in progress on it have an unknown outcome.
    fn discard_after(&self, live: &Arc<Live>, fault: &Fault) {
        if fault.server().is_none() {
            live.line.close();
            self.live.discard(live);
        }
    }

    async fn connected(&self, deadline: Instant) -> Result<Arc<Live>> {
        let connect = || {
            let terms = self.terms.clone();
            async move {
                let opened = timeout(terms.timeout, terms.open()).await;
                opened.unwrap_or_else(|_| Err(Error::new(ErrorKind::Unavailable, no_answer(terms.timeout))))
            }
        };
        let live = self.live.open(deadline, |live| !live.line.is_closed(), connect).await;
        let server = &self.terms.url.server;
        live.map_err(|error| {
            Error::new(error.kind(), format!("redis at {server}: {error}")).during(Operation::Connect)
        })
    }
}

impl Terms {
    async fn open(&self) -> Result<Live> {
        let line = self.shake_hands().await?;
        let mut connection = line.connection.clone();
        loop {
            match self.introduce(&mut connection).await {
                // The server has just started: until its data is loaded, it rejects `SCRIPT LOAD`.
                Err(fault) if code(&fault) == "LOADING" => tokio::time::sleep(LOADING).await,
                Err(Fault::NotSent(error)) => return Err(error),
                Err(fault) => return Err(REDIS.refused(&fault)),
                Ok(hashes) => return Ok(Live { line, hashes }),
            }
        }
    }

    /// Checks the server and loads the scripts. Returns their hashes.
    async fn introduce(&self, connection: &mut MultiplexedConnection) -> Result<Vec<String>, Fault> {
        let mut questions = Pipeline::new();
        questions.cmd("INFO").cmd("CONFIG").arg("GET").arg("*append*");
        for script in self.scripts {
            questions.cmd("SCRIPT").arg("LOAD").arg(*script);
        }
        let answers = connection.send_packed_commands(&questions, 0, 2 + self.scripts.len()).await;
        let mut answers =
            answers.map_err(|error| Fault::NotSent(REDIS.not_connected(&error)))?.into_iter().map(answered);
        let mut next = || answers.next().unwrap_or_else(|| Err(garbled("a reply is missing")));
        let (info, config) = (text(next()?), next());
        let demands = self.demands;
        match config {
            Err(fault) if demands == Demands::Disk => verify(Demands::Keeps, &info, &HashMap::new())
                .and_then(|()| Err(unverified(&fault.to_string()))),
            config => {
                let config = config.ok().and_then(|config| from_redis_value(config).ok());
                verify(demands, &info, &config.unwrap_or_default())
            }
        }
        .map_err(Fault::NotSent)?;
        self.scripts.iter().map(|_| next().map(text)).collect()
    }

    async fn shake_hands(&self) -> Result<Line> {
        let ServerUrl { authority, tls, server, database } = &self.url;
        let mut login = RedisConnectionInfo::default().set_skip_set_lib_name().set_db((*database).into());
        if let Some(password) = &authority.password {
            login = login.set_password(password);
        }
        if let Some(user) = &authority.user {
            login = login.set_username(user);
        }
        let (ca, on) = (tls.ca.clone(), tls.is_on());
        let config = move || Ok(trusting(ca.as_deref(), "ca")?.with_no_client_auth());
        REDIS.open(server, on.then_some((config, ADVICE)), &login).await
    }
}

fn answered(value: Value) -> Result<Value, Fault> {
    match value {
        Value::ServerError(error) => Err(ErrorReply::from(&error).into()),
        value => Ok(value),
    }
}

/// Reads the answers. With `replicas`, the last reply is the number of replicas that acknowledged the writes.
fn read_all(
    mut values: Vec<Value>,
    nonces: &[u64],
    replicas: Option<u32>,
) -> Result<Vec<Result<Answer, Fault>>, Fault> {
    let missing = match replicas.and_then(|wanted| Some((values.pop()?, wanted))) {
        Some((Value::Int(known), wanted)) if known < i64::from(wanted) => Some((known, wanted)),
        None | Some((Value::Int(_), _)) => None,
        // WAIT runs after the scripts, so their effects stand.
        Some((Value::ServerError(_), wanted)) => Some((0, wanted)),
        Some((other, _)) => return Err(garbled(format_args!("{other:?}"))),
    };
    let answers = values.into_iter().zip(nonces).map(|(value, nonce)| match value {
        Value::ServerError(error) => Ok(Err(ErrorReply::from(&error).into())),
        value => read(&value, *nonce).map(|answer| match missing {
            Some((known, wanted)) if answer.wrote() => {
                Err(Fault::lost(format!("{known} of {wanted} replicas confirmed the write")))
            }
            _ => Ok(answer),
        }),
    });
    // One mismatched answer makes all of them unreliable.
    answers.collect()
}

/// Decodes the next cursor and some members; bytes that are not UTF-8 are replaced.
fn scanned(value: &Value) -> Result<(String, Vec<String>), Fault> {
    let read = from_redis_value_ref::<(String, Vec<Vec<u8>>)>(value);
    let (cursor, members) = read.map_err(|_| garbled(format_args!("{value:?}")))?;
    Ok((cursor, members.iter().map(|member| String::from_utf8_lossy(member).into_owned()).collect()))
}

fn read(value: &Value, nonce: u64) -> Result<Answer, Fault> {
    let mut words = from_redis_value_ref::<Vec<String>>(value).unwrap_or_default();
    if words.first() != Some(&nonce.to_string()) {
        return Err(garbled(format_args!("{value:?}")));
    }
    words.remove(0);
    Ok(Answer { words })
}

/// Returns the text of a reply; empty for any other reply.
fn text(value: Value) -> String {
    from_redis_value(value).unwrap_or_default()
}

// Omits the terms, which contain a password.
idmill_kit::debug_fields!(Link | link | server = link.terms.url.server);

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(nonce: &str, word: &str) -> Value {
        Value::Array([nonce, word].map(|text| Value::BulkString(text.into())).to_vec())
    }

    /// If the callers did not share one attempt, each would wait for its own attempt to time out.
    #[tokio::test(start_paused = true)]
    async fn callers_wait_one_timeout_for_a_silent_server() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let timeout = Duration::from_secs(10);
        let terms = Terms {
            url: ServerUrl::at(&silent.local_addr().unwrap().to_string()).unwrap(),
            demands: Demands::Keeps,
            timeout,
            replicas: 0,
            scripts: &[],
        };
        let (link, began) = (Link::new(terms), Instant::now());
        let (first, second, third) = tokio::join!(link.greet(), link.greet(), link.greet());
        for outcome in [first, second, third] {
            assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Unavailable);
        }
        assert!(began.elapsed() < timeout * 3 / 2, "{:?}", began.elapsed());
    }

    #[test]
    fn mismatched_reply_is_rejected() {
        let right = || vec![answer("7", "granted"), answer("8", "granted")];
        let answers = read_all(right(), &[7, 8], None).unwrap();
        assert!(answers.iter().all(|answer| answer.as_ref().is_ok_and(|answer| answer.word() == "granted")));
        for values in [
            vec![answer("8", "granted"), answer("7", "granted")],
            vec![answer("7", "granted"), answer("9", "granted")],
            vec![answer("7", "granted"), Value::Nil],
            vec![answer("7", "granted"), Value::Array(vec![Value::Nil])],
            vec![answer("7", "granted"), Value::Okay],
        ] {
            let fault = read_all(values, &[7, 8], None).unwrap_err();
            assert!(matches!(fault, Fault::Lost(_)), "{fault}");
        }
    }

    #[test]
    fn last_reply_reports_the_replica_count() {
        let with = |last| read_all(vec![answer("7", "granted"), last], &[7], Some(2));
        let known = |last| with(last).unwrap().remove(0).is_ok();
        assert!(known(Value::Int(2)) && known(Value::Int(3)) && !known(Value::Int(1)));
        assert!(with(Value::Okay).is_err());
        for word in ["exists", "missing", "changed", "exhausted", "promoted", "sequence"] {
            let answers = read_all(vec![answer("7", word), Value::Int(0)], &[7], Some(2));
            assert!(answers.unwrap().remove(0).is_ok(), "{word} wrote nothing");
        }
        assert!(read_all(vec![answer("7", "granted")], &[7], None).unwrap().remove(0).is_ok());
    }
}
