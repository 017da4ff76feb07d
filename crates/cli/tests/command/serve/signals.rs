//! Signals that stop the server, and signals that do not.

use idmill_testing::fleet::Client;

use super::started;
use crate::common::Place;

#[test]
fn stop_signals_give_back_unused_ids() {
    for signal in ["TERM", "INT", "QUIT"] {
        let place = Place::new();
        assert_eq!(place.run(&["create", "orders"]).code, 0);
        let server = started(&place, &[]);
        assert_eq!(Client::connect(server.resp).ask("INCRBY orders 7"), ":7");
        server.tell(signal);
        let (code, log) = server.wait();
        assert_eq!(code, Some(0), "{signal}: {log}");
        assert!(log.contains("stopping; pending requests") && log.contains("\"ended\""), "{signal}: {log}");
        assert_eq!(place.run(&["next", "orders"]).ids(), [8], "{signal}");
    }
}

#[test]
fn user_signals_are_ignored() {
    let place = Place::new();
    let server = started(&place, &[]);
    assert_eq!(Client::connect(server.resp).ask("INCR orders"), ":1");
    for (signal, id) in [("USR1", ":2"), ("USR2", ":3")] {
        server.tell(signal);
        assert_eq!(Client::connect(server.resp).ask("INCR orders"), id, "{signal}");
    }
    assert_eq!(server.end().0, Some(0));
}
