//! Tokens and certificates: their files are reloaded, and invalid ones are rejected.

use std::fs;

use idmill_testing::fleet::Client;

use super::{logged, started};
use crate::common::Place;

#[test]
fn tokens_are_reloaded_on_sighup() {
    let place = Place::new();
    assert_eq!(place.run(&["create", "orders"]).code, 0);
    let made = place.json(&["token", "shop", "--right", "draw", "--sequence", "ord*", "--json"]);
    let (token, file) = (made["token"].as_str().unwrap(), place.path().join("tokens.toml"));
    fs::write(&file, made["entry"].as_str().unwrap()).unwrap();
    let server = started(&place, &["--tokens", "tokens.toml"]);
    let mut client = Client::connect(server.resp);
    assert!(client.ask("INCR orders").starts_with("-NOAUTH"));
    assert_eq!(client.ask(&format!("AUTH {token}")), "+OK");
    assert_eq!(client.ask("INCR orders"), ":1");
    // An invalid file changes nothing.
    fs::write(&file, "[[token]]\nname = 1\n").unwrap();
    server.tell("HUP");
    let line = logged(&server, "the tokens were not reloaded");
    assert!(line.to_string().contains("line 2"), "{line}");
    assert_eq!(client.ask("INCR orders"), ":2");
    fs::write(&file, "").unwrap();
    server.tell("HUP");
    // An empty file locks out every client, so this is a warning.
    let line = logged(&server, "the tokens were reloaded");
    assert!(line["level"] == "WARN" && line.to_string().contains("clients are rejected"), "{line}");
    assert!(client.ask("INCR orders").starts_with("-WRONGPASS"));
    let (_, log) = server.end();
    assert!(!log.contains(token), "{log}");
}

/// Returns the file entry that `idmill token` prints, and the token.
fn made(place: &Place, name: &str) -> (String, String) {
    let made = place.json(&["token", name, "--right", "draw", "--sequence", "*", "--json"]);
    (made["entry"].as_str().unwrap().to_owned(), made["token"].as_str().unwrap().to_owned())
}

/// The server must compare contents: tools can preserve the modification time, and the old and the new entry
/// have the same length.
#[test]
fn token_file_of_the_same_time_and_size_is_read_again() {
    let place = Place::new();
    assert_eq!(place.run(&["create", "orders"]).code, 0);
    let (file, (old, token), (new, _)) =
        (place.path().join("tokens.toml"), made(&place, "a"), made(&place, "b"));
    fs::write(&file, &old).unwrap();
    let written = fs::metadata(&file).unwrap().modified().unwrap();
    let server = started(&place, &["--tokens", "tokens.toml"]);
    let mut client = Client::connect(server.resp);
    assert_eq!(client.ask(&format!("AUTH {token}")), "+OK");
    fs::write(&file, &new).unwrap();
    fs::File::options().write(true).open(&file).unwrap().set_modified(written).unwrap();
    assert_eq!(old.len(), new.len());
    logged(&server, "the tokens were reloaded");
    assert!(client.ask("INCR orders").starts_with("-WRONGPASS"));
}

#[test]
fn invalid_tokens_are_rejected_by_check() {
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
    let server = started(&place, &["--tls-cert", "server.pem", "--tls-key", "server.key"]);
    certified(&place, 2021);
    server.tell("HUP");
    let line = logged(&server, "the certificates were not reloaded");
    assert!(line.to_string().contains("expired on 2021-01-01"), "{line}");
    certified(&place, 2998);
    server.tell("HUP");
    logged(&server, "the certificates were reloaded");
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

#[test]
fn expired_certificate_is_reported() {
    let place = Place::new();
    certified(&place, 2021);
    let files = ["--tls-cert", "server.pem", "--tls-key", "server.key"];
    let ran = place.run(&[&["serve", "--check"][..], &files].concat());
    assert!(ran.code == 0 && ran.out.contains("yes, until 2021-01-01T00:00:00Z"), "{ran:?}");
    assert!(ran.err.contains("server.pem has expired") && ran.err.contains("replace it"), "{ran:?}");
    let said = place.json(&[&["serve", "--check", "--json"][..], &files].concat());
    assert_eq!(said["certificate-expires"], "2021-01-01T00:00:00Z");
    let server = started(&place, &files);
    logged(&server, "server.pem has expired");
}

#[test]
fn token_with_an_invalid_right_or_pattern_is_rejected() {
    let place = Place::new();
    for (right, sequence, words) in
        [("admin", "orders", "administer"), ("draw", "a*b", "not at its end"), ("draw", "", "is empty")]
    {
        let ran = place.run(&["token", "shop", "--right", right, "--sequence", sequence]);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{ran:?}");
        assert!(ran.err.contains(words), "{ran:?}");
    }
}
