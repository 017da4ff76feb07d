//! A running `idmill serve`, and its log.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::Place;
use idmill_testing::eventually_blocking;

/// Timeout after which a hanging test fails.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// `idmill serve` at free ports, with a verbose log in a file. The server ends with the test.
#[derive(Debug)]
pub(crate) struct Served {
    process: Child,
    log: PathBuf,
    pub(crate) resp: String,
    pub(crate) http: String,
}

impl Served {
    pub(crate) fn start(place: &Place, options: &[&str], variables: &[(&str, &str)]) -> Self {
        let log = place.path().join("log");
        let always = ["serve", "-vv", "--resp=127.0.0.1:0", "--http=127.0.0.1:0"];
        let mut command = place.command(&[&always[..], options].concat());
        command.envs(variables.iter().copied()).stderr(Stdio::from(fs::File::create(&log).unwrap()));
        let process = command.spawn().unwrap();
        let mut served = Self { process, log, resp: String::new(), http: String::new() };
        served.resp = address(&served.until_logged("Redis protocol is served"));
        served.http = address(&served.until_logged("HTTP is served"));
        served
    }

    /// Returns the whole log.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// Waits for the first line of the log that contains `what`.
    pub(crate) fn until_logged(&self, what: &str) -> String {
        eventually_blocking(&format!("{what:?} is logged"), || {
            let log = self.log();
            let line = log.split_inclusive('\n').find(|line| line.contains(what) && line.ends_with('\n'));
            line.map(|line| line.trim_end().to_owned()).ok_or_else(|| log.clone())
        })
    }

    /// Sends an HTTP request and returns the answer. Each line of `headers` must end with `\r\n`.
    pub(crate) fn request(&self, method: &str, path: &str, headers: &str, body: &str) -> String {
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
        );
        talk(&self.http, &request)
    }

    /// Ends the server with SIGTERM, and returns the log.
    pub(crate) fn end(mut self) -> String {
        let told = Command::new("kill").arg(self.process.id().to_string()).status().unwrap();
        assert!(told.success() && self.process.wait().unwrap().success());
        self.log()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Extracts the address from a log line, as text or JSON.
fn address(line: &str) -> String {
    let rest = &line[line.find("127.0.0.1:").unwrap()..];
    rest.chars().take_while(|c| c.is_ascii_digit() || ".:".contains(*c)).collect()
}

/// Sends words, and reads until the server disconnects.
pub(crate) fn talk(address: &str, words: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.write_all(words.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
