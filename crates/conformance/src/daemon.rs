//! An engine as a child process that can be killed, paused and restarted.

use std::fmt;
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::ops::Range;
use std::path::Path;
use std::pin::Pin;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use idmill::{Error, ErrorKind, Operation, Result};
use parking_lot::Mutex;
use rustix::process::Signal;
use tokio::net::TcpStream;

use super::dir::Dir;
use super::process::{LOOK, Process};

/// Bytes of an engine's output that are kept for an error message.
const KEPT_OUTPUT: usize = 8 * 1024;

/// How long to wait for the rest of an engine's output after it has ended.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The lowest and the highest port for engines, where the system does not say which ports it uses itself.
const PORTS: Range<u16> = 12_000..32_000;

/// Returns a free port on the loopback interface, a different one for each call, also of other processes on
/// this machine. The port is reserved until this process ends.
///
/// The port is below the range that the system uses for outgoing connections. So no such connection can take
/// the port while the engine is down, or connect to itself at that port.
///
/// # Panics
/// If no port is free.
pub fn free_port() -> u16 {
    // A UDP socket at the port reserves it: other processes cannot bind the socket, the engine does not need
    // it, and the system closes it with this process.
    static RESERVED: Mutex<Vec<UdpSocket>> = Mutex::new(Vec::new());
    let ports = below(std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok().as_deref());
    for _ in 0..10 * PORTS.len() {
        let port = fastrand::u16(ports.clone());
        let Ok(socket) = UdpSocket::bind((Ipv4Addr::LOCALHOST, port)) else { continue };
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            RESERVED.lock().push(socket);
            return port;
        }
    }
    panic!("none of the ports {ports:?} is free")
}

/// Ports below the range of outgoing connections, such as `32768 60999`.
fn below(outgoing: Option<&str>) -> Range<u16> {
    let lowest = outgoing.and_then(|range| range.split_whitespace().next()?.parse().ok());
    match lowest.unwrap_or(PORTS.end).min(PORTS.end) {
        // So few ports are left that a collision with an outgoing connection is the smaller risk.
        ..4_000 => PORTS,
        end => PORTS.start.min(end / 2)..end,
    }
}

type Ready = Box<dyn Fn(SocketAddr) -> Pin<Box<dyn Future<Output = Result<()>> + Send>> + Send + Sync>;

/// A server as a child process that can be started, killed, paused, and restarted at the same address over
/// the same data.
///
/// The server runs in its own process group, and every signal goes to the group and, on Linux, to forks that
/// have left the group. The server is killed on drop, and also if this process ends without a drop. Its files
/// stay: the caller owns their directory, and should delete it only after dropping the daemon.
///
/// The server's output is read, and its last 8 KiB are part of the error if a start fails.
///
/// [`kill`](Self::kill), [`pause`](Self::pause) and a drop block the thread until they are done. A call
/// usually takes milliseconds, and at most two seconds if a fork does not end.
///
/// ```no_run
/// use idmill_conformance::{Daemon, free_port};
/// use std::process::Command;
///
/// # async fn demo() -> idmill::Result<()> {
/// let port = free_port();
/// let server = Daemon::new(([127, 0, 0, 1], port).into(), move || {
///     let mut command = Command::new("memcached");
///     command.args(["-l", "127.0.0.1", "-p", &port.to_string()]);
///     command
/// });
/// server.start().await?;
/// server.pause(); // connections stay open, and nothing is answered
/// server.resume();
/// server.kill();
/// server.start().await?; // the same port again
/// # Ok(()) }
/// ```
pub struct Daemon {
    name: String,
    version: String,
    survives_kill: bool,
    address: SocketAddr,
    command: Box<dyn Fn() -> Command + Send + Sync>,
    ready: Option<Ready>,
    deadline: Duration,
    running: Mutex<Option<Running>>,
}

struct Running {
    process: Process,
    output: Arc<Mutex<Vec<u8>>>,
    readers: Vec<thread::JoinHandle<()>>,
}

