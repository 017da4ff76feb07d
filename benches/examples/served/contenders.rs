//! The measured servers. Each is a separate process, which is killed when its `Running` is dropped.

use std::env;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::post;
use tempfile::TempDir;

/// The time limit until a process listens.
const TO_START: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contender {
    /// Over an SQLite file, which is synced before ids are handed out.
    Idmill,
    /// Nothing is written to disk: the minimum cost of a counter in Redis.
    RedisInMemory,
    /// Each write is synced before the reply, as unique ids require.
    RedisSynced,
    /// One constant answer, from the HTTP library that idmill uses.
    Hello,
}

impl Contender {
    pub(crate) const ALL: &[Self] = &[Self::Idmill, Self::RedisInMemory, Self::RedisSynced, Self::Hello];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Idmill => "idmill serve, over SQLite",
            Self::RedisInMemory => "Redis, nothing saved",
            Self::RedisSynced => "Redis, each write synced",
            Self::Hello => "a constant reply, same HTTP library",
        }
    }

    /// Returns a short name, for narrow columns.
    pub(crate) fn short(self) -> &'static str {
        match self {
            Self::Hello => "a constant",
            _ => self.name(),
        }
    }

    pub(crate) fn start(self, idmill: &Path) -> Running {
        let directory = TempDir::new().expect("a temporary directory");
        let [resp, http] = free_ports();
        let mut command = self.command(idmill, directory.path(), resp, http);
        let log = File::create(directory.path().join("log")).expect("a log");
        command.stdout(Stdio::null()).stderr(log);
        let process = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let running = Running { contender: self, resp, http, process, _directory: directory };
        await_port(if self == Self::Hello { http } else { resp });
        running
    }

    fn command(self, idmill: &Path, directory: &Path, resp: u16, http: u16) -> Command {
        if matches!(self, Self::RedisInMemory | Self::RedisSynced) {
            let mut command = Command::new("redis-server");
            let synced = if self == Self::RedisSynced { "yes" } else { "no" };
            command.args(["--bind", "127.0.0.1", "--port", &resp.to_string(), "--save", ""]);
            command.args(["--appendonly", synced, "--appendfsync", "always", "--maxclients", "20000"]);
            command.arg("--dir").arg(directory);
            return command;
        }
        if self == Self::Hello {
            let mut command = Command::new(env::current_exe().expect("this program"));
            command.arg("hello").env("PORT", http.to_string());
            return command;
        }
        let mut command = Command::new(idmill);
        command
            .arg("serve")
            .arg("--create")
            .arg("--store")
            .arg(format!("sqlite:{}/ids.db", directory.display()));
        command.args(["--resp", &format!("127.0.0.1:{resp}"), "--http", &format!("127.0.0.1:{http}")]);
        command
    }
}

pub(crate) struct Running {
    pub(crate) contender: Contender,
    pub(crate) resp: u16,
    pub(crate) http: u16,
    pub(crate) process: Child,
    _directory: TempDir,
}

impl Running {
    /// The processor time that the server has used, to a hundredth of a second.
    pub(crate) fn work(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.process.id())).unwrap_or_default();
        // The 12th and 13th fields after the name, which may contain spaces. Both fields count ticks of 10
        // ms.
        let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
        let ticks: u64 = fields.filter_map(|field| field.parse::<u64>().ok()).sum();
        Duration::from_millis(ticks * 10)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Both ports are bound at the same time, so that they differ.
fn free_ports() -> [u16; 2] {
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a free port"));
    listeners.map(|listener| listener.local_addr().expect("its address").port())
}

fn await_port(port: u16) {
    let begun = Instant::now();
    while let Err(error) = TcpStream::connect(("127.0.0.1", port)) {
        let is_early = error.kind() == ErrorKind::ConnectionRefused && begun.elapsed() < TO_START;
        assert!(is_early, "nothing listens on port {port}: {error}");
        sleep(Duration::from_millis(20));
    }
}

/// Answers each `POST /` with a response as long as idmill's.
pub(crate) fn say_hello() {
    let port: u16 = env::var("PORT").ok().and_then(|port| port.parse().ok()).expect("a port");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let answer =
            || async { ([("content-type", "application/json")], r#"{"sequence":"orders","ids":[1234567]}"#) };
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await.expect("the port");
        let _ = axum::serve(listener, Router::new().route("/", post(answer))).await;
    });
}
