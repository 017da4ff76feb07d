//! Real engines for tests, each started through its script in `ci/engines`.
//!
//! ```ignore
//! let Some(engine) = Engine::start("memcached").await else { return };
//! let address = engine.address();
//! engine.kill();
//! engine.restart().await;
//! ```
pub mod certificate;
pub mod silence;

use std::collections::BTreeMap;
use std::fs::File;
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use idmill::store::StoreFuture;
use idmill::{Error, ErrorKind, Result};
use idmill_conformance::{Daemon, free_port};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The exit code of a script whose engine is missing and cannot be installed.
const SKIPPED: i32 = 77;
/// The time limit for an engine's start: a guard against hanging.
const LONG: Duration = Duration::from_secs(240);

/// An engine with its own directory. A drop kills the engine and removes the directory.
#[derive(Debug)]
pub struct Engine {
    daemon: Daemon,
    version: String,
    // Dropped after the engine that writes to it.
    dir: Arc<tempfile::TempDir>,
}

impl Engine {
    /// Starts the engine of `ci/engines/NAME`. If it is not available here, [skips](crate::skip) the test
    /// and returns `None`.
    ///
    /// # Panics
    /// If the engine is not available although `CI=true`. If the engine does not start.
    pub async fn start(name: &str) -> Option<Self> {
        let engine = Self::down(name)?;
        engine.restart().await;
        Some(engine)
    }

    /// Like [`start`](Self::start), but does not start the engine, so that you can configure it further.
    pub fn down(name: &str) -> Option<Self> {
        Self::at(name, free_port())
    }

    /// Like [`down`](Self::down), but at the given port.
    pub fn at(name: &str, port: u16) -> Option<Self> {
        Self::set(name, port, &[])
    }

    /// Like [`at`](Self::at), with settings that the engine's script takes after the port.
    pub fn set(name: &str, port: u16, settings: &[&str]) -> Option<Self> {
        Self::fetched(name, port, settings).map_err(|reason| crate::skip(&reason)).ok()
    }

    /// Returns the reason if the engine is not available here.
    fn fetched(name: &str, port: u16, settings: &[&str]) -> Result<Self, String> {
        let version = fetched(name)?;
        let dir = Arc::new(tempfile::tempdir().expect("a directory"));
        let (path, place) = (script(name), dir.clone());
        let settings: Vec<String> = settings.iter().map(ToString::to_string).collect();
        let daemon = Daemon::new(([127, 0, 0, 1], port).into(), move || {
            let mut command = Command::new(&path);
            command.arg("serve").arg(place.path()).arg(port.to_string()).args(&settings);
            command
        })
        .deadline(LONG);
        let daemon = if name == "postgres" { daemon.ready(lets_in) } else { daemon };
        Ok(Self { daemon, version, dir })
    }

    /// Returns the version that the engine's script prints.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Returns the directory of the engine.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Restarts the engine if it is down, over the same directory and port.
    pub async fn restart(&self) {
        self.daemon.start().await.unwrap_or_else(|error| panic!("{error}"));
    }

    /// Returns the process, the engine's version, and the directory, which must be dropped last.
    pub fn into_parts(self) -> (Daemon, String, Arc<tempfile::TempDir>) {
        (self.daemon, self.version, self.dir)
    }
}

impl Deref for Engine {
    type Target = Daemon;

    fn deref(&self) -> &Daemon {
        &self.daemon
    }
}

/// An engine that is fetched and started only when a suite needs it: for `Suite::engine`.
#[derive(Debug)]
pub struct OnDemand {
    name: &'static str,
    port: u16,
    forgetful: bool,
    engine: OnceLock<Engine>,
}

impl OnDemand {
    /// The engine of `ci/engines/NAME`.
    pub fn new(name: &'static str) -> Self {
        Self { name, port: free_port(), forgetful: false, engine: OnceLock::new() }
    }

    /// Declares that the engine loses its data after a SIGKILL.
    pub fn forgetful(mut self) -> Self {
        self.forgetful = true;
        self
    }

