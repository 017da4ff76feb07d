//! `idmill serve` and `idmill token`, as used by an operator.

#![cfg(unix)]

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::thread;
use std::time::Duration;

use common::Place;
use serde_json::Value;

const ANYWHERE: [&str; 5] = ["serve", "--json", "--resp=127.0.0.1:0", "--http=127.0.0.1:0", "--drain=20s"];

/// A running server, and its log.
struct Server {
    process: Child,
    log: BufReader<ChildStderr>,
    resp: SocketAddr,
    http: SocketAddr,
}

impl Server {
    fn start(place: &Place, args: &[&str]) -> Self {
        let mut command = place.command(&ANYWHERE);
        Self::of(command.args(args).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap())
    }

    fn of(mut process: Child) -> Self {
        let log = BufReader::new(process.stderr.take().unwrap());
        Self::with(process, log)
    }

    fn with(process: Child, mut log: BufReader<ChildStderr>) -> Self {
        let mut address = |what| {
            let line = logged(&mut log, what);
            line["fields"]["address"].as_str().unwrap().parse().unwrap()
        };
        let (resp, http) = (address("Redis protocol is served"), address("HTTP is served"));
        Self { process, log, resp, http }
    }

    fn client(&self) -> Client {
        let stream = TcpStream::connect(self.resp).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Client(BufReader::new(stream))
    }

