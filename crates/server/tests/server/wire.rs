//! Commands and their answers, byte for byte.

use idmill_kit::Existing;
use idmill_server::{Access, Pattern, Right, Secret, Token};
use idmill_testing::faulty::FaultyStore;

use crate::common::{Running, Watched, with_orders};
use crate::ready::until_ready;

#[tokio::test]
async fn ids_are_drawn_one_by_one_in_blocks_and_in_ranges() {
    let server = Running::over(FaultyStore::new()).await;
    let mut client = server.client().await;
    assert_eq!(client.ask("GET orders").await, "$-1");
    assert_eq!(client.ask("INCR orders").await, ":1");
    assert_eq!(client.ask("incr orders").await, ":2");
    assert_eq!(client.ask("INCRBY orders 10").await, ":12");
    assert_eq!(client.ask("IDMILL.TAKE orders 3").await, "*2");
    assert_eq!([client.line().await, client.line().await], [":13", ":15"]);
    assert_eq!(client.ask("GET orders").await, "$2");
    assert_eq!(client.line().await, "15");
    assert_eq!(client.ask("EXISTS orders nothing").await, ":1");
}

#[tokio::test]
async fn exists_reads_all_names_in_one_call() {
    let store = Watched::default();
    let server = Running::over(store.clone()).await;
    let mut client = server.client().await;
    client.id("INCR orders").await;
    // The server reads the store by itself until it is ready.
    until_ready(&server).await;
    let before = store.calls();
    assert_eq!(client.ask("EXISTS orders a b orders c d e f").await, ":2");
    assert_eq!(store.calls() - before, 1);
    store.break_all(true);
    assert!(client.ask("EXISTS orders a").await.starts_with("-VIOLATION"));
    assert!(client.ask(&format!("EXISTS orders {}", "a".repeat(201))).await.starts_with("-ERR"));
    assert_eq!(store.calls() - before, 2, "an invalid name is rejected without a call");
}

#[tokio::test]
async fn split_pipeline_is_answered_in_order() {
    let server = Running::over(FaultyStore::new()).await;
    let mut client = server.client().await;
    let commands =
        (0..500).map(|at| format!("*2\r\n$4\r\nECHO\r\n$3\r\n{at:03}\r\n*2\r\n$4\r\nINCR\r\n$1\r\ns\r\n"));
    let pipeline = commands.collect::<Vec<_>>().concat();
    for part in pipeline.as_bytes().chunks(777) {
        client.send(part).await;
    }
    for at in 0..500 {
        assert_eq!(client.line().await, "$3");
        assert_eq!(client.line().await, format!("{at:03}"));
        assert_eq!(client.line().await, format!(":{}", at + 1));
    }
}

#[tokio::test]
async fn transaction_runs_at_exec_or_not_at_all() {
    let server = Running::over(FaultyStore::new()).await;
    let mut client = server.client().await;
    assert_eq!(client.ask("INCR s").await, ":1");
    assert_eq!(client.ask("EXEC").await, "-ERR EXEC without MULTI");
    assert_eq!(client.ask("MULTI").await, "+OK");
    assert_eq!(client.ask("INCR s").await, "+QUEUED");
    assert_eq!(client.ask("INCRBY s -1").await, "+QUEUED");
    assert_eq!(client.ask("INCRBY s 10").await, "+QUEUED");
    // The queued commands have not drawn yet.
    assert_eq!(server.client().await.ask("INCR s").await, ":2");
    assert_eq!(client.ask("EXEC").await, "*3");
    assert_eq!(client.line().await, ":3");
    assert!(client.line().await.contains("at least 1"));
    assert_eq!(client.line().await, ":13");
    for (spoils, answer) in [("SET s 1", "only count upwards"), ("INCR", "wrong number")] {
        assert_eq!(client.ask("MULTI").await, "+OK");
        assert_eq!(client.ask("INCR s").await, "+QUEUED");
        assert!(client.ask(spoils).await.contains(answer));
        assert!(client.ask("EXEC").await.starts_with("-EXECABORT"));
    }
    assert_eq!(client.ask("MULTI").await, "+OK");
    assert_eq!(client.ask("INCR s").await, "+QUEUED");
    assert_eq!(client.ask("DISCARD").await, "+OK");
    assert_eq!(client.ask("INCR s").await, ":14");
}

