//! Clients for tests without an async runtime.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The time limit of an answer: a guard against hanging.
const LONG: Duration = Duration::from_secs(60);

fn connected(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the server accepts connections");
    stream.set_read_timeout(Some(LONG)).expect("a limit above zero");
    stream
}

/// A client of the Redis protocol that waits for each answer.
#[derive(Debug)]
pub struct Client(BufReader<TcpStream>);

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        Self(BufReader::new(connected(address)))
    }

    /// Sends a command. Returns the first line of the answer; `None` if the server disconnects.
    pub fn try_ask(&mut self, words: &str) -> Option<String> {
        self.0.get_mut().write_all(format!("{words}\r\n").as_bytes()).ok()?;
        let mut line = String::new();
        self.0.read_line(&mut line).ok()?;
        line.strip_suffix("\r\n").map(ToOwned::to_owned)
    }

    pub fn ask(&mut self, words: &str) -> String {
        self.try_ask(words).expect("the server answers")
    }
}

/// Sends text, and reads until the server disconnects.
pub fn talk(address: SocketAddr, words: &str) -> String {
    let mut stream = connected(address);
    stream.write_all(words.as_bytes()).expect("the server reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the server answers with text");
    answer
}

/// Sends an HTTP request, such as `GET /readyz`. Returns the whole answer. Each line of `headers` must end
/// with `\r\n`.
pub fn request(address: SocketAddr, request: &str, headers: &str, body: &str) -> String {
    let head = format!("{request} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
    talk(address, &format!("{head}Content-Length: {}\r\n{headers}\r\n{body}", body.len()))
}
