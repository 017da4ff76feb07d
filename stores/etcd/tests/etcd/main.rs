//! The etcd store on real members: its guarantees, and its behavior under faults.
#![cfg(unix)]

mod cluster;
mod contention;
mod errors;
mod history;
mod keys;
mod lost;
mod restores;

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Weak};
use std::time::Duration;

use idmill::store::{Bounds, Reserve, SequenceInfo, Store};
use idmill::{Result, SequenceName};
use idmill_conformance::Daemon;
use idmill_etcd::{EtcdOptions, EtcdStore};
use idmill_testing::engines::Engine;
use idmill_testing::grants::disjoint;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Mutex;

/// Long enough for a busy machine. A test that needs a short timeout sets its own.
const TIMEOUT: Duration = Duration::from_secs(60);

fn name(text: &str) -> SequenceName {
    SequenceName::new(text).unwrap()
}

fn request(text: &str, count: u64) -> Reserve {
    Reserve::new(name(text), count).create(Bounds::of::<u64>())
}

async fn reserve(store: &EtcdStore, text: &str, count: u64) -> Result<(u64, u64)> {
    store.reserve(&request(text, count)).await.map(|grant| (grant.range.start(), grant.range.len()))
}

async fn inspect(store: &EtcdStore, text: &str) -> SequenceInfo {
    store.inspect(&name(text)).await.unwrap().expect("it exists")
}

/// One etcd for all tests that do not disturb it; each test has its own prefix.
async fn shared() -> Option<Arc<Engine>> {
    static RUNNING: Mutex<Weak<Engine>> = Mutex::const_new(Weak::new());
    let mut running = RUNNING.lock().await;
    if let Some(engine) = running.upgrade() {
        return Some(engine);
    }
    let engine = Arc::new(Engine::start("etcd").await?);
    *running = Arc::downgrade(&engine);
    Some(engine)
}

fn options(engine: &Engine, place: &str) -> EtcdOptions {
    EtcdOptions::new([engine.address().to_string()]).prefix(format!("/{place}/")).timeout(TIMEOUT)
}

async fn open(engine: &Engine, place: &str) -> EtcdStore {
    EtcdStore::open_with(options(engine, place)).await.unwrap()
}

/// A single etcd in `dir`, with these settings.
fn daemon(dir: &Path, port: u16, settings: &'static [(&'static str, &'static str)]) -> Daemon {
    let dir = dir.to_owned();
    Daemon::new(([127, 0, 0, 1], port).into(), move || {
        let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ci/engines/etcd"));
        command.arg("serve").arg(&dir).arg(port.to_string()).envs(settings.iter().copied());
        command
    })
}

/// Calls etcd's JSON gateway, for functions that the store does not use. Returns "" if there is no answer.
async fn post(address: SocketAddr, path: &str, body: &str, token: Option<&str>) -> String {
    let token = token.map(|token| format!("authorization: {token}\r\n")).unwrap_or_default();
    let head = format!("POST {path} HTTP/1.1\r\nhost: etcd\r\n{token}content-length: {}\r\n", body.len());
    ask(address, &format!("{head}connection: close\r\n\r\n{body}")).await.unwrap_or_default()
}

async fn get(address: SocketAddr, path: &str) -> String {
    ask(address, &format!("GET {path} HTTP/1.1\r\nhost: etcd\r\nconnection: close\r\n\r\n")).await.unwrap()
}

async fn ask(address: SocketAddr, request: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}
