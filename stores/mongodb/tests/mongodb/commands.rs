//! A proxy between the store and its server. It counts commands, injects a fault into a selected command,
//! and can make the server look like the primary of a replica set.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use idmill_conformance::Proxy;
use idmill_conformance::proxy::{Fault, nth};
use idmill_mongodb::driver::bson::{Document, doc};
use parking_lot::Mutex;

/// A proxy that parses commands.
#[derive(Debug)]
pub(crate) struct Between {
    proxy: Proxy,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    seen: BTreeMap<&'static str, usize>,
    /// The address to report as a primary, if any.
    primary: Option<SocketAddr>,
    last_find: Vec<u8>,
}

/// The commands that the proxy counts.
const COMMANDS: [&str; 5] = ["findAndModify", "find", "insert", "delete", "hello"];

impl Between {
    pub(crate) async fn to(server: SocketAddr) -> Self {
        let state = Arc::<Mutex<State>>::default();
        let (requests, answers) = (state.clone(), state.clone());
        let builder = Proxy::builder(server).frames(length).requests(move |request| {
            requests.lock().look(request.bytes);
            None
        });
        let builder = builder.answers(move |answer| {
            if let Some(address) = answers.lock().primary {
                promote(answer.bytes, address);
            }
        });
        Self { proxy: builder.start().await.unwrap(), state }
    }

    /// Makes the server report that it is the primary of a replica set, because the driver retries writes
    /// only on a replica set.
    pub(crate) fn replicated(self) -> Self {
        self.state.lock().primary = Some(self.address());
        self
    }

    /// Returns whether the last `find` used this read concern.
    pub(crate) fn read_with(&self, concern: &str) -> bool {
        self.state.lock().last_find.windows(concern.len()).any(|part| part == concern.as_bytes())
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.proxy.address()
    }

    /// Injects the fault into the next command of this name.
    pub(crate) fn arm(&self, command: &'static str, fault: Fault) {
        self.proxy.arm(fault, nth(0, move |request| names(request, command)));
    }

    /// Returns the number of commands with these names since the last call.
    pub(crate) fn counts<const N: usize>(&self, commands: [&'static str; N]) -> [usize; N] {
        let mut state = self.state.lock();
        let counts = commands.map(|command| state.seen.get(command).copied().unwrap_or_default());
        state.seen.clear();
        counts
    }
}

impl State {
    fn look(&mut self, request: &[u8]) {
        let Some(command) = COMMANDS.into_iter().find(|command| names(request, command)) else { return };
        if command == "find" {
            request.clone_into(&mut self.last_find);
        }
        *self.seen.entry(command).or_default() += 1;
    }
}

/// Returns the length of a message, which is at its start.
fn length(bytes: &[u8]) -> Option<usize> {
    Some(u32::from_le_bytes(*bytes.first_chunk()?) as usize)
}

/// Returns whether the first field of the document has this name. The field is preceded by 26 bytes: header
/// 16, flags 4, section kind 1, length 4, type 1.
fn names(message: &[u8], command: &str) -> bool {
    message
        .get(26..)
        .is_some_and(|rest| rest.starts_with(command.as_bytes()) && rest.get(command.len()) == Some(&0))
}

/// Adds the fields of a primary to a reply to `hello` or its older name. Leaves other replies unchanged.
fn promote(reply: &mut Vec<u8>, address: SocketAddr) {
    // The document follows the header and further fields: in OP_REPLY the flags, a cursor and two numbers,
    // in OP_MSG the flags and the section kind.
    let body = if reply[12..16] == 1_u32.to_le_bytes() { 36 } else { 21 };
    let Ok(mut document) = Document::from_reader(&reply[body..]) else { return };
    if !document.contains_key("isWritablePrimary") && !document.contains_key("ismaster") {
        return;
    }
    let address = address.to_string();
    document.extend(doc! {
        "setName": "rs0", "setVersion": 1, "hosts": [&address], "me": &address, "primary": &address, "secondary": false,
    });
    reply.truncate(body);
    document.to_writer(&mut *reply).expect("a document has bytes");
    let length = u32::try_from(reply.len()).expect("short").to_le_bytes();
    reply[..4].copy_from_slice(&length);
}