#[tokio::test]
async fn buffered_transaction_has_a_size_limit() {
    let server = Running::over(FaultyStore::new()).await;
    let mut client = server.client().await;
    assert_eq!(client.ask("MULTI").await, "+OK");
    let (mut queued, word) = (0, "x".repeat(10_000));
    while client.ask(&format!("PING {word}")).await == "+QUEUED" {
        queued += 1;
        assert!(queued < 100, "a megabyte is kept");
    }
    assert!(client.ask("EXEC").await.starts_with("-EXECABORT"));
}

/// Libraries send `INFO` on each connection, so it omits sequences.
#[tokio::test]
async fn info_lists_sequences_on_request() {
    let secrets = [Secret::fresh().unwrap(), Secret::fresh().unwrap()];
    let token = |at: usize, right: Right| {
        Token::new("t", secrets[at].hash(), [Right::Draw, right].into_iter().collect(), vec![Pattern::any()])
    };
    let access = Access::by([token(0, Right::Observe), token(1, Right::Reserve)]);
    let server = Running::with(with_orders().await, |server| server.access(access)).await;
    for (secret, command, listed) in [
        (0, "INFO", "+OK"),
        (0, "INFO sequences", "orders:last="),
        (1, "INFO", "+OK"),
        (1, "INFO sequences", "-NOPERM"),
    ] {
        let mut client = server.client().await;
        client
            .send(format!("AUTH {}\r\nINCR orders\r\n{command}\r\nQUIT\r\n", secrets[secret].reveal()))
            .await;
        let said = client.rest().await;
        assert!(said.contains(listed), "{command}: {said}");
        assert_eq!(said.contains("orders:"), listed.starts_with("orders"), "{command}: {said}");
    }
}

#[tokio::test]
async fn concurrent_clients_get_different_ids() {
    let server = Running::over(FaultyStore::new()).await;
    let mut clients = Vec::new();
    for _ in 0..20 {
        let mut client = server.client().await;
        clients.push(tokio::spawn(async move {
            let mut ids = Vec::new();
            for _ in 0..200 {
                ids.push(client.id("INCR s").await);
            }
            assert!(ids.is_sorted_by(|one, next| one < next));
            ids
        }));
    }
    let mut all = Vec::new();
    for client in clients {
        all.extend(client.await.unwrap());
    }
    all.sort_unstable();
    assert_eq!(all, (1..=4000).collect::<Vec<_>>());
}

#[tokio::test]
async fn request_that_repeats_ids_is_rejected_with_a_fix() {
    let server = Running::over(with_orders().await).await;
    let mut client = server.client().await;
    for command in
        ["SET orders 1", "DEL orders", "DECR orders", "FLUSHALL", "EXPIRE orders 1", "GETSET orders 1"]
    {
        let answer = client.ask(command).await;
        assert!(answer.starts_with("-ERR") && answer.contains("idmill set"), "{command}: {answer}");
    }
    for command in ["INCRBY orders 0", "INCRBY orders -1"] {
        let answer = client.ask(command).await;
        assert!(answer.contains("at least 1"), "{command}: {answer}");
    }
    for (command, words) in [
        ("INCR", "wrong number of arguments for 'incr'"),
        ("INCRBY orders x", "not an integer"),
        ("INCRBY orders 99999999999999999999", "not an integer"),
        ("INCRBY orders 9000000000000000000", "the maximum is 1000000"),
        ("SELECT 1", "separate sequences by a prefix of their names"),
        ("EVAL return", "unknown command 'eval'"),
        ("AUTH x", "no tokens"),
        ("INCR a\u{1}b", "control character"),
    ] {
        let answer = client.ask(command).await;
        assert!(answer.starts_with("-ERR") && answer.contains(words), "{command}: {answer}");
    }
    assert_eq!(client.id("INCR orders").await, 1);
}

