//! Servers with settings for a single test, and direct access to them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use idmill_conformance::free_port;
use idmill_testing::engines::Engine;
use idmill_testing::{eventually_blocking, holds};

pub(crate) async fn start(settings: &[&str]) -> Option<Engine> {
    let engine = Engine::set("redis", free_port(), settings)?;
    engine.restart().await;
    Some(engine)
}

/// A master and its replica, which has caught up.
pub(crate) async fn pair() -> Option<(Engine, Engine)> {
    let (master, replica) = (start(&[]).await?, start(&[]).await?);
    follow(&replica, &master);
    Some((master, replica))
}

/// Makes one server the replica of another, and waits until the link is up.
pub(crate) fn follow(replica: &Engine, master: &Engine) {
    let port = master.address().port().to_string();
    assert_eq!(ask(replica, &["REPLICAOF", "127.0.0.1", &port]), "+OK");
    until("the replica is linked", "up", || info(replica, "master_link_status"));
    until("the master counts the replica", ":1", || {
        ask(master, &["SET", "caught-up", "1"]);
        ask(master, &["WAIT", "1", "100"])
    });
}

/// Disconnects the replica from its master: it receives no more updates.
pub(crate) fn cut_off(replica: &Engine) {
    assert_eq!(ask(replica, &["REPLICAOF", "127.0.0.1", "1"]), "+OK");
}

pub(crate) fn promote(replica: &Engine) {
    assert_eq!(ask(replica, &["REPLICAOF", "NO", "ONE"]), "+OK");
}

pub(crate) fn info(engine: &Engine, key: &str) -> String {
    let info = ask(engine, &["INFO"]);
    let value = info.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    value.unwrap_or_default().trim().to_owned()
}

/// Waits until a value is the expected one.
pub(crate) fn until(what: &str, expected: &str, value: impl Fn() -> String) {
    eventually_blocking(what, || {
        let value = value();
        holds(value == expected, value)
    });
}

/// Waits until no append-only file is being rewritten, or is about to be.
pub(crate) fn until_rewritten(engine: &Engine) {
    let left = || ["aof_rewrite_in_progress", "aof_rewrite_scheduled"].map(|key| info(engine, key)).concat();
    until("the file is rewritten", "00", left);
}

/// Sends one command over a separate connection. Returns the raw answer, without the length of a text.
pub(crate) fn ask(engine: &Engine, words: &[&str]) -> String {
    ask_at(engine.address(), words)
}

pub(crate) fn ask_at(address: SocketAddr, words: &[&str]) -> String {
    Client::to(address).ask(words)
}

/// A connection for one test.
pub(crate) struct Client(TcpStream);

impl Client {
    pub(crate) fn to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the server listens");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        Self(stream)
    }

    pub(crate) fn send(&mut self, words: &[&str]) {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request.extend(["$", &word.len().to_string(), "\r\n", word, "\r\n"]);
        }
        self.0.write_all(request.as_bytes()).expect("is sent");
    }

    pub(crate) fn ask(&mut self, words: &[&str]) -> String {
        self.send(words);
        self.answer()
    }

    /// Nested answers are flattened into lines.
    pub(crate) fn answer(&mut self) -> String {
        let head = self.line();
        let count = || head[1..].parse::<i64>().expect("a number");
        match head.as_bytes()[0] {
            b'$' if count() >= 0 => {
                let mut text = vec![0; usize::try_from(count()).expect("small") + 2];
                self.0.read_exact(&mut text).expect("a text");
                text.truncate(text.len() - 2);
                String::from_utf8(text).expect("UTF-8")
            }
            b'*' => (0..count().max(0)).map(|_| self.answer()).collect::<Vec<_>>().join("\n"),
            _ => head,
        }
    }

    fn line(&mut self) -> String {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte).expect("an answer");
            line.push(byte[0]);
        }
        line.truncate(line.len() - 2);
        String::from_utf8(line).expect("UTF-8")
    }
}
