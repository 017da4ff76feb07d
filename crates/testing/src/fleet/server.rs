//! A server as a process: signals, its log, and its memory.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::{eventually_blocking, holds};

/// The time limit for a start or an end: a guard against hanging.
const LONG: Duration = Duration::from_secs(120);
/// Maximum number of log lines that are kept.
const KEPT: usize = 4000;

/// The next server's number, only an identifier.
static STARTED: AtomicU32 = AtomicU32::new(0);

/// A running server, killed on drop.
#[derive(Debug)]
pub struct Server {
    process: Child,
    /// The number of this process. A restarted server has another one.
    pub number: u32,
    pub resp: SocketAddr,
    pub http: SocketAddr,
    log: Arc<Log>,
    reader: Option<thread::JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Log {
    /// Tests may leave the log unread.
    is_unread: AtomicBool,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    lines: VecDeque<String>,
    /// Texts that no log may contain.
    forbidden: Vec<String>,
    /// Lines that contain a forbidden text.
    bad: Vec<String>,
}

/// The totals of a server's ids, from its log after an orderly end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub granted: u64,
    pub handed_out: u64,
    pub given_back: u64,
    pub gaps: u64,
    /// Ids of reserves with an unknown outcome.
    pub unknown: u64,
    /// Included in `handed_out`.
    pub unread: u64,
}

impl Totals {
    /// Ids that clients received, if they read everything that was written.
    pub fn had(&self) -> u64 {
        self.handed_out - self.unread
    }

    pub fn plus(self, other: Self) -> Self {
        Self {
            granted: self.granted + other.granted,
            handed_out: self.handed_out + other.handed_out,
            given_back: self.given_back + other.given_back,
            gaps: self.gaps + other.gaps,
            unknown: self.unknown + other.unknown,
            unread: self.unread + other.unread,
        }
    }
}

impl Server {
    /// Starts `idmill serve` with both protocols.
    ///
    /// # Panics
    /// If the server ends before it listens.
    pub fn start(command: &mut Command) -> Self {
        Self::try_start(command, &[]).unwrap_or_else(|said| panic!("the server did not start: {said}"))
    }

