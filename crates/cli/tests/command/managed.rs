//! `idmill serve` under a service manager like systemd: listeners and notifications.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use command_fds::{CommandFdExt, FdMapping};
use idmill_testing::fleet::{Client, request};

use crate::common::{Place, Ran};

/// Timeout after which a hanging test fails.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A process, killed on drop.
struct Running(Child);

impl Running {
    fn tell(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.0.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Prepares `idmill serve`, and passes these listeners and their names, as descriptors from 3 on. A shell
/// sets LISTEN_PID before it executes the server.
fn handing(place: &Place, listeners: Vec<OwnedFd>, names: &str, args: &str) -> Command {
    let idmill = place.command(&[]);
    let mut command = Command::new("sh");
    let script = format!("LISTEN_PID=$$ exec '{}' serve {args}", idmill.get_program().to_str().unwrap());
    command.args(["-c", &script]).current_dir(place.path()).stdin(Stdio::null());
    command.env("LISTEN_FDS", listeners.len().to_string()).env("LISTEN_FDNAMES", names);
    let mappings = listeners.into_iter().zip(3..);
    let mappings = mappings.map(|(parent_fd, child_fd)| FdMapping { parent_fd, child_fd }).collect();
    command.fd_mappings(mappings).unwrap();
    command
}

fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// A socket that stands in for the socket of the service manager.
struct Manager(UnixDatagram);

impl Manager {
    fn at(place: &Place) -> Self {
        let socket = UnixDatagram::bind(place.path().join("notify")).unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        Self(socket)
    }

    /// Receives messages up to the first that contains this line.
    fn hears(&self, line: &str) -> Vec<String> {
        let (mut all, begun) = (Vec::new(), Instant::now());
        loop {
            assert!(begun.elapsed() < TIMEOUT, "{line} after {all:?}");
            let mut message = [0; 4096];
            let length =
                self.0.recv(&mut message).unwrap_or_else(|error| panic!("{line} after {all:?}: {error}"));
            all.push(String::from_utf8(message[..length].to_vec()).unwrap());
            if all.last().unwrap().lines().any(|said| said == line) {
                return all;
            }
        }
    }
}

#[test]
fn passed_listeners_are_matched_by_name() {
    let place = Place::new();
    assert_eq!(place.run(&["create", "orders"]).code, 0);
    let ((resp, resp_at), (http, http_at)) = (listener(), listener());
    // Pass the listeners in a different order from the settings.
    let mut command = handing(&place, vec![http.into(), resp.into()], "http:resp", "--resp none");
    let _server = Running(command.stderr(Stdio::null()).spawn().unwrap());
    assert_eq!(Client::connect(resp_at).ask("INCR orders"), ":1");
    let answer = request(http_at, "POST /v1/sequences/orders/ids", "", "");
    assert!(answer.ends_with("{\"sequence\":\"orders\",\"ids\":[2]}"), "{answer}");
}

#[test]
fn unusable_passed_listener_is_rejected_with_a_remedy() {
    let place = Place::new();
    let open = |address: &str| OwnedFd::from(TcpListener::bind(address).unwrap());
    let here = || open("127.0.0.1:0");
    let unix = UnixListener::bind(place.path().join("socket")).unwrap();
    for (listeners, names, words) in [
        (vec![here()], "idmill.socket", "a listener named \"idmill.socket\""),
        (vec![here()], "", "FileDescriptorName="),
        (vec![here(), here()], "resp:resp", "two listeners named \"resp\""),
        (vec![unix.into()], "resp", "not a TCP listener"),
        // An inherited listener is checked like an address in the settings.
        (vec![open("0.0.0.0:0")], "resp", "--insecure"),
    ] {
        let ran: Ran = handing(&place, listeners, names, "").output().unwrap().into();
        assert_eq!(ran.code, 2, "{names}: {ran:?}");
        assert!(ran.err.contains(words), "{names}: {ran:?}");
    }
}

/// The store accepts the connection and sends no reply.
#[cfg(feature = "full")]
#[test]
fn sigterm_ends_a_server_that_waits_for_its_store() {
    let place = Place::new();
    let (store, address) = listener();
    let mut command = place.command(&["serve", "--store", &format!("redis://{address}")]);
    let mut server = Running(command.stderr(Stdio::null()).spawn().unwrap());
    let _silent = store.accept().unwrap();
    server.tell("-TERM");
    // Not by the signal itself, which the first process of a container ignores.
    assert_eq!(server.0.wait().unwrap().code(), Some(0));
}

/// The inherited variables are for another process, so they are ignored.
#[test]
fn listeners_for_another_process_are_ignored() {
    let place = Place::new();
    let mut command = place.command(&["serve", "--check", "--json"]);
    command.env("LISTEN_PID", "1").env("LISTEN_FDS", "1").env("LISTEN_FDNAMES", "resp");
    let ran: Ran = command.output().unwrap().into();
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.contains("127.0.0.1:7380"), "{ran:?}");
}

#[test]
fn manager_is_notified_from_start_to_end() {
    let place = Place::new();
    assert_eq!(place.run(&["create", "orders"]).code, 0);
    let manager = Manager::at(&place);
    let (resp, address) = listener();
    let mut command = handing(&place, vec![resp.into()], "resp", "--http none --shutdown-delay 100ms");
    command.env("NOTIFY_SOCKET", place.path().join("notify")).env("WATCHDOG_USEC", "100000");
    let server = Running(command.stderr(Stdio::null()).spawn().unwrap());
    let first = manager.hears("READY=1");
    assert_eq!(first.len(), 1, "{first:?}");
    manager.hears("STATUS=serving 0 sequences, 0 clients");
    manager.hears("WATCHDOG=1");
    manager.hears("WATCHDOG=1");
    let mut client = TcpStream::connect(address).unwrap();
    client.write_all(b"INCR orders\r\n").unwrap();
    manager.hears("STATUS=serving 1 sequences, 1 clients");
    drop(client);
    manager.hears("STATUS=serving 1 sequences, 0 clients");
    server.tell("-HUP");
    let told = manager.hears("RELOADING=1");
    let since = told.last().unwrap().lines().find_map(|line| line.strip_prefix("MONOTONIC_USEC="));
    assert!(since.and_then(|since| since.parse::<u64>().ok()).is_some_and(|since| since > 0), "{told:?}");
    manager.hears("READY=1");
    server.tell("-TERM");
    manager.hears("STOPPING=1");
    let mut server = server;
    assert!(server.0.wait().unwrap().success());
}

/// Readiness is not reported after a failed start: otherwise, the manager would start dependent units.
#[test]
fn failed_start_does_not_notify_readiness() {
    let place = Place::new();
    let manager = Manager::at(&place);
    let mut command =
        place.command(&["serve", "--store", "sqlite:none/ids.db", "--resp", "127.0.0.1:0", "--http", "none"]);
    let ran: Ran = command.env("NOTIFY_SOCKET", place.path().join("notify")).output().unwrap().into();
    assert_ne!(ran.code, 0, "{ran:?}");
    manager.0.set_nonblocking(true).unwrap();
    assert!(manager.0.recv(&mut [0; 4096]).is_err());
}

/// With systemd's default limit of five starts in ten seconds, an outage of the store would end the restarts.
#[test]
fn unit_is_restarted_without_a_start_limit() {
    let unit =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/systemd/idmill.service"))
            .unwrap();
    let (head, service) = unit.split_once("[Service]").unwrap();
    assert!(head.lines().any(|line| line == "StartLimitIntervalSec=0"), "{head}");
    assert!(service.lines().any(|line| line == "Restart=on-failure"), "{service}");
}

#[test]
fn log_has_the_requested_format() {
    let place = Place::new();
    fs::write(place.path().join("idmill.toml"), "log-format = \"json\"\n").unwrap();
    for (args, variable, is_json) in [
        (&[][..], None, false),
        (&["--json"], None, true),
        (&["--log-format", "json"], None, true),
        (&["--json", "--log-format", "text"], None, false),
        (&[], Some("json"), true),
        (&["--config", "idmill.toml"], None, true),
        (&["--config", "idmill.toml"], Some("text"), false),
    ] {
        let mut command = place.command(&[&["serve", "--resp=127.0.0.1:0", "--http=none"], args].concat());
        command.envs(variable.map(|format| ("IDMILL_SERVE_LOG_FORMAT", format)));
        let mut server = Running(command.stderr(Stdio::piped()).spawn().unwrap());
        let lines = BufReader::new(server.0.stderr.take().unwrap()).lines();
        let line = lines.map(Result::unwrap).find(|line| line.contains("is served")).unwrap();
        let event = serde_json::from_str::<serde_json::Value>(&line);
        assert_eq!(event.is_ok(), is_json, "{args:?} {variable:?}: {line}");
        if let Ok(event) = event {
            assert!(event["timestamp"].is_string() && event["level"] == "INFO", "{line}");
        }
    }
}