impl Running {
    /// The end of the output of a killed process. A fork may have left the process group and keep the
    /// output open, so the wait is limited.
    async fn last_words(self) -> Vec<u8> {
        let begun = Instant::now();
        while !self.readers.iter().all(thread::JoinHandle::is_finished) && begun.elapsed() < LAST_WORDS {
            tokio::time::sleep(LOOK).await;
        }
        self.output.lock().clone()
    }
}

impl Daemon {
    /// Creates a server that `command` starts in the foreground and that listens on `address`. The server is
    /// not started yet.
    ///
    /// The command is built again for every start.
    pub fn new(address: SocketAddr, command: impl Fn() -> Command + Send + Sync + 'static) -> Self {
        Self {
            name: "engine".to_owned(),
            version: String::new(),
            survives_kill: true,
            address,
            command: Box::new(command),
            ready: None,
            deadline: Duration::from_secs(60),
            running: Mutex::new(None),
        }
    }

    /// Like [`new`](Self::new), for a server that keeps data: `command` also gets a directory, which is empty
    /// at the first start, the same for every start, and removed after the daemon is dropped.
    pub fn in_directory(
        address: SocketAddr,
        command: impl Fn(&Path) -> Command + Send + Sync + 'static,
    ) -> Self {
        let dir = OnceLock::new();
        Self::new(address, move || command(&dir.get_or_init(Dir::new).0))
    }

    /// Sets the name and the version for reports. Default: `engine`, without a version.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>, version: impl Into<String>) -> Self {
        (self.name, self.version) = (name.into(), version.into());
        self
    }

    /// Declares that the server loses its data on a [`kill`](Self::kill).
    #[must_use]
    pub fn forgetful(mut self) -> Self {
        self.survives_kill = false;
        self
    }

    /// Sets a probe that must succeed, besides a TCP connection, before the server counts as ready. A failed
    /// probe is retried.
    #[must_use]
    pub fn ready<F>(mut self, probe: impl Fn(SocketAddr) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        self.ready = Some(Box::new(move |address| Box::pin(probe(address))));
        self
    }

    /// Sets the time limit for a start. Default 60 s.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn version(&self) -> &str {
        &self.version
    }

    pub(super) fn survives(&self) -> bool {
        self.survives_kill
    }

    /// Returns the address on which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the process id of the child, which is also its process group; `None` while the server is down.
    pub fn pid(&self) -> Option<u32> {
        self.running.lock().as_ref().map(|running| running.process.child.id())
    }

    /// Starts the server and waits until it is ready. If the server is already running, only waits until it
    /// is ready. Cancelling does not stop the start.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`], with the end of the server's output, if the server cannot be started,
    /// ends, or is not ready by the deadline (it is then killed).
    pub async fn start(&self) -> Result<()> {
        let begun = Instant::now();
        if self.pid().is_none() {
            let running = spawn((self.command)())
                .map_err(|error| self.failed("cannot be started", &[]).because(error))?;
            *self.running.lock() = Some(running);
        }
        let mut last = None;
        // Probe at least once, even after a slow spawn: the probe's error is more precise than a timeout.
        loop {
            if let Some(status) = self.ended() {
                let output = self.take_down_and_listen().await;
                return Err(self.failed(&format!("ended ({status})"), &output));
            }
            match tokio::time::timeout(self.deadline, self.probe()).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(error)) => last = Some(error),
                Err(_) => break,
            }
            tokio::time::sleep(LOOK).await;
            if begun.elapsed() >= self.deadline {
                break;
            }
        }
        let reason = last.map_or_else(|| "no answer".to_owned(), |error| error.to_string());
        let output = self.take_down_and_listen().await;
        Err(self.failed(&format!("was not ready within {:?}: {reason}", self.deadline), &output))
    }

    async fn probe(&self) -> Result<()> {
        let connecting = TcpStream::connect(self.address).await;
        connecting.map_err(|error| Error::new(ErrorKind::Unavailable, format!("no connection: {error}")))?;
        match &self.ready {
            Some(ready) => ready(self.address).await,
            None => Ok(()),
        }
    }

    /// Ends the server with SIGKILL, even if it is paused. Returns when the process is gone. Does nothing if
    /// the server is down.
    pub fn kill(&self) {
        self.take_down();
    }

    /// Ends the server with SIGTERM, or with SIGKILL if it has not ended after `grace`. Returns when the
    /// process is gone. Cancelling skips the SIGKILL.
    pub async fn stop(&self, grace: Duration) {
        let begun = Instant::now();
        self.signal(Signal::TERM);
        // A paused process handles no other signal until it continues.
        self.signal(Signal::CONT);
        while self.pid().is_some() && self.ended().is_none() && begun.elapsed() < grace {
            tokio::time::sleep(LOOK).await;
        }
        self.take_down();
    }

    /// Pauses the server (SIGSTOP): connections stay open, and nothing is answered. Returns when the server
    /// is paused. Does nothing if the server is down. [`resume`](Self::resume) ends the pause. A kill, stop
    /// or drop also works during a pause.
    pub fn pause(&self) {
        if let Some(running) = &*self.running.lock() {
            running.process.pause();
        }
    }

    /// Resumes the server (SIGCONT). Does nothing if the server is down.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        if let Some(running) = &*self.running.lock() {
            running.process.signal(signal);
        }
    }

    fn ended(&self) -> Option<ExitStatus> {
        self.running.lock().as_mut().and_then(|running| running.process.ended())
    }

    /// Kills the server and removes it from `running`.
    fn take_down(&self) -> Option<Running> {
        let mut running = self.running.lock().take()?;
        running.process.kill();
        Some(running)
    }

    /// Like [`take_down`](Self::take_down), but returns the end of the server's output.
    async fn take_down_and_listen(&self) -> Vec<u8> {
        match self.take_down() {
            Some(running) => running.last_words().await,
            None => Vec::new(),
        }
    }

    fn failed(&self, what: &str, output: &[u8]) -> Error {
        let output = String::from_utf8_lossy(output);
        let said =
            if output.is_empty() { "It printed nothing".into() } else { format!("It printed:\n{output}") };
        let message = format!("{} at {} {what}. {said}", self.name, self.address);
        Error::new(ErrorKind::Unavailable, message).during(Operation::Connect)
    }
}