    /// Like [`start`](Self::start), but returns the server's log if the server ends before it listens. The
    /// log must not contain a forbidden text.
    pub fn try_start(command: &mut Command, forbidden: &[&str]) -> Result<Self, String> {
        let mut process = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program is there");
        let forbidden = forbidden.iter().map(ToString::to_string).chain(["panicked".to_owned()]).collect();
        let kept = Mutex::new(Kept { forbidden, ..Kept::default() });
        let log = Arc::new(Log { kept, ..Log::default() });
        let (sender, addresses) = channel();
        let reader = keep(process.stderr.take().expect("piped"), log.clone(), sender);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        // The channel closes when the process ends, so these calls then return.
        let (resp, http) = (addresses.recv_timeout(LONG), addresses.recv_timeout(LONG));
        let (Ok(resp), Ok(http)) = (resp, http) else {
            let _ = process.kill();
            let _ = process.wait();
            let _ = reader.join();
            return Err(log.kept.lock().lines.make_contiguous().join("\n"));
        };
        Ok(Self { process, number, resp, http, log, reader: Some(reader) })
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Sends a signal, such as `TERM`.
    pub fn tell(&self, signal: &str) {
        let told = Command::new("kill").args(["-s", signal, &self.pid().to_string()]).status();
        assert!(told.expect("kill(1) runs").success());
    }

    /// Sends SIGSTOP. Returns once the process has stopped.
    pub fn pause(&self) {
        self.tell("STOP");
        let stat = format!("/proc/{}/stat", self.pid());
        let stands = |text: &String| text.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'));
        eventually_blocking("the server is paused", || {
            let seen = std::fs::read_to_string(&stat);
            holds(seen.as_ref().map_or(true, stands), seen)
        });
    }

    pub fn resume(&self) {
        self.tell("CONT");
    }

    /// Sends SIGKILL. Returns the server's log.
    pub fn kill(mut self) -> String {
        let _ = self.process.kill();
        self.wait().1
    }

    /// Sends SIGTERM and waits. Returns the exit code and the server's log.
    ///
    /// # Panics
    /// If the server does not end, or its log contains a forbidden text.
    pub fn end(self) -> (Option<i32>, String) {
        self.tell("TERM");
        self.wait()
    }

    /// Sends SIGTERM and expects an orderly end. Returns the totals of the server's ids.
    ///
    /// # Panics
    /// If the end is not orderly.
    pub fn end_in_order(self) -> Totals {
        let (code, log) = self.end();
        assert_eq!(code, Some(0), "{log}");
        let ended = log.lines().rev().find(|line| line.contains("\"message\":\"ended\""));
        let ended = ended.unwrap_or_else(|| panic!("the log has no `ended` line: {log}"));
        let field = |name: &str| {
            let (_, rest) = ended.split_once(&format!("\"{name}\":")).expect("the field is there");
            digits(rest).expect("a number")
        };
        let totals = Totals {
            granted: field("granted"),
            handed_out: field("handed_out"),
            given_back: field("given_back"),
            gaps: field("gaps"),
            unknown: field("unknown"),
            unread: field("unread"),
        };
        assert_eq!(totals.granted, totals.handed_out + totals.given_back + totals.gaps, "{totals:?}");
        totals
    }

    /// Waits until the server has ended by itself. Returns the exit code and the server's log.
    ///
    /// # Panics
    /// As [`end`](Self::end).
    pub fn wait(mut self) -> (Option<i32>, String) {
        let begun = Instant::now();
        let status = loop {
            match self.process.try_wait().expect("our child") {
                Some(status) => break status,
                None if begun.elapsed() > LONG => panic!("the server did not exit: {}", self.log()),
                None => thread::sleep(Duration::from_millis(2)),
            }
        };
        let _ = self.reader.take().map(thread::JoinHandle::join);
        self.nothing_bad();
        (status.code(), self.log())
    }

    /// Returns whether the server is running.
    pub fn runs(&mut self) -> bool {
        self.process.try_wait().is_ok_and(|status| status.is_none())
    }

    /// Returns the end of the server's log so far.
    pub fn log(&self) -> String {
        self.log.kept.lock().lines.make_contiguous().join("\n")
    }

    /// Waits for the first line of the log that contains this text.
    pub fn until_logged(&self, text: &str) -> String {
        eventually_blocking(&format!("{text:?} is logged"), || {
            let log = self.log();
            log.lines().find(|line| line.contains(text)).map(ToOwned::to_owned).ok_or_else(|| log.clone())
        })
    }

    /// Leaves the log unread from the next line on, or reads it again.
    pub fn leave_log_unread(&self, is_unread: bool) {
        self.log.is_unread.store(is_unread, Ordering::Relaxed);
    }

    /// # Panics
    /// If the server panicked, or logged a forbidden text.
    pub fn nothing_bad(&self) {
        let log = self.log.kept.lock();
        assert!(log.bad.is_empty(), "the log has forbidden lines: {:#?}", log.bad);
    }

    /// Returns the current memory of the process, in KiB; 0 if the system does not report it.
    pub fn rss(&self) -> u64 {
        self.memory("VmRSS:")
    }

    /// Returns the peak memory of the process, in KiB.
    pub fn peak(&self) -> u64 {
        self.memory("VmHWM:")
    }

    /// Returns once the server is idle: it uses only the processor time of its timers.
    pub fn rests(&self) {
        let (begun, mut before) = (Instant::now(), self.ticks());
        while begun.elapsed() < LONG {
            thread::sleep(Duration::from_millis(500));
            let now = self.ticks();
            if now <= before + 2 {
                return;
            }
            before = now;
        }
        panic!("the server did not become idle");
    }

    /// Returns the processor time of the process, in hundredths of a second.
    fn ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap_or_default();
        let fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest).split(' ');
        fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum()
    }

    fn memory(&self, what: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix(what));
        line.and_then(|rest| digits(rest.trim_start())).unwrap_or(0)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The number at the beginning of the text.
fn digits(text: &str) -> Option<u64> {
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

/// Reads the server's log, so that the process never blocks on it.
fn keep(stderr: ChildStderr, log: Arc<Log>, addresses: Sender<SocketAddr>) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let mut lines = BufReader::new(stderr);
        let mut bytes = Vec::new();
        while lines.read_until(b'\n', &mut bytes).is_ok_and(|read| read > 0) {
            let line = String::from_utf8_lossy(&bytes).trim_end().to_owned();
            bytes.clear();
            if line.contains(" is served") {
                let _ = addresses.send(address(&line));
            }
            while log.is_unread.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(5));
            }
            let mut log = log.kept.lock();
            if log.forbidden.iter().any(|word| line.contains(word)) {
                log.bad.push(line.clone());
            }
            if log.lines.len() == KEPT {
                log.lines.pop_front();
            }
            log.lines.push_back(line);
        }
    })
}

/// The address in a line of the log, which is text or JSON.
fn address(line: &str) -> SocketAddr {
    let (_, rest) = line.split_once("127.0.0.1:").expect("an address of this machine");
    let port = digits(rest).and_then(|port| u16::try_from(port).ok()).expect("a port");
    SocketAddr::from(([127, 0, 0, 1], port))
}
