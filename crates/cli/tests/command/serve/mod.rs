//! `idmill serve` and `idmill token`, as used by an operator.

mod access;
mod signals;

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::common::{Place, Ran};
use idmill_testing::fleet::{Client, Server, request, talk};
use idmill_testing::{eventually_blocking, holds};

fn started(place: &Place, args: &[&str]) -> Server {
    Server::start(&mut place.serve(args))
}

/// Starts a server after this command of the shell, which limits it.
fn started_with(place: &Place, limit: &str, args: &[&str]) -> Server {
    Server::start(&mut place.limited(limit, &place.serve(args)))
}

/// Returns the first line of the log that contains `what`.
fn logged(server: &Server, what: &str) -> Value {
    serde_json::from_str(&server.until_logged(what)).unwrap()
}

#[test]
fn draws_create_sequences_unless_create_is_false() {
    let place = Place::new();
    let server = started(&place, &["--create=false"]);
    let answer = Client::connect(server.resp).ask("INCR orders");
    assert!(answer.starts_with("-NOTFOUND") && answer.contains("correct the name"), "{answer}");
    assert_eq!(place.run(&["create", "orders"]).code, 0);
    // The cached error expires after a short time.
    let mut drawn = (0..100).map(|_| {
        thread::sleep(Duration::from_millis(100));
        Client::connect(server.resp).ask("INCR orders")
    });
    assert_eq!(drawn.find(|answer| !answer.starts_with('-')).as_deref(), Some(":1"));
    drop(server);
    let server = started(&place, &[]);
    assert_eq!(Client::connect(server.resp).ask("INCR users"), ":1");
}

#[test]
fn check_reports_if_draws_create_sequences() {
    let place = Place::new();
    let tokens = place.path().join("tokens.toml");
    let entry = place.run(&["token", "shop", "--right", "draw", "--sequence", "*"]).out;
    std::fs::write(&tokens, &entry[entry.find("[[token]]").unwrap()..]).unwrap();
    let tokens = tokens.to_str().unwrap();
    for (args, environment, created) in [
        (&[][..], &[][..], true),
        (&["--create=false"], &[], false),
        (&[], &[("IDMILL_EXISTING", "true")], false),
        (&["--create"], &[("IDMILL_EXISTING", "true")], true),
        (&["--tokens", tokens], &[], false),
        (&["--tokens", tokens, "--create"], &[], true),
    ] {
        let mut command = place.command(&[&["serve", "--check"], args].concat());
        let ran = command.envs(environment.iter().copied()).output().unwrap();
        let word = if created { "are created on their first use" } else { "must exist" };
        assert!(String::from_utf8_lossy(&ran.stdout).contains(word), "{args:?} {environment:?}: {ran:?}");
    }
}

