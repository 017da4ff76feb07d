//! Tokens that are wrong or expire, in every state of a connection.

use idmill::store::Store;
use idmill_server::{Access, Pattern, Rights, Secret, Token};
use idmill_testing::faulty::FaultyStore;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::common::{Client, Running};

fn token(secret: &Secret) -> Token {
    Token::new("shop", secret.hash(), Rights::ALL, vec![Pattern::any()])
}

/// Starts a server with one token and an empty store.
async fn served() -> (Running, Access, Secret, FaultyStore) {
    let (secret, store) = (Secret::fresh().unwrap(), FaultyStore::new());
    let access = Access::by([token(&secret)]);
    let server = Running::with(store.clone(), |server| server.access(access.clone())).await;
    (server, access, secret, store)
}

#[tokio::test]
async fn wrong_token_in_a_pipeline_revokes_the_login() {
    let (server, _, secret, _) = served().await;
    let (good, mut client) = (secret.reveal(), server.client().await);
    client.send(format!("INCR s\r\nAUTH {good}\r\nINCR s\r\nAUTH wrong\r\nINCR s\r\nGET s\r\nHELLO 3 AUTH x {good}\r\nINCR s\r\n")).await;
    for answer in ["-NOAUTH", "+OK", ":1", "-WRONGPASS", "-NOAUTH", "-NOAUTH", "%7"] {
        let line = client.line().await;
        assert!(line.starts_with(answer), "{line}, and not {answer}");
    }
    let mut line = client.line().await;
    while !line.starts_with("*0") {
        line = client.line().await;
    }
    assert_eq!(client.line().await, ":2");
}

#[tokio::test]
async fn removed_token_aborts_an_open_transaction() {
    let (server, access, secret, store) = served().await;
    let mut client = server.client().await;
    assert_eq!(client.ask(&format!("AUTH {}", secret.reveal())).await, "+OK");
    assert_eq!(client.ask("MULTI").await, "+OK");
    assert_eq!(client.ask("INCR s").await, "+QUEUED");
    access.replace([]);
    assert!(client.ask("EXEC").await.starts_with("-WRONGPASS"));
    assert_eq!(client.rest().await, "");
    assert!(store.inspect(&"s".parse().unwrap()).await.unwrap().is_none());
}

#[tokio::test]
async fn transaction_ends_with_the_token_that_began_it() {
    let (server, access, secret, store) = served().await;
    let other = Secret::fresh().unwrap();
    let mut none = token(&other);
    none.rights = Rights::default();
    access.replace([token(&secret), none]);
    let mut client = server.client().await;
    assert_eq!(client.ask(&format!("AUTH {}", secret.reveal())).await, "+OK");
    for login in [format!("AUTH {}", other.reveal()), format!("HELLO 3 AUTH x {}", other.reveal())] {
        client.send(format!("MULTI\r\nINCR s\r\n{login}\r\nINCR s\r\nEXEC\r\n")).await;
        for answer in ["+OK", "+QUEUED", "-ERR AUTH and HELLO", "+QUEUED", "-EXECABORT"] {
            let line = client.line().await;
            assert!(line.starts_with(answer), "{line}, and not {answer}");
        }
    }
    assert!(store.inspect(&"s".parse().unwrap()).await.unwrap().is_none());
    // `RESET` does not restore another token's rights.
    client.send(format!("MULTI\r\nRESET\r\nAUTH {}\r\nINCR s\r\n", other.reveal())).await;
    for answer in ["+OK", "+RESET", "+OK", "-NOPERM"] {
        let line = client.line().await;
        assert!(line.starts_with(answer), "{line}, and not {answer}");
    }
}

/// A keep-alive connection has no rights: each request uses its own token.
#[tokio::test]
async fn each_http_request_is_authenticated() {
    let (server, access, secret, _) = served().await;
    let mut client = Client::to(server.http).await;
    let mut status = async |token: Option<&str>| {
        let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
        let request = format!("POST /v1/sequences/s/ids HTTP/1.1\r\nHost: ids\r\n{token}\r\n");
        client.0.stream().write_all(request.as_bytes()).await.unwrap();
        let (head, mut len) = (client.line().await, 0);
        loop {
            let line = client.rest_of_line().await.to_ascii_lowercase();
            match line.strip_prefix("content-length: ") {
                Some(digits) => len = digits.parse().unwrap(),
                None if line.is_empty() => break,
                None => {}
            }
        }
        client.0.stream().read_exact(&mut vec![0; len]).await.unwrap();
        head.split(' ').nth(1).unwrap().to_owned()
    };
    assert_eq!(status(Some(secret.reveal())).await, "200");
    assert_eq!(status(None).await, "401");
    assert_eq!(status(Some("wrong")).await, "401");
    assert_eq!(status(Some(secret.reveal())).await, "200");
    access.replace([]);
    assert_eq!(status(Some(secret.reveal())).await, "401");
    access.replace([token(&secret)]);
    assert_eq!(status(Some(secret.reveal())).await, "200");
}