impl fmt::Debug for Daemon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Daemon")
            .field("address", &self.address)
            .field("pid", &self.pid())
            .finish_non_exhaustive()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.take_down();
    }
}

fn spawn(mut command: Command) -> std::io::Result<Running> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = Process::spawn(command)?;
    let output = Arc::default();
    let readers = [keep(process.child.stdout.take(), &output), keep(process.child.stderr.take(), &output)];
    Ok(Running { process, output, readers: readers.into_iter().flatten().collect() })
}

/// Reads the output, so that the process never blocks on it, and keeps the last 8 KiB.
fn keep(
    pipe: Option<impl Read + Send + 'static>,
    output: &Arc<Mutex<Vec<u8>>>,
) -> Option<thread::JoinHandle<()>> {
    let (mut pipe, output) = (pipe?, output.clone());
    Some(thread::spawn(move || {
        let mut buffer = [0; 1024];
        while let Ok(count @ 1..) = pipe.read(&mut buffer) {
            let mut kept = output.lock();
            kept.extend_from_slice(&buffer[..count]);
            let excess = kept.len().saturating_sub(KEPT_OUTPUT);
            kept.drain(..excess);
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_below_those_of_outgoing_connections() {
        for (outgoing, ports) in [
            (Some("32768\t60999\n"), 12_000..32_000),
            (Some("16000 65000"), 8_000..16_000),
            (Some("1024 65535"), PORTS),
            (Some("nonsense"), PORTS),
            (None, PORTS),
        ] {
            assert_eq!(below(outgoing), ports, "{outgoing:?}");
        }
    }

    #[test]
    fn returned_port_stays_reserved_for_this_process() {
        let port = (Ipv4Addr::LOCALHOST, free_port());
        assert!(TcpListener::bind(port).is_ok(), "the engine can listen");
        let reserved = UdpSocket::bind(port).unwrap_err();
        assert_eq!(reserved.kind(), std::io::ErrorKind::AddrInUse, "another process does not get the port");
    }
}