    async fn run(&self) -> Result<()> {
        if self.engine.get().is_none() {
            // The suite counts its own skipped trials.
            let engine = Engine::fetched(self.name, self.port, &[]);
            let engine = engine.map_err(|reason| Error::new(ErrorKind::Unsupported, reason))?;
            let _ = self.engine.set(engine);
        }
        self.engine.get().expect("set").daemon.start().await
    }
}

impl idmill_conformance::Engine for OnDemand {
    fn name(&self) -> &str {
        self.name
    }

    fn version(&self) -> String {
        self.engine.get().map(|engine| engine.version.clone()).unwrap_or_default()
    }

    fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    fn start(&self) -> StoreFuture<'_, Result<()>> {
        Box::pin(self.run())
    }

    fn kill(&self) {
        if let Some(engine) = self.engine.get() {
            engine.kill();
        }
    }

    fn pause(&self) {
        if let Some(engine) = self.engine.get() {
            engine.pause();
        }
    }

    fn resume(&self) {
        if let Some(engine) = self.engine.get() {
            engine.resume();
        }
    }

    fn survives_kill(&self) -> bool {
        !self.forgetful
    }
}

/// Checks that PostgreSQL accepts clients: it listens before it has recovered from a crash, and rejects all
/// clients until then.
async fn lets_in(address: SocketAddr) -> Result<()> {
    let failed = |error| Error::new(ErrorKind::Unavailable, format!("no answer: {error}"));
    let mut stream = TcpStream::connect(address).await.map_err(failed)?;
    // The length, version 3.0 of the protocol, and the user.
    let mut hello = vec![0, 0, 0, 23, 0, 3, 0, 0];
    hello.extend_from_slice(b"user\0postgres\0\0");
    stream.write_all(&hello).await.map_err(failed)?;
    match stream.read_u8().await.map_err(failed)? {
        b'R' => Ok(()),
        other => Err(Error::new(ErrorKind::Unavailable, format!("it answers {:?}", char::from(other)))),
    }
}

/// A tool that `ci/engines/ENGINE tool NAME` runs. If it is not available here, [skips](crate::skip) the
/// test and returns `None`.
///
/// # Panics
/// As [`Engine::start`].
pub fn tool(engine: &str, name: &str) -> Option<Command> {
    fetched(engine).map_err(|reason| crate::skip(&reason)).ok()?;
    let mut command = Command::new(script(engine));
    command.args(["tool", name]);
    Some(command)
}

fn script(name: &str) -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut scripts = package.ancestors().map(|above| above.join("ci/engines"));
    scripts.find(|scripts| scripts.is_dir()).expect("a parent directory has ci/engines").join(name)
}

/// Fetches the engine once per process. Returns its version, or the reason why it is not available.
fn fetched(name: &str) -> Result<String, String> {
    static VERSIONS: Mutex<BTreeMap<String, Result<String, String>>> = Mutex::new(BTreeMap::new());
    VERSIONS.lock().entry(name.to_owned()).or_insert_with(|| fetch(name)).clone()
}

fn fetch(name: &str) -> Result<String, String> {
    // Several test binaries may run concurrently, and package managers do not support that.
    let lock =
        File::create(std::env::temp_dir().join("idmill-engines.lock")).expect("the lock file can be created");
    lock.lock().expect("locks");
    let fetch = Command::new(script(name)).arg("fetch").output().expect("the script runs");
    let said = String::from_utf8_lossy(&fetch.stderr);
    if fetch.status.code() == Some(SKIPPED) {
        return Err(format!("{name} is not available: {}", said.trim()));
    }
    assert!(fetch.status.success(), "ci/engines/{name} fetch: {}\n{said}", fetch.status);
    let version = Command::new(script(name)).arg("version").output().expect("the script runs");
    assert!(version.status.success(), "ci/engines/{name} version: {version:?}");
    Ok(String::from_utf8_lossy(&version.stdout).trim().to_owned())
}
