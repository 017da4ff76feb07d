//! Logs of a server contain no secrets at any level.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use idmill_testing::fleet::{Server, request, talk};
use serde_json::Value;

use crate::common::{Place, Ran};

const PASSWORD: &str = "hunter2-of-nobody-else";

/// Returns the address of a store that accepts connections, and answers with nothing or with nonsense.
fn nonsense() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut stream = stream;
                stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
                // The server echoes the request, which contains the password.
                let mut bytes = [0; 4096];
                while let Ok(read @ 1..) = stream.read(&mut bytes) {
                    let _ = stream.write_all(&bytes[..read]);
                }
            });
        }
    });
    address
}

/// The password must stay hidden, whatever a driver does with the URL, and whatever error the driver returns.
#[test]
fn store_password_is_never_logged() {
    let place = Place::new();
    let at = nonsense();
    let urls = [
        format!("postgres://app:{PASSWORD}@{at}/shop?sslmode=disable"),
        format!("mysql://app:{PASSWORD}@{at}/shop"),
        format!("redis://app:{PASSWORD}@{at}"),
        format!("mongodb://app:{PASSWORD}@{at}/shop"),
        format!("etcd://app:{PASSWORD}@{at}"),
        format!("cassandra://app:{PASSWORD}@{at}/shop"),
        format!("postgres://app:{PASSWORD}@{at}/shop?nonsense={PASSWORD}"),
    ];
    // Run the attempts in parallel, because each takes half a minute.
    thread::scope(|scope| {
        for (url, format) in urls.iter().flat_map(|url| ["text", "json"].map(|format| (url, format))) {
            let place = &place;
            scope.spawn(move || is_not_logged(place, url, format));
        }
    });
}

fn is_not_logged(place: &Place, url: &str, format: &str) {
    let serve = ["serve", "-vv", "--resp=127.0.0.1:0", "--http=127.0.0.1:0", "--log-format", format];
    let mut command = place.command(&serve);
    let ran: Ran = command.env("IDMILL_STORE", url).output().unwrap().into();
    let scheme = url.split(':').next().unwrap();
    assert_ne!(ran.code, 0, "{scheme}");
    assert!(!ran.err.is_empty() && !ran.err.contains(PASSWORD), "{scheme}: {}", ran.err);
}

/// Tests both protocols, with a valid and an invalid token. Changes made with the valid token are logged.
#[test]
fn token_is_never_logged_but_its_acts_are() {
    for format in ["text", "json"] {
        let place = Place::new();
        assert_eq!(place.run(&["create", "orders"]).code, 0);
        let made = place.json(&[
            "token",
            "shop",
            "--right",
            "draw",
            "--right",
            "administer",
            "--sequence",
            "*",
            "--json",
        ]);
        let token = made["token"].as_str().unwrap();
        fs::write(place.path().join("tokens.toml"), made["entry"].as_str().unwrap()).unwrap();
        let mut serve = place.command(&["serve", "-vv", "--resp=127.0.0.1:0", "--http=127.0.0.1:0"]);
        let served = Server::start(serve.args(["--tokens", "tokens.toml", "--log-format", format]));
        talk(
            served.resp,
            &format!(
                "AUTH {token}\r\nINCR orders\r\nAUTH {token}x\r\nHELLO 3 AUTH default {token}\r\nQUIT\r\n"
            ),
        );
        for (token, status) in [(token.to_owned(), "201"), (format!("{token}x"), "401")] {
            let headers = format!("Authorization: Bearer {token}\r\nContent-Type: application/json\r\n");
            let answer =
                request(served.http, &format!("PUT /v1/sequences/{status}"), &headers, "{\"start\":1}");
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
        }
        let audit = served.until_logged("\"done\"");
        assert!(audit.contains("idmill::audit"), "{audit}");
        if format == "json" {
            let audit: Value = serde_json::from_str(&audit).unwrap();
            let fields = &audit["fields"];
            assert_eq!((&fields["by"], &fields["sequence"]), (&"shop".into(), &"201".into()), "{audit}");
            assert_eq!(fields["message"], "create", "{audit}");
        } else {
            assert!(audit.contains("by=\"shop\"") && audit.contains("sequence=\"201\""), "{audit}");
        }
        let (_, log) = served.end();
        assert!(log.contains("TRACE") || log.contains("DEBUG"), "nothing more than usual is logged: {log}");
        assert!(!log.contains(token), "{log}");
    }
}
