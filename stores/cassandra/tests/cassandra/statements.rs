//! A proxy between a store and a node. It parses CQL frames (version 4 of the protocol), and holds back or
//! misspells the statements that a test selects.
//!
//! Rules match the text of a statement. A prepared statement is executed by its id, so the proxy keeps the
//! texts of prepared statements.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use idmill_conformance::Proxy;
use idmill_conformance::proxy::{Fault, Gate, Piece};
use parking_lot::Mutex;

const QUERY: u8 = 0x07;
const RESULT: u8 = 0x08;
const PREPARE: u8 = 0x09;
const EXECUTE: u8 = 0x0A;
/// The result kind of a reply to PREPARE, which contains the id of the prepared statement.
const PREPARED: [u8; 4] = [0, 0, 0, 4];

/// A proxy that matches statements.
pub(crate) struct Between {
    proxy: Proxy,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// Texts of statements that are being prepared, by connection and stream of the reply.
    preparing: HashMap<(u64, [u8; 2]), String>,
    /// Texts of prepared statements, by id.
    prepared: HashMap<Vec<u8>, String>,
    rules: Vec<Rule>,
}

/// An action for the next `times` requests whose statement contains `statement` and whose frame contains
/// `bytes`.
struct Rule {
    statement: String,
    bytes: Vec<u8>,
    times: usize,
    act: Act,
}

enum Act {
    /// Replaces the matching bytes with these bytes, which have the same length.
    Misspell(Vec<u8>),
    /// Holds the request back.
    Hold(Gate),
}

impl Between {
    pub(crate) async fn to(node: SocketAddr) -> Self {
        let state = Arc::<Mutex<State>>::default();
        let IpAddr::V4(ip) = node.ip() else { panic!("{node}") };
        let [a, b, c, _] = ip.octets();
        for last in 100..=250 {
            // Use the node's port, because the driver assumes that all nodes use the same port.
            let beside = SocketAddr::from((Ipv4Addr::new(a, b, c, last), node.port()));
            let (requests, answers) = (state.clone(), state.clone());
            let builder = Proxy::builder(node)
                .listen(beside)
                .frames(length)
                .requests(move |request| requests.lock().requested(request))
                .answers(move |answer| answers.lock().answered(answer));
            match builder.start().await {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                proxy => return Self { proxy: proxy.unwrap(), state },
            }
        }
        panic!("all addresses beside {node} are taken");
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.proxy.address()
    }

    /// Holds back the next request of a statement that contains this text, with this name among its values.
    pub(crate) fn hold(&self, statement: &str, name: &str) -> Gate {
        let gate = Gate::new();
        self.rule(statement, name, 1, Act::Hold(gate.clone()));
        gate
    }

    /// Replaces `right` with `wrong`, of the same length, in the next `times` requests that contain `right`
    /// and whose statement contains `statement`. The node then reports an unknown keyspace or table.
    pub(crate) fn misspell(&self, statement: &str, right: &str, wrong: &str, times: usize) {
        assert_eq!(right.len(), wrong.len());
        self.rule(statement, right, times, Act::Misspell(wrong.into()));
    }

    fn rule(&self, statement: &str, bytes: &str, times: usize, act: Act) {
        self.state.lock().rules.push(Rule {
            statement: statement.to_owned(),
            bytes: bytes.into(),
            times,
            act,
        });
    }

    /// Returns the number of requests for which the rules still wait.
    pub(crate) fn outstanding(&self) -> usize {
        self.state.lock().rules.iter().map(|rule| rule.times).sum()
    }
}

impl State {
    fn requested(&mut self, request: &mut Piece<'_>) -> Option<Fault> {
        let frame = Frame(request.bytes);
        let text = match frame.opcode() {
            PREPARE => {
                self.preparing.insert((request.connection, frame.stream()), frame.text());
                return None;
            }
            QUERY => frame.text(),
            EXECUTE => self.prepared.get(frame.id(0))?.clone(),
            _ => return None,
        };
        let meant = |rule: &&mut Rule| rule.times > 0 && text.contains(&rule.statement);
        for rule in self.rules.iter_mut().filter(meant) {
            let mut parts = request.bytes.windows(rule.bytes.len());
            let Some(at) = parts.position(|bytes| bytes == rule.bytes) else { continue };
            rule.times -= 1;
            match &rule.act {
                Act::Misspell(wrong) => request.bytes[at..][..wrong.len()].copy_from_slice(wrong),
                Act::Hold(gate) => return Some(Fault::HoldAlone(gate.clone())),
            }
        }
        None
    }

    fn answered(&mut self, answer: &Piece<'_>) {
        let frame = Frame(answer.bytes);
        if frame.opcode() == RESULT && frame.body().starts_with(&PREPARED) {
            let text = self.preparing.remove(&(answer.connection, frame.stream()));
            self.prepared.insert(frame.id(4).to_vec(), text.expect("a prepared statement was requested"));
        }
    }
}

const HEADER: usize = 9;

fn length(bytes: &[u8]) -> Option<usize> {
    let body = u32::from_be_bytes(*bytes.get(5..HEADER)?.first_chunk()?);
    Some(HEADER + body as usize)
}

struct Frame<'a>(&'a [u8]);

impl Frame<'_> {
    fn stream(&self) -> [u8; 2] {
        [self.0[2], self.0[3]]
    }

    fn opcode(&self) -> u8 {
        self.0[4]
    }

    fn body(&self) -> &[u8] {
        &self.0[HEADER..]
    }

    /// Returns the text at the start of a QUERY or PREPARE body.
    fn text(&self) -> String {
        let (length, text) = self.body().split_first_chunk().expect("four bytes");
        String::from_utf8_lossy(&text[..u32::from_be_bytes(*length) as usize]).into_owned()
    }

    /// Returns the id at this offset: 0 in EXECUTE, and after the kind in the result of PREPARE.
    fn id(&self, from: usize) -> &[u8] {
        let (length, id) = self.body()[from..].split_first_chunk().expect("two bytes");
        &id[..usize::from(u16::from_be_bytes(*length))]
    }
}
