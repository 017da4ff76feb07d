//! Between the store and its server: counts commands, spoils one of them when told to, and can make the
//! server look like the primary of a replica set.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use idmill_mongodb::driver::bson::{Document, doc};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What happens to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spoil {
    /// The connection is cut before the command reaches the server.
    CutBefore,
    /// The connection is cut once the server has answered.
    CutAfter,
    /// The server's answer never comes.
    Withhold,
}

/// Ends with the runtime of the test.
#[derive(Clone, Debug)]
pub(crate) struct Proxy {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    plan: Option<(&'static str, Spoil)>,
    seen: BTreeMap<&'static str, usize>,
    replica_set: bool,
    last_find: Vec<u8>,
}

/// Those that say something about ids.
const COMMANDS: [&str; 5] = ["findAndModify", "find", "insert", "delete", "hello"];

impl Proxy {
    pub(crate) async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = Self { address: listener.local_addr().unwrap(), state: Arc::default() };
        let serving = proxy.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let proxy = serving.clone();
                tokio::spawn(async move { proxy.carry(client, server).await });
            }
        });
        proxy
    }

    /// Has the server say of itself that it is a replica set's primary: to such a one
    /// the driver sends writes again.
    pub(crate) fn replicated(self) -> Self {
        self.state.lock().replica_set = true;
        self
    }

    /// Whether the last `find` asked for this read concern.
    pub(crate) fn read_with(&self, concern: &str) -> bool {
        self.state.lock().last_find.windows(concern.len()).any(|part| part == concern.as_bytes())
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Spoils the next command of this name.
    pub(crate) fn spoil(&self, command: &'static str, how: Spoil) {
        self.state.lock().plan = Some((command, how));
    }

    /// How many commands of these names there were since this was last asked.
    pub(crate) fn counts<const N: usize>(&self, commands: [&'static str; N]) -> [usize; N] {
        let mut state = self.state.lock();
        let counts = commands.map(|command| state.seen.get(command).copied().unwrap_or_default());
        state.seen.clear();
        counts
    }

    /// One connection, whose messages are answered one after another. An error ends it on both sides.
    async fn carry(&self, mut client: TcpStream, server: SocketAddr) -> Option<()> {
        let mut server = TcpStream::connect(server).await.ok()?;
        loop {
            let request = message(&mut client).await?;
            let spoil = self.look(&request);
            if spoil == Some(Spoil::CutBefore) {
                return None;
            }
            server.write_all(&request).await.ok()?;
            let mut reply = message(&mut server).await?;
            if self.state.lock().replica_set {
                reply = promoted(reply, self.address);
            }
            match spoil {
                Some(Spoil::CutAfter) => return None,
                Some(Spoil::Withhold) => std::future::pending().await,
                _ => client.write_all(&reply).await.ok()?,
            }
        }
    }

    fn look(&self, request: &[u8]) -> Option<Spoil> {
        let command = COMMANDS.into_iter().find(|command| names(request, command))?;
        let mut state = self.state.lock();
        if command == "find" {
            request.clone_into(&mut state.last_find);
        }
        *state.seen.entry(command).or_default() += 1;
        let (_, spoil) = state.plan.take_if(|(planned, _)| *planned == command)?;
        Some(spoil)
    }
}

/// Whether the first field of the message's document is this: header 16, flags 4,
/// section kind 1, length 4, type 1.
fn names(message: &[u8], command: &str) -> bool {
    message
        .get(26..)
        .is_some_and(|rest| rest.starts_with(command.as_bytes()) && rest.get(command.len()) == Some(&0))
}

/// A reply to `hello`, or to what it was called before, with what a primary would add; any other as it is.
fn promoted(reply: Vec<u8>, address: SocketAddr) -> Vec<u8> {
    // After the header: in OP_REPLY five numbers, in OP_MSG the flags and the kind of the section.
    let body = if reply[12..16] == 1_u32.to_le_bytes() { 36 } else { 21 };
    let Ok(mut document) = Document::from_reader(&reply[body..]) else { return reply };
    if !document.contains_key("isWritablePrimary") && !document.contains_key("ismaster") {
        return reply;
    }
    let address = address.to_string();
    document.extend(doc! {
        "setName": "rs0", "setVersion": 1, "hosts": [&address], "me": &address, "primary": &address, "secondary": false,
    });
    let mut promoted = reply[..body].to_vec();
    document.to_writer(&mut promoted).expect("a document has bytes");
    let length = u32::try_from(promoted.len()).expect("short").to_le_bytes();
    promoted[..4].copy_from_slice(&length);
    promoted
}

async fn message(from: &mut TcpStream) -> Option<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length).await.ok()?;
    let mut message = vec![0; u32::from_le_bytes(length) as usize];
    message[..4].copy_from_slice(&length);
    from.read_exact(&mut message[4..]).await.ok()?;
    Some(message)
}
