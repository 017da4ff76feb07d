//! Error codes, and ids that a client did not read.

use std::time::Duration;

use idmill::{Error, ErrorKind};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::reply::Answer;
use super::request::{LONGEST, Words, parse};
use super::session::{CommandError, Queue};
use crate::access::{Access, Refusal, Right};
use crate::peer::Peer;
use crate::state::ServerState;

#[test]
fn each_kind_of_error_has_its_code() {
    use ErrorKind::{
        AlreadyExists, Closed, Conflict, Deadline, Empty, Exhausted, NotFound, Overloaded, StoreViolation,
        Unavailable, UnknownOutcome, Witness,
    };
    for &kind in ErrorKind::ALL {
        let code = match kind {
            Empty | Overloaded | Deadline | Unavailable => "TRYAGAIN",
            UnknownOutcome => "UNKNOWN",
            Exhausted => "EXHAUSTED",
            NotFound => "NOTFOUND",
            AlreadyExists => "EXISTS",
            Conflict => "CONFLICT",
            StoreViolation => "VIOLATION",
            Witness => "WITNESS",
            Closed => "CLOSED",
            _ => "ERR",
        };
        let answer = CommandError::from(Error::new(kind, "why")).answer();
        assert_eq!(answer, Answer::Error(code, "why".into()), "{kind}");
    }
}

#[test]
fn each_refusal_has_its_code() {
    let time = Duration::from_secs(2);
    for (refusal, code) in [
        (Refusal::Wrong, "WRONGPASS"),
        (Refusal::Ended, "WRONGPASS"),
        (Refusal::Right(Right::Draw), "NOPERM"),
        (Refusal::Sequence, "NOPERM"),
        (Refusal::Ids(100), "NOPERM"),
        (Refusal::Burst(10), "NOPERM"),
        (Refusal::NoneNew, "NOPERM"),
        (Refusal::Rate(time), "TRYAGAIN"),
        (Refusal::Memory, "TRYAGAIN"),
        (Refusal::Connections(2), "TRYAGAIN"),
        (Refusal::Created(time), "TRYAGAIN"),
    ] {
        assert_eq!(CommandError::from(refusal).answer(), Answer::Error(code, refusal.to_string().into()));
    }
    let nobody = "Authentication required: send AUTH with a token of this server";
    assert_eq!(CommandError::from(Refusal::Nobody).answer(), Answer::Error("NOAUTH", nobody.into()));
}

/// Sends commands, and reads the answers if `reads`. Returns the number of ids that are counted as unread.
async fn unread(commands: &str, reads: bool) -> Option<DebugValue> {
    let recorder = DebuggingRecorder::new();
    let (_recording, seen) = (metrics::set_default_local_recorder(&recorder), recorder.snapshotter());
    let (mut client, served) = tokio::io::duplex(1 << 16);
    client.write_all(commands.as_bytes()).await.unwrap();
    let serving = super::serve(ServerState::of_memory(Access::open()), served, Peer::default(), 1);
    if reads {
        client.shutdown().await.unwrap();
        let (read, ()) = futures_util::join!(async { client.read_to_end(&mut Vec::new()).await }, serving);
        assert!(read.unwrap() > 0);
    } else {
        drop(client);
        serving.await;
    }
    let counted = seen.snapshot().into_vec().into_iter();
    let mut counted = counted.map(|(key, _, _, value)| (key.key().name().to_owned(), value));
    counted.find(|(name, _)| name == "idmill_server_unread_ids_total").map(|(_, value)| value)
}

#[tokio::test(start_paused = true)]
async fn drawn_ids_of_each_command_are_counted_if_unread() {
    for (commands, ids) in
        [("INCR s\r\n", 1), ("INCR s\r\nINCR s\r\n", 2), ("INCRBY s 7\r\n", 7), ("IDMILL.TAKE s 5\r\n", 5)]
    {
        assert_eq!(unread(commands, false).await, Some(DebugValue::Counter(ids)), "{commands}");
        assert_eq!(unread(commands, true).await, Some(DebugValue::Counter(0)), "{commands}");
    }
}

#[test]
fn transaction_may_have_its_longest_length() {
    let mut words = Words::default();
    let bytes = b"PING\r\n";
    parse(bytes, &mut words, LONGEST).unwrap();
    let command = words.of(bytes);
    let length = command.bytes().len() + 2;
    let queue = |filled| Queue { bytes: vec![0; filled], ..Queue::default() };
    let mut full = queue(LONGEST - length);
    assert_eq!(full.add(command), Answer::Word("QUEUED"));
    assert_eq!((full.bytes.len(), full.commands, full.broken), (LONGEST, 1, false));
    let mut longer = queue(LONGEST - length + 1);
    let message = format!("the transaction is larger than {LONGEST} bytes; send EXEC more often");
    assert_eq!(longer.add(command), Answer::error(message));
    assert_eq!((longer.bytes.len(), longer.commands, longer.broken), (0, 0, true));
}