/// Clients record their ids until one server is killed and the other is killed or terminated.
#[test]
fn servers_killed_under_load_hand_out_no_duplicates() {
    let place = Place::new();
    assert_eq!(place.run(&["create", "orders"]).code, 0);
    let mut all = Vec::new();
    for round in 0..4 {
        let servers = [started(&place, &[]), started(&place, &[])];
        let clients: Vec<_> = (0..4)
            .map(|at| {
                let mut client = Client::connect(servers[at % 2].resp);
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
        servers[0].tell("KILL");
        servers[1].tell(if round % 2 == 0 { "TERM" } else { "KILL" });
        for client in clients {
            all.extend(client.join().unwrap());
        }
    }
    let distinct: BTreeSet<_> = all.iter().collect();
    assert_eq!(distinct.len(), all.len(), "an id was handed out twice");
    assert!(all.len() > 100, "only {} ids were drawn", all.len());
}

/// Sends invalid requests. Each request causes a line in the log.
fn log_much(server: &Server, lines: usize) {
    let (http, each) = (server.http, lines / 4);
    let clients: Vec<_> = (0..4)
        .map(|_| {
            thread::spawn(move || {
                for _ in 0..each {
                    let answer = talk(http, "nothing\r\n\r\n");
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
    let mut server = started(&place, &["--create", "-v"]);
    server.leave_log_unread(true);
    log_much(&server, 2000);
    assert_eq!(Client::connect(server.resp).ask("INCR orders"), ":1");
    let answer = request(server.http, "GET /healthz", "", "");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    server.tell("TERM");
    eventually_blocking("the server ends", || holds(!server.runs(), "it runs"));
    server.leave_log_unread(false);
    assert_eq!(server.wait().0, Some(0));
}

/// The number of dropped lines is logged once stderr is read again.
#[test]
fn dropped_log_lines_are_counted() {
    let place = Place::new();
    let server = started(&place, &["-v"]);
    server.leave_log_unread(true);
    log_much(&server, 8000);
    server.leave_log_unread(false);
    let line = logged(&server, "log lines were dropped");
    let left_out = line["fields"]["left_out"].as_u64().unwrap();
    assert!(left_out > 0, "{line}");
    let metrics = request(server.http, "GET /metrics", "", "");
    assert!(metrics.contains(&format!("idmill_server_log_lines_left_out_total {left_out}\n")), "{metrics}");
}

/// The file is replaced, as by a restore: other processes would draw from the new file.
#[test]
fn server_whose_store_file_was_replaced_is_not_ready() {
    let place = Place::new();
    assert_eq!(place.run(&["create", "orders"]).code, 0);
    let server = started(&place, &[]);
    let mut client = Client::connect(server.resp);
    assert_eq!(client.ask("INCR orders"), ":1");
    let file = place.path().join("idmill.db");
    fs::rename(&file, place.path().join("old.db")).unwrap();
    fs::copy(place.path().join("old.db"), &file).unwrap();
    eventually_blocking("the ids in memory are used up", || {
        let answer = client.ask("INCR orders");
        holds(!answer.starts_with(':'), answer)
    });
    let ready = || request(server.http, "GET /readyz", "", "");
    let answer = eventually_blocking("the server is not ready", || {
        let answer = ready();
        if answer.starts_with("HTTP/1.1 503") { Ok(answer) } else { Err(answer) }
    });
    assert!(answer.contains("the store grants no ids"), "{answer}");
}

#[test]
fn missing_witness_is_the_reported_cause() {
    let place = Place::new();
    let guarded = ["--store", "sqlite:ids.db?guard=file:ids.witness"];
    assert_eq!(place.run(&[&["create", "orders"], &guarded[..]].concat()).code, 0);
    let server = started(&place, &[&guarded[..], &["--max-buffered", "4"]].concat());
    let mut client = Client::connect(server.resp);
    assert_eq!(client.ask("INCR orders"), ":1");
    fs::rename(place.path().join("ids.witness"), place.path().join("moved")).unwrap();
    let refused = eventually_blocking("the ids in memory are used up", || {
        let answer = client.ask("INCR orders");
        if answer.starts_with(':') { Err(answer) } else { Ok(answer) }
    });
    assert!(refused.starts_with("-WITNESS") && refused.contains("ids.witness"), "{refused}");
    let removed = request(server.http, "DELETE /v1/sequences/orders", "", "");
    assert!(removed.starts_with("HTTP/1.1 502") && removed.contains("ids.witness"), "{removed}");
    eventually_blocking("the server is not ready", || {
        let answer = request(server.http, "GET /readyz", "", "");
        holds(answer.starts_with("HTTP/1.1 503"), answer)
    });
}

#[cfg(target_os = "linux")]
#[test]
fn soft_limit_of_open_files_is_raised_as_far_as_needed() {
    let place = Place::new();
    let server = started_with(&place, "ulimit -Sn 64; ulimit -Hn 4096", &["--max-connections=1000"]);
    let limits = fs::read_to_string(format!("/proc/{}/limits", server.pid())).unwrap();
    let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let soft: u64 = files.split_whitespace().nth(3).unwrap().parse().unwrap();
    assert!((1001..4096).contains(&soft), "{files}");
    let (_, log) = server.end();
    assert!(!log.contains("WARN"), "{log}");
}

#[test]
fn server_out_of_open_files_answers_probes_and_logs_little() {
    let place = Place::new();
    let server = started_with(&place, "ulimit -n 64", &[]);
    let warning = server.until_logged("open files allows");
    assert!(warning.contains("64 open files") && warning.contains("LimitNOFILE"), "{warning}");
    let crowd: Vec<_> = (0..200).filter_map(|_| TcpStream::connect(server.resp).ok()).collect();
    for _ in 0..3 {
        let answer = request(server.http, "GET /healthz", "", "");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    thread::sleep(Duration::from_secs(2));
    drop(crowd);
    let (_, log) = server.end();
    // The server keeps to the limit, and rejects further clients itself.
    assert!(!log.contains("could not be accepted"), "{log}");
}

#[test]
fn health_and_metrics_are_served() {
    let place = Place::new();
    assert_eq!(place.run(&["create", "orders"]).code, 0);
    let server = started(&place, &[]);
    assert_eq!(Client::connect(server.resp).ask("INCRBY orders 7"), ":7");
    let get = |path: &str| request(server.http, &format!("GET {path}"), "", "");
    assert!(get("/healthz").starts_with("HTTP/1.1 200"));
    assert!(get("/readyz").contains("ready: 1 sequences, 0 in trouble"));
    let metrics = get("/metrics");
    assert!(metrics.contains("idmill_draws_total{sequence=\"orders\"} 7"), "{metrics}");
    let quantile =
        metrics.lines().find(|line| line.starts_with("idmill_reserve_seconds{") && line.contains("0.99"));
    assert!(quantile.is_some_and(|line| line.contains("quantile=\"0.99\"")), "{metrics}");
}

#[test]
fn flags_override_environment_and_file_settings() {
    let place = Place::new();
    fs::write(
        place.path().join("idmill.toml"),
        "store = \"sqlite:other.db\"\nresp = \"127.0.0.1:1\"\nhttp = \"127.0.0.1:2\"\ntimeout = \"9s\"\ncreate = true\nshutdown-delay = \"0s\"\n",
    )
    .unwrap();
    let mut command =
        place.command(&["serve", "--check", "--json", "--config", "idmill.toml", "--http", "none"]);
    let ran: Ran = command.env("IDMILL_SERVE_RESP", "127.0.0.1:3").output().unwrap().into();
    assert_eq!(ran.code, 0, "{ran:?}");
    let said: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(
        (&said["resp"], &said["http"], &said["timeout"]),
        (&"127.0.0.1:3".into(), &"none".into(), &"9s".into())
    );
    assert_eq!((&said["store"], &said["create"]), (&"sqlite:other.db".into(), &true.into()));
    assert_eq!(place.files(), ["idmill.toml"]);
}

/// The longest pattern that matches has precedence, and a flag is for all sequences without such a pattern.
#[test]
fn sizes_are_set_by_pattern_of_names() {
    let place = Place::new();
    let file =
        "idle = \"1h\"\n[sequences.\"*\"]\nmax-buffered = 1000\n[sequences.\"shop.*\"]\nmax-buffered = 2\n";
    fs::write(place.path().join("idmill.toml"), file).unwrap();
    let options = ["--config", "idmill.toml", "--max-buffered", "4"];
    let ran = place.run(&[&["serve", "--check", "--json"], &options[..]].concat());
    let settings: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((&settings["idle"], &settings["sequences"]["*"]["max-buffered"]), (&"1h".into(), &4.into()));
    assert_eq!(settings["sequences"]["shop.*"]["max-buffered"], 2);
    let server = started(&place, &options);
    let mut client = Client::connect(server.resp);
    for name in ["users", "shop.orders"] {
        assert_eq!(client.ask(&format!("INCR {name}")), ":1");
    }
    drop(client);
    server.tell("KILL");
    drop(server);
    let next = |name: &str| place.json(&["show", name, "--json"])["next"].as_u64().unwrap();
    assert!((2..=5).contains(&next("users")) && (2..=3).contains(&next("shop.orders")));
}

#[test]
fn equal_addresses_are_rejected_with_both_flags() {
    let place = Place::new();
    for (resp, http) in [
        ("127.0.0.1:7000", "127.0.0.1:7000"),
        ("0.0.0.0:7000", "127.0.0.1:7000"),
        ("[::1]:7000", "[::]:7000"),
    ] {
        let flags = [format!("--resp={resp}"), format!("--http={http}")];
        let ran = place.run(&["serve", "--check", "--insecure", &flags[0], &flags[1]]);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{ran:?}");
        let named = format!("`--resp {resp}` and `--http {http}` cannot share a port");
        assert!(ran.err.contains(&named), "{ran:?}");
    }
    for (resp, http) in [
        ("127.0.0.1:0", "127.0.0.1:0"),
        ("127.0.0.1:7000", "127.0.0.2:7000"),
        ("[::1]:7000", "127.0.0.1:7000"),
    ] {
        let ran = place.run(&["serve", "--check", "--resp", resp, "--http", http]);
        assert_eq!(ran.code, 0, "{ran:?}");
    }
}

#[test]
fn unusable_serve_setting_is_rejected_with_a_remedy() {
    let place = Place::new();
    fs::write(place.path().join("bad.toml"), "resp = \"127.0.0.1:1\"\nrsep = \"\"\n").unwrap();
    fs::write(place.path().join("tokens.toml"), "[[token]]\nname = \"a\"\n").unwrap();
    fs::write(place.path().join("sizes.toml"), "[sequences.\"*\"]\nmax-bufered = 1\n").unwrap();
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
        (&["--config", "sizes.toml"], "sizes.toml, line 2"),
        (&["--order", "any"], "use process, thread or global"),
        (&["--tokens", "tokens.toml"], "tokens.toml, line 1"),
        (&["--resp", &taken], "choose another address"),
    ] {
        let mut command = place.command(&[&["serve"], args].concat());
        let ran: Ran = command.env("IDMILL_SERVE_HTTP", "none").output().unwrap().into();
        assert_eq!(ran.code, 2, "{args:?}: {ran:?}");
        assert!(ran.err.contains(words), "{args:?}: {ran:?}");
    }
}

/// Runs commands with the server as their store, as on a machine that can reach only the server.
#[cfg(feature = "remote")]
#[test]
fn server_is_the_store_of_remote_commands() {
    let (place, elsewhere) = (Place::new(), Place::new());
    let server = started(&place, &["--create=false"]);
    let url = format!("idmill://{}?timeout=60s", server.resp);
    let run = |args: &[&str]| elsewhere.run(&[args, &["--store", &url]].concat());
    let refused = run(&["next", "orders"]);
    assert!(refused.code == 4 && refused.err.contains("none is created"), "{refused:?}");
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
    let server = started(&place, &["--tokens", "tokens.toml"]);
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
