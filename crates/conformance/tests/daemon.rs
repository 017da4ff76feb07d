//! `Daemon` starts, pauses, kills and stops engines as child processes.
#![cfg(unix)]

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use idmill_conformance::{Daemon, free_port};
use idmill_testing::engines::Engine;
use idmill_testing::eventually;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

const LONG: Duration = Duration::from_secs(60);

async fn ask(stream: &mut TcpStream) -> String {
    stream.write_all(b"version\r\n").await.unwrap();
    let mut answer = vec![0; 64];
    let length = stream.read(&mut answer).await.unwrap();
    String::from_utf8(answer[..length].to_vec()).unwrap()
}

fn group_is_gone(pid: u32) -> bool {
    !Command::new("kill").args(["-0", "--", &format!("-{pid}")]).output().unwrap().status.success()
}

#[tokio::test]
async fn a_killed_engine_starts_again_at_the_same_address() {
    let Some(engine) = Engine::start("memcached").await else { return };
    let mut stream = TcpStream::connect(engine.address()).await.unwrap();
    assert!(ask(&mut stream).await.starts_with("VERSION"));
    let pid = engine.pid().unwrap();
    engine.kill();
    assert_eq!(engine.pid(), None);
    assert!(group_is_gone(pid));
    assert!(TcpStream::connect(engine.address()).await.is_err());
    engine.restart().await;
    assert_ne!(engine.pid(), Some(pid));
    let mut stream = TcpStream::connect(engine.address()).await.unwrap();
    assert!(ask(&mut stream).await.starts_with("VERSION"));
}

#[tokio::test]
async fn a_paused_engine_answers_once_it_is_resumed() {
    let Some(engine) = Engine::start("memcached").await else { return };
    let mut stream = TcpStream::connect(engine.address()).await.unwrap();
    ask(&mut stream).await;
    engine.pause();
    assert!(timeout(Duration::from_millis(300), ask(&mut stream)).await.is_err(), "it was paused");
    engine.resume();
    let mut answer = [0; 7];
    timeout(LONG, stream.read_exact(&mut answer)).await.expect("an answer").unwrap();
    assert_eq!(&answer, b"VERSION");
}

#[tokio::test]
async fn dropped_or_stopped_it_is_gone_even_when_paused() {
    let Some(engine) = Engine::start("memcached").await else { return };
    let pid = engine.pid().unwrap();
    engine.pause();
    drop(engine);
    assert!(group_is_gone(pid));
    let engine = Engine::start("memcached").await.expect("the engine starts again");
    let pid = engine.pid().unwrap();
    engine.pause();
    engine.stop(LONG).await;
    assert!(group_is_gone(pid));
}

fn shell(script: &'static str, port: u16) -> Daemon {
    Daemon::new(([127, 0, 0, 1], port).into(), move || {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    })
}

#[tokio::test]
async fn failed_start_shows_the_output_of_the_engine() {
    let error = shell("echo no licence >&2; exit 3", free_port()).start().await.unwrap_err().to_string();
    assert!(error.contains("exit status: 3") && error.contains("no licence"), "{error}");
    let silent = shell("sleep 600", free_port()).deadline(Duration::from_millis(200));
    let error = silent.start().await.unwrap_err().to_string();
    assert!(error.contains("not ready") && error.contains("no connection"), "{error}");
    assert_eq!(silent.pid(), None, "it was killed");
    let missing = Daemon::new(([127, 0, 0, 1], free_port()).into(), || Command::new("/no/such/engine"));
    assert!(missing.start().await.unwrap_err().to_string().contains("cannot be started"));
}

#[tokio::test]
async fn child_processes_end_with_the_daemon() {
    let daemon = shell("sleep 600 & sleep 600 & wait", free_port()).deadline(Duration::from_millis(200));
    let (pid, outcome) = tokio::join!(
        eventually("the daemon has a pid", async || daemon.pid().ok_or("none")),
        daemon.start(),
    );
    outcome.unwrap_err();
    assert!(group_is_gone(pid));
}

/// Not a test: a process that starts an engine and aborts.
#[tokio::test]
async fn child() {
    let Some(address) = std::env::var_os("IDMILL_TEST_DAEMON") else { return };
    let address: SocketAddr = address.to_str().unwrap().parse().unwrap();
    let engine = Engine::at("memcached", address.port()).expect("the parent's port is free");
    engine.restart().await;
    std::process::abort();
}

#[tokio::test]
async fn it_ends_when_its_process_does() {
    if Engine::down("memcached").is_none() {
        return;
    }
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["child", "--exact"]).env("IDMILL_TEST_DAEMON", address.to_string());
    assert!(!command.output().unwrap().status.success(), "it aborts");
    let gone = async {
        while TcpStream::connect(address).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LONG, gone).await.expect("the engine outlived the process that started it");
}

#[tokio::test]
async fn readiness_is_more_than_a_connection() {
    let Some(engine) = Engine::down("memcached") else { return };
    let (daemon, _, _dir) = engine.into_parts();
    let asked = Arc::new(AtomicU32::new(0));
    let counted = asked.clone();
    let daemon = daemon.ready(move |address| {
        let asked = counted.clone();
        async move {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let answer = ask(&mut stream).await;
            assert!(answer.starts_with("VERSION"), "{answer}");
            if asked.fetch_add(1, Ordering::Relaxed) < 3 {
                return Err(idmill::Error::from(idmill::ErrorKind::Unavailable));
            }
            Ok(())
        }
    });
    daemon.start().await.unwrap();
    assert_eq!(asked.load(Ordering::Relaxed), 4, "`ready` is called until it succeeds");
}