    fn tell(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.process.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Returns the exit code, and the log up to the end.
    fn ended(mut self) -> (Option<i32>, String) {
        let mut rest = String::new();
        self.log.read_to_string(&mut rest).unwrap();
        (self.process.wait().unwrap().code(), rest)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns the next line of the log that contains `what`.
fn logged(log: &mut impl BufRead, what: &str) -> Value {
    let mut all = String::new();
    loop {
        let mut line = String::new();
        assert!(log.read_line(&mut line).unwrap() > 0, "{what:?} was never logged: {all}");
        if line.contains(what) {
            return serde_json::from_str(&line).unwrap();
        }
        all += &line;
    }
}

struct Client(BufReader<TcpStream>);

impl Client {
    fn try_ask(&mut self, words: &str) -> Option<String> {
        self.0.get_mut().write_all(format!("{words}\r\n").as_bytes()).ok()?;
        let mut line = String::new();
        self.0.read_line(&mut line).ok()?;
        line.strip_suffix("\r\n").map(ToOwned::to_owned)
    }

    fn ask(&mut self, words: &str) -> String {
        self.try_ask(words).unwrap()
    }
}

#[test]
fn a_sequence_has_to_exist_unless_told_otherwise() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    let answer = server.client().ask("INCR orders");
    assert!(answer.starts_with("-NOTFOUND") && answer.contains("correct the name"), "{answer}");
    assert_eq!(place.run(&["create", "orders"]).code, 0);
    // The cached error expires after a short time.
    let mut drawn = (0..100).map(|_| {
        thread::sleep(Duration::from_millis(100));
        server.client().ask("INCR orders")
    });
    assert_eq!(drawn.find(|answer| !answer.starts_with('-')).as_deref(), Some(":1"));
    drop(server);
    let server = Server::start(&place, &["--create"]);
    assert_eq!(server.client().ask("INCR users"), ":1");
}

#[test]
fn sigterm_gives_back_unused_ids() {
    let place = Place::new();
    assert_eq!(place.run(&["create", "orders"]).code, 0);
    let server = Server::start(&place, &[]);
    assert_eq!(server.client().ask("INCRBY orders 7"), ":7");
    server.tell("-TERM");
    let (code, log) = server.ended();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("stopping; clients with pending requests") && log.contains("\"ended\""), "{log}");
    assert_eq!(place.run(&["next", "orders"]).ids(), [8]);
}

/// Clients record their ids, while servers are killed one after the other.
#[test]
fn servers_that_are_killed_under_load_hand_out_no_id_twice() {
    let place = Place::new();
    assert_eq!(place.run(&["create", "orders"]).code, 0);
    let mut all = Vec::new();
    for round in 0..4 {
        let servers = [Server::start(&place, &[]), Server::start(&place, &[])];
        let clients: Vec<_> = (0..4)
            .map(|at| {
                let mut client = servers[at % 2].client();
                thread::spawn(move || {
                    let mut ids = Vec::new();
                    while ids.len() < 3000 {
                        let Some(answer) = client.try_ask("INCR orders") else { break };
                        // Other servers get transient errors until the lock of a killed server is released.
                        if let Some(id) = answer.strip_prefix(':') {
                            ids.push(id.parse::<u64>().unwrap());
                        }
                    }
                    ids
                })
            })
            .collect();
        thread::sleep(Duration::from_millis(100 + 50 * round));
        servers[0].tell("-KILL");
        servers[1].tell(if round % 2 == 0 { "-TERM" } else { "-KILL" });
        for client in clients {
            all.extend(client.join().unwrap());
        }
    }
    let distinct: BTreeSet<_> = all.iter().collect();
    assert_eq!(distinct.len(), all.len(), "an id was handed out twice");
    assert!(all.len() > 100, "only {} ids were drawn", all.len());
}

/// Each invalid request causes a line in the log.
fn log_much(server: &Server, lines: usize) {
    let (http, each) = (server.http, lines / 4);
    let clients: Vec<_> = (0..4)
        .map(|_| {
            thread::spawn(move || {
                for _ in 0..each {
                    let mut stream = TcpStream::connect(http).unwrap();
                    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
                    stream.write_all(b"nothing\r\n\r\n").unwrap();
                    let mut answer = String::new();
                    stream.read_to_string(&mut answer).unwrap();
                    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
                }
            })
        })
        .collect();
    for client in clients {
        client.join().unwrap();
    }
}

/// The log is larger than a pipe's buffer.
#[test]
fn server_goes_on_when_its_log_is_not_read() {
    let place = Place::new();
    let mut server = Server::start(&place, &["--create", "-v"]);
    log_much(&server, 2000);
    assert_eq!(server.client().ask("INCR orders"), ":1");
    let mut stream = TcpStream::connect(server.http).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    server.tell("-TERM");
    for _ in 0..600 {
        if let Some(status) = server.process.try_wait().unwrap() {
            assert!(status.success(), "{status}");
            return;
        }
        thread::sleep(Duration::from_millis(100));
    }
    panic!("it never ended");
}

/// The number of dropped lines is logged once stderr is read again.
#[test]
fn lines_left_out_of_the_log_are_counted() {
    let place = Place::new();
    let mut server = Server::start(&place, &["-v"]);
    log_much(&server, 8000);
    let line = logged(&mut server.log, "log lines were dropped");
    assert!(line["fields"]["left_out"].as_u64() > Some(0), "{line}");
}

/// As after a restore: other processes draw from the new file.
#[test]
fn server_whose_store_file_was_replaced_is_not_ready() {
    let place = Place::new();
    assert_eq!(place.run(&["create", "orders"]).code, 0);
    let server = Server::start(&place, &[]);
    let mut client = server.client();
    assert_eq!(client.ask("INCR orders"), ":1");
    let file = place.path().join("idmill.db");
    fs::rename(&file, place.path().join("old.db")).unwrap();
    fs::copy(place.path().join("old.db"), &file).unwrap();
    while client.ask("INCR orders").starts_with(':') {}
    let ready = || {
        let mut stream = TcpStream::connect(server.http).unwrap();
        stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    for _ in 0..600 {
        let answer = ready();
        if answer.starts_with("HTTP/1.1 503") {
            assert!(answer.contains("the store cannot be used"), "{answer}");
            return;
        }
        thread::sleep(Duration::from_millis(100));
    }
    panic!("it is ready: {}", ready());
}

#[test]
fn tokens_are_read_again_when_it_is_told_to() {
    let place = Place::new();
    assert_eq!(place.run(&["create", "orders"]).code, 0);
    let made = place.json(&["token", "shop", "--right", "draw", "--sequence", "ord*", "--json"]);
    let (token, file) = (made["token"].as_str().unwrap(), place.path().join("tokens.toml"));
    fs::write(&file, made["entry"].as_str().unwrap()).unwrap();
    let mut server = Server::start(&place, &["--tokens", "tokens.toml"]);
    let mut client = server.client();
    assert!(client.ask("INCR orders").starts_with("-NOAUTH"));
    assert_eq!(client.ask(&format!("AUTH {token}")), "+OK");
    assert_eq!(client.ask("INCR orders"), ":1");
    // An unreadable file changes nothing.
    fs::write(&file, "[[token]]\nname = 1\n").unwrap();
    server.tell("-HUP");
    let line = logged(&mut server.log, "the tokens were not reloaded");
    assert!(line.to_string().contains("line 2"), "{line}");
    assert_eq!(client.ask("INCR orders"), ":2");
    fs::write(&file, "").unwrap();
    server.tell("-HUP");
    // An empty file locks out every client, so this is a warning.
    let line = logged(&mut server.log, "the tokens were reloaded");
    assert!(line["level"] == "WARN" && line.to_string().contains("clients are refused"), "{line}");
    assert!(client.ask("INCR orders").starts_with("-WRONGPASS"));
    let (_, log) = {
        server.tell("-TERM");
        server.ended()
    };
    assert!(!log.contains(token), "{log}");
}

/// Returns the file entry that `idmill token` prints, and the token.
fn made(place: &Place, name: &str) -> (String, String) {
    let made = place.json(&["token", name, "--right", "draw", "--sequence", "*", "--json"]);
    (made["entry"].as_str().unwrap().to_owned(), made["token"].as_str().unwrap().to_owned())
}

/// Editors and tools can preserve the modification time, and all hashes have the same length.
#[test]
fn token_file_of_the_same_time_and_size_is_read_again() {
    let place = Place::new();
    assert_eq!(place.run(&["create", "orders"]).code, 0);
    let (file, (old, token), (new, _)) =
        (place.path().join("tokens.toml"), made(&place, "a"), made(&place, "b"));
    fs::write(&file, &old).unwrap();
    let written = fs::metadata(&file).unwrap().modified().unwrap();
    let mut server = Server::start(&place, &["--tokens", "tokens.toml"]);
    let mut client = server.client();
    assert_eq!(client.ask(&format!("AUTH {token}")), "+OK");
    fs::write(&file, &new).unwrap();
    fs::File::options().write(true).open(&file).unwrap().set_modified(written).unwrap();
    assert_eq!(old.len(), new.len());
    logged(&mut server.log, "the tokens were reloaded");
    assert!(client.ask("INCR orders").starts_with("-WRONGPASS"));
}

#[test]
fn tokens_that_cannot_be_meant_are_refused_by_check() {
    let place = Place::new();
    let (entry, _) = made(&place, "a");
    let twice = entry.clone() + &entry.replace("\"a\"", "\"b\"").replace("draw", "administer");
    for (text, words) in [
        (twice, "\"a\" and \"b\" have the same hash"),
        (String::new(), "has no tokens"),
        ("# nobody yet\n".to_owned(), "has no tokens"),
        (entry.clone() + "max-ids = 0\n", "line 6"),
        (entry + "max-connections = 0\n", "line 6"),
    ] {
        fs::write(place.path().join("tokens.toml"), &text).unwrap();
        for check in [&["--check"][..], &["--resp=127.0.0.1:0", "--http=none"]] {
            let ran = place.run(&[&["serve", "--tokens", "tokens.toml"], check].concat());
            assert_eq!(ran.code, 2, "{text}: {ran:?}");
            assert!(ran.err.contains("tokens.toml") && ran.err.contains(words), "{text}: {ran:?}");
        }
    }
    fs::write(place.path().join("idmill.toml"), "max-connections = 0\n").unwrap();
    for args in [
        &["serve", "--check", "--max-connections", "0"][..],
        &["serve", "--check", "--config", "idmill.toml"],
        &["token", "a", "--right", "draw", "--sequence", "*", "--max-connections", "0"],
        &["token", "a", "--right", "draw", "--sequence", "*", "--max-ids", "0"],
    ] {
        assert_eq!(place.run(args).code, 2, "{args:?}");
    }
}

#[test]
fn expired_certificate_does_not_replace_a_valid_one() {
    let place = Place::new();
    certified(&place, 2999);
    let mut server = Server::start(&place, &["--tls-cert", "server.pem", "--tls-key", "server.key"]);
    certified(&place, 2021);
    server.tell("-HUP");
    let line = logged(&mut server.log, "the certificates were not reloaded");
    assert!(line.to_string().contains("expired on 2021-01-01"), "{line}");
    certified(&place, 2998);
    server.tell("-HUP");
    logged(&mut server.log, "the certificates were reloaded");
}

/// Writes a certificate to `server.pem` that expires at the start of `year`.
fn certified(place: &Place, year: i32) {
    let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    (params.not_before, params.not_after) =
        (rcgen::date_time_ymd(2020, 1, 1), rcgen::date_time_ymd(year, 1, 1));
    fs::write(place.path().join("server.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
    fs::write(place.path().join("server.key"), key.serialize_pem()).unwrap();
}

/// Starts a server with a soft and a hard limit of open files.
fn with_files(place: &Place, soft: u32, hard: u32, args: &str) -> Child {
    let idmill = place.command(&[]).get_program().to_str().unwrap().to_owned();
    let script =
        format!("ulimit -Sn {soft} && ulimit -Hn {hard} && exec '{idmill}' {} {args}", ANYWHERE.join(" "));
    let mut command = Command::new("sh");
    command.args(["-c", &script]).current_dir(place.path()).env_remove("IDMILL_STORE");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

#[cfg(target_os = "linux")]
#[test]
fn soft_limit_of_open_files_is_raised_as_far_as_needed() {
    let place = Place::new();
    let server = Server::of(with_files(&place, 64, 4096, "--max-connections 1000"));
    let limits = fs::read_to_string(format!("/proc/{}/limits", server.process.id())).unwrap();
    let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let soft: u64 = files.split_whitespace().nth(3).unwrap().parse().unwrap();
    assert!((1001..4096).contains(&soft), "{files}");
    server.tell("-TERM");
    let (_, log) = server.ended();
    assert!(!log.contains("WARN"), "{log}");
}

#[test]
fn server_out_of_open_files_answers_probes_and_logs_little() {
    let place = Place::new();
    let mut process = with_files(&place, 64, 64, "");
    let mut log = BufReader::new(process.stderr.take().unwrap());
    let warning = logged(&mut log, "open files allows").to_string();
    assert!(warning.contains("64 open files") && warning.contains("LimitNOFILE"), "{warning}");
    let server = Server::with(process, log);
    let crowd: Vec<_> = (0..200).filter_map(|_| TcpStream::connect(server.resp).ok()).collect();
    for _ in 0..3 {
        let mut stream = TcpStream::connect(server.http).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        write!(stream, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    thread::sleep(Duration::from_secs(2));
    drop(crowd);
    server.tell("-TERM");
    let (_, log) = server.ended();
    assert!(!log.contains("not accepted"), "{log}");
}

#[test]
fn health_and_metrics_are_served() {
    let place = Place::new();
    assert_eq!(place.run(&["create", "orders"]).code, 0);
    let server = Server::start(&place, &[]);
    assert_eq!(server.client().ask("INCRBY orders 7"), ":7");
    let get = |path: &str| {
        let mut stream = TcpStream::connect(server.http).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    assert!(get("/healthz").starts_with("HTTP/1.1 200"));
    assert!(get("/readyz").contains("ready: 1 sequences, 0 in trouble"));
    let metrics = get("/metrics");
    assert!(metrics.contains("idmill_draws_total{sequence=\"orders\"} 7"), "{metrics}");
}

#[test]
fn flags_override_environment_and_file_settings() {
    let place = Place::new();
    fs::write(
        place.path().join("idmill.toml"),
        "store = \"sqlite:other.db\"\nresp = \"127.0.0.1:1\"\nhttp = \"127.0.0.1:2\"\npatience = \"9s\"\ncreate = true\ndrain-delay = \"0s\"\n",
    )
    .unwrap();
    let mut command =
        place.command(&["serve", "--check", "--json", "--config", "idmill.toml", "--http", "none"]);
    let ran: common::Ran = command.env("IDMILL_SERVE_RESP", "127.0.0.1:3").output().unwrap().into();
    assert_eq!(ran.code, 0, "{ran:?}");
    let said: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(
        (&said["resp"], &said["http"], &said["patience"]),
        (&"127.0.0.1:3".into(), &"none".into(), &"9s".into())
    );
    assert_eq!((&said["store"], &said["create"]), (&"sqlite:other.db".into(), &true.into()));
    assert_eq!(place.files(), ["idmill.toml"]);
}

#[test]
fn a_certificate_that_has_ended_is_told_of() {
    let place = Place::new();
    certified(&place, 2021);
    let files = ["--tls-cert", "server.pem", "--tls-key", "server.key"];
    let ran = place.run(&[&["serve", "--check"][..], &files].concat());
    assert!(ran.code == 0 && ran.out.contains("yes, until 2021-01-01T00:00:00Z"), "{ran:?}");
    assert!(ran.err.contains("server.pem has expired") && ran.err.contains("renew it"), "{ran:?}");
    let said = place.json(&[&["serve", "--check", "--json"][..], &files].concat());
    assert_eq!(said["certificate-expires"], "2021-01-01T00:00:00Z");
    let mut server = Server::start(&place, &files);
    logged(&mut server.log, "server.pem has expired");
}

#[test]
fn unusable_serve_setting_is_rejected_with_a_remedy() {
    let place = Place::new();
    fs::write(place.path().join("bad.toml"), "resp = \"127.0.0.1:1\"\nrsep = \"\"\n").unwrap();
    fs::write(place.path().join("tokens.toml"), "[[token]]\nname = \"a\"\n").unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for (args, words) in [
        (&["--resp", "0.0.0.0:7380"][..], "--insecure"),
        (&["--tls-cert", "none.pem"], "both `--tls-cert` and `--tls-key`"),
        (&["--tls-cert", "none.pem", "--tls-key", "none.key"], "none.pem cannot be used for TLS"),
        (&["--resp", "none"], "are both `none`"),
        (&["--resp", "localhost"], "127.0.0.1:7380"),
        (&["--config", "bad.toml"], "bad.toml, line 2"),
        (&["--config", "none.toml"], "none.toml cannot be read"),
        (&["--tokens", "tokens.toml"], "tokens.toml, line 1"),
        (&["--resp", &taken], "choose another address"),
    ] {
        let mut command = place.command(&[&["serve"], args].concat());
        let ran: common::Ran = command.env("IDMILL_SERVE_HTTP", "none").output().unwrap().into();
        assert_eq!(ran.code, 2, "{args:?}: {ran:?}");
        assert!(ran.err.contains(words), "{args:?}: {ran:?}");
    }
}

#[test]
fn a_token_for_nothing_that_is_known_is_not_made() {
    let place = Place::new();
    for (right, sequence, words) in
        [("admin", "orders", "administer"), ("draw", "a*b", "not at its end"), ("draw", "", "is empty")]
    {
        let ran = place.run(&["token", "shop", "--right", right, "--sequence", sequence]);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{ran:?}");
        assert!(ran.err.contains(words), "{ran:?}");
    }
}

/// Other commands, on a machine that can reach only the server.
#[cfg(feature = "remote")]
#[test]
fn a_server_is_the_store_of_commands_elsewhere() {
    let (place, elsewhere) = (Place::new(), Place::new());
    let server = Server::start(&place, &[]);
    let url = format!("idmill://{}?timeout=60s", server.resp);
    let run = |args: &[&str]| elsewhere.run(&[args, &["--store", &url]].concat());
    let refused = run(&["next", "orders"]);
    assert!(refused.code == 4 && refused.err.contains("does not create it"), "{refused:?}");
    for (args, out) in [
        (&["create", "orders", "--start", "7"][..], None),
        (&["next", "orders", "-n", "2"], Some("7\n8\n")),
        (&["check"], None),
        (&["doctor"], None),
        (&["set", "orders", "--next", "20"], None),
        (&["next", "orders"], Some("20\n")),
        (&["list"], None),
    ] {
        let ran = run(args);
        assert_eq!(ran.code, 0, "{args:?}: {ran:?}");
        assert!(out.is_none_or(|out| ran.out == out), "{args:?}: {ran:?}");
    }
    assert_eq!(place.run(&["next", "orders"]).ids(), [21], "it is the same store");
    assert_eq!(run(&["remove", "orders", "--yes"]).code, 0);
    drop(server);
    let away = run(&["next", "orders", "--timeout", "5s"]);
    assert_eq!(away.code, 75, "{away:?}");
}

#[cfg(feature = "remote")]
#[test]
fn remote_command_authenticates_and_never_prints_its_token() {
    let (place, elsewhere) = (Place::new(), Place::new());
    assert_eq!(place.run(&["create", "orders"]).code, 0);
    let made = place.json(&["token", "shop", "--right", "reserve", "--sequence", "*", "--json"]);
    let token = made["token"].as_str().unwrap();
    fs::write(place.path().join("tokens.toml"), made["entry"].as_str().unwrap()).unwrap();
    fs::write(elsewhere.path().join("token"), format!("{token}\n")).unwrap();
    let server = Server::start(&place, &["--tokens", "tokens.toml"]);
    let file = format!("idmill://{}?timeout=60s&token_file=token", server.resp);
    let given = format!("idmill://:{token}@{}?timeout=60s", server.resp);
    assert_eq!(elsewhere.run(&["next", "orders", "--store", &file]).ids(), [1]);
    assert_eq!(elsewhere.run(&["next", "orders", "--store", &given]).ids(), [2]);
    let without = elsewhere.run(&["next", "orders", "--store", &format!("idmill://{}", server.resp)]);
    assert!(without.code == 1 && without.err.contains("token_file=FILE"), "{without:?}");
    let removed = elsewhere.run(&["remove", "orders", "--yes", "--store", &given, "-v"]);
    assert!(removed.code == 1 && removed.err.contains("administer"), "{removed:?}");
    assert!(!format!("{removed:?}").contains(token), "{removed:?}");
}
