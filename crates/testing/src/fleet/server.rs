//! A server as a process: signals, what it logs, and its memory.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// How long a start or an end may take: a guard against hanging.
const LONG: Duration = Duration::from_secs(120);
/// So many lines of the log are kept.
const KEPT: usize = 4000;

/// Numbers that tell processes apart, and nothing else.
static STARTED: AtomicU32 = AtomicU32::new(0);

/// A server that runs, killed when it is dropped.
#[derive(Debug)]
pub struct Server {
    process: Child,
    /// Which process this is: one that is started again is another.
    pub number: u32,
    pub resp: SocketAddr,
    pub http: SocketAddr,
    log: Arc<Mutex<Log>>,
    reader: Option<thread::JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Log {
    lines: VecDeque<String>,
    /// What no log may say.
    forbidden: Vec<String>,
    /// Lines that say it all the same.
    bad: Vec<String>,
}

/// What became of the ids of a server that was told to end, as it says itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub granted: u64,
    pub handed_out: u64,
    pub given_back: u64,
    pub gaps: u64,
    /// The store was asked for these, and did not answer.
    pub unknown: u64,
    /// Of those that were handed out.
    pub unread: u64,
    pub skipped: u64,
}

impl Totals {
    /// Handed out to clients that then had them, where they read all that was written.
    pub fn had(&self) -> u64 {
        self.handed_out - self.unread - self.skipped
    }

    pub fn plus(self, other: Self) -> Self {
        Self {
            granted: self.granted + other.granted,
            handed_out: self.handed_out + other.handed_out,
            given_back: self.given_back + other.given_back,
            gaps: self.gaps + other.gaps,
            unknown: self.unknown + other.unknown,
            unread: self.unread + other.unread,
            skipped: self.skipped + other.skipped,
        }
    }
}

impl Server {
    /// Starts `idmill serve --json` over both protocols.
    ///
    /// # Panics
    /// If it ends before it listens.
    pub fn start(command: &mut Command) -> Self {
        Self::try_start(command, &[]).unwrap_or_else(|said| panic!("it does not start: {said}"))
    }

    /// The same; what it logged where it ends before it listens. Nothing that is forbidden may be in the log.
    pub fn try_start(command: &mut Command, forbidden: &[&str]) -> Result<Self, String> {
        let mut process = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program is there");
        let forbidden = forbidden.iter().map(ToString::to_string).chain(["panicked".to_owned()]).collect();
        let log = Arc::new(Mutex::new(Log { forbidden, ..Log::default() }));
        let (sender, addresses) = channel();
        let reader = keep(process.stderr.take().expect("piped"), log.clone(), sender);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        // The reader ends with the process, and the channel with the reader.
        let (resp, http) = (addresses.recv_timeout(LONG), addresses.recv_timeout(LONG));
        let (Ok(resp), Ok(http)) = (resp, http) else {
            let _ = process.kill();
            let _ = process.wait();
            let _ = reader.join();
            return Err(log.lock().lines.make_contiguous().join("\n"));
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

    /// SIGSTOP; returns once it stands.
    pub fn pause(&self) {
        self.tell("STOP");
        let (begun, stat) = (Instant::now(), format!("/proc/{}/stat", self.pid()));
        let stands = |text: String| text.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'));
        while !std::fs::read_to_string(&stat).map_or(true, stands) && begun.elapsed() < LONG {
            thread::sleep(Duration::from_millis(1));
        }
    }

    pub fn resume(&self) {
        self.tell("CONT");
    }

    /// SIGKILL; what it had logged.
    pub fn kill(mut self) -> String {
        let _ = self.process.kill();
        self.gone().1
    }

    /// SIGTERM, and the end: the exit code, and what it had logged.
    ///
    /// # Panics
    /// If it does not end, or says what no log may say.
    pub fn end(mut self) -> (Option<i32>, String) {
        self.tell("TERM");
        self.gone()
    }

    /// SIGTERM, and an end that is orderly: what became of its ids.
    ///
    /// # Panics
    /// If it is not.
    pub fn end_in_order(self) -> Totals {
        let (code, log) = self.end();
        assert_eq!(code, Some(0), "{log}");
        let ended = log.lines().rev().find(|line| line.contains("\"message\":\"ended\""));
        let ended = ended.unwrap_or_else(|| panic!("it did not say what became of its ids: {log}"));
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
            skipped: field("skipped"),
        };
        assert_eq!(totals.granted, totals.handed_out + totals.given_back + totals.gaps, "{totals:?}");
        totals
    }

    fn gone(&mut self) -> (Option<i32>, String) {
        let begun = Instant::now();
        let status = loop {
            match self.process.try_wait().expect("our child") {
                Some(status) => break status,
                None if begun.elapsed() > LONG => panic!("it does not end: {}", self.log()),
                None => thread::sleep(Duration::from_millis(2)),
            }
        };
        let _ = self.reader.take().map(thread::JoinHandle::join);
        self.nothing_bad();
        (status.code(), self.log())
    }

    /// Whether it runs.
    pub fn runs(&mut self) -> bool {
        self.process.try_wait().is_ok_and(|status| status.is_none())
    }

    /// The last of what it logged so far.
    pub fn log(&self) -> String {
        self.log.lock().lines.make_contiguous().join("\n")
    }

    /// # Panics
    /// If it panicked, or logged what it must not.
    pub fn nothing_bad(&self) {
        let log = self.log.lock();
        assert!(log.bad.is_empty(), "what no log may say: {:#?}", log.bad);
    }

    /// The memory that it has, in KiB; 0 where the system does not say.
    pub fn rss(&self) -> u64 {
        self.memory("VmRSS:")
    }

    /// The most that it ever had.
    pub fn peak(&self) -> u64 {
        self.memory("VmHWM:")
    }

    /// Returns once it has nothing to do: it uses no more of a processor than its timers take.
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
        panic!("it is still at it");
    }

    /// Hundredths of a second that it used of a processor.
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
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The number that the text begins with.
fn digits(text: &str) -> Option<u64> {
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

/// Reads what it logs, so that it never waits for a reader.
fn keep(stderr: ChildStderr, log: Arc<Mutex<Log>>, addresses: Sender<SocketAddr>) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let mut lines = BufReader::new(stderr);
        let mut bytes = Vec::new();
        while lines.read_until(b'\n', &mut bytes).is_ok_and(|read| read > 0) {
            let line = String::from_utf8_lossy(&bytes).trim_end().to_owned();
            bytes.clear();
            if line.contains(" is served\"") {
                let address = line.split_once("\"address\":\"").and_then(|(_, rest)| rest.split_once('"'));
                let _ = addresses.send(address.expect("where").0.parse().expect("an address"));
            }
            let mut log = log.lock();
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