#[tokio::test]
async fn second_incr_checks_its_number_of_arguments() {
    let server = Running::over(FaultyStore::new()).await;
    let mut client = server.client().await;
    assert_eq!(client.ask("INCR s").await, ":1");
    assert!(client.ask("INCR s more").await.contains("wrong number of arguments"));
    assert_eq!(client.ask("INCR s").await, ":2");
}

#[tokio::test]
async fn config_states_that_the_server_saves_no_data() {
    let server = Running::over(FaultyStore::new()).await;
    let mut client = server.client().await;
    client.send("CONFIG GET save appendonly port\r\nCONFIG SET save x\r\nQUIT\r\n").await;
    let answers = client.rest().await;
    let expected = "*4\r\n$4\r\nsave\r\n$0\r\n\r\n$10\r\nappendonly\r\n$2\r\nno\r\n-ERR unknown CONFIG";
    assert!(answers.starts_with(expected), "{answers}");
}

/// `GET /x` is an HTTP request only if `HTTP/` follows.
#[tokio::test]
async fn name_that_begins_with_a_slash_is_a_name() {
    let server = Running::over(FaultyStore::new()).await;
    let mut client = server.client().await;
    client.send("*2\r\n$4\r\nINCR\r\n$2\r\n/x\r\n*2\r\n$3\r\nGET\r\n$2\r\n/x\r\n").await;
    assert_eq!([client.line().await, client.line().await, client.line().await], [":1", "$1", "1"]);
    assert_eq!(client.ask("INCR /x").await, ":2");
}

#[tokio::test]
async fn missing_sequence_is_an_error_without_create() {
    let server = Running::over(Existing::of(with_orders().await)).await;
    let mut client = server.client().await;
    let answer = client.ask("INCR ordres").await;
    assert!(answer.starts_with("-NOTFOUND"), "{answer}");
    assert_eq!(client.ask("INCR orders").await, ":1");
}

#[tokio::test]
async fn both_protocol_versions_are_supported() {
    let server = Running::over(FaultyStore::new()).await;
    let mut client = server.client().await;
    assert_eq!(client.ask("HELLO 4").await, "-NOPROTO unsupported protocol version; use 2 or 3");
    assert_eq!(client.ask("HELLO").await, "*14");
    let mut client = server.client().await;
    assert_eq!(client.ask("HELLO 3 SETNAME me").await, "%7");
    let mut client = server.client().await;
    client.send("HELLO 3\r\nRESET\r\nHELLO\r\nQUIT\r\n").await;
    let answers = client.rest().await;
    assert!(answers.contains("%7\r\n") && answers.contains("+RESET\r\n*14\r\n"), "{answers}");
    assert!(answers.ends_with("+OK\r\n"), "{answers}");
    for after in ["more", "SETNAME me more", "SETNAME me SETNAME you more"] {
        let answer = server.client().await.ask(&format!("HELLO 3 {after}")).await;
        assert!(answer.starts_with("-ERR syntax error in HELLO"), "{after}: {answer}");
    }
}

/// Several servers draw from the same sequence. If another server's range splits a block, the block is
/// skipped.
#[tokio::test]
async fn block_is_contiguous_with_concurrent_servers() {
    let store = FaultyStore::new();
    let servers = [Running::over(store.clone()).await, Running::over(store).await];
    let mut tasks = Vec::new();
    for server in &servers {
        let mut client = server.client().await;
        tasks.push(tokio::spawn(async move {
            let mut blocks = Vec::new();
            for n in (1..=40).cycle().take(400) {
                let last = client.id(&format!("INCRBY s {n}")).await;
                blocks.push((last + 1 - n, last));
            }
            blocks
        }));
    }
    let mut blocks = Vec::new();
    for task in tasks {
        blocks.extend(task.await.unwrap());
    }
    blocks.sort_unstable();
    assert_eq!(blocks.len(), 800);
    assert!(blocks.windows(2).all(|pair| pair[0].1 < pair[1].0), "{blocks:?}");
}
