//! The faults that a proxy can inject, and their conditions.

use std::sync::Arc;

use tokio::sync::watch;

/// A fault that is injected when a request matches.
///
/// The client is cut off by closing its connection. The engine's side is then closed only for writing, and
/// read for two more seconds, so that the engine still reads its input.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The request never reaches the engine, and the client is cut off.
    CutBefore,
    /// The request reaches the engine, and the client is cut off immediately.
    CutAfter,
    /// The request reaches the engine. The client is cut off when the next answer arrives on its
    /// connection, and does not receive that answer.
    CutReply,
    /// The request reaches the engine. The next answer and all later ones on this connection are withheld
    /// until the gate is opened.
    Withhold(Gate),
    /// The request reaches the engine. The client gets this instead of the next answer, and is then cut
    /// off.
    Garble(Nonsense),
    /// The request, and everything that the client sends after it on this connection, is delivered when the
    /// gate is opened, even if the client is gone by then. If the gate is never opened, these requests are
    /// never delivered. A later `Hold` may match another of these requests. That request then waits for this
    /// gate only, and the gate of the later `Hold` holds nothing.
    Hold(Gate),
    /// Like [`Hold`](Self::Hold), but later requests overtake this one. The protocol must allow this, and the
    /// proxy needs its [frames](super::ProxyBuilder::frames).
    HoldAlone(Gate),
}

/// A replacement for an answer. None is a valid answer in the engine's protocol, since no store could detect
/// an answer that is valid but wrong. The exceptions are errors of HTTP, which a server or a proxy may send
/// after the write has taken effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nonsense {
    /// Random bytes with the length of the answer.
    Noise,
    /// Half of the answer.
    Half,
    /// A complete answer of HTTP 1.1 with this status, such as 503.
    Status(u16),
    /// The answer with every bit of its first 16 bytes flipped.
    Flipped,
}

impl Nonsense {
    pub(super) fn instead_of(self, answer: &[u8]) -> Vec<u8> {
        match self {
            Self::Noise => answer.iter().map(|_| fastrand::u8(..)).collect(),
            Self::Half => answer[..answer.len() / 2].to_vec(),
            Self::Status(status) => {
                format!("HTTP/1.1 {status} Error\r\ncontent-length: 0\r\n\r\n").into_bytes()
            }
            Self::Flipped => {
                let flipped = |(position, byte): (usize, &u8)| if position < 16 { !byte } else { *byte };
                answer.iter().enumerate().map(flipped).collect()
            }
        }
    }
}

/// Makes a proxy hold data back until the gate is opened. An open gate stays open. Clones are the same gate.
#[derive(Clone, Debug)]
pub struct Gate(Arc<watch::Sender<State>>);

#[derive(Debug, Default)]
struct State {
    caught: u64,
    passed: u64,
    open: bool,
}

impl Gate {
    /// Creates a closed gate.
    pub fn new() -> Self {
        Self(Arc::new(watch::Sender::new(State::default())))
    }

    /// Waits until the gate holds something back; returns immediately if it already has. Waits forever if
    /// it never does, so use a timeout. Cancel safe.
    pub async fn caught(&self) {
        self.until(|state| state.caught > 0).await;
    }

    /// Opens the gate for everything held back now and later. Returns before the delivery: see
    /// [`passed`](Self::passed).
    pub fn open(&self) {
        self.0.send_modify(|state| state.open = true);
    }

    /// Waits until at least one message was held back, and all held messages were written to their receivers.
    /// The receivers may not have read them yet. Waits forever if a held message was lost with its
    /// connection. Cancel safe.
    pub async fn passed(&self) {
        self.until(|state| state.passed > 0 && state.passed == state.caught).await;
    }

    pub(super) fn catch(&self) {
        self.0.send_modify(|state| state.caught += 1);
    }

    pub(super) fn pass(&self) {
        self.0.send_modify(|state| state.passed += 1);
    }

    pub(super) async fn opened(&self) {
        self.until(|state| state.open).await;
    }

    async fn until(&self, holds: impl Fn(&State) -> bool) {
        self.0.subscribe().wait_for(|state| holds(state)).await.expect("the gate is here");
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

/// A condition for [`Proxy::arm`](super::Proxy::arm). The condition holds once: for the first request that
/// `matches`, after `skip` matching requests.
///
/// ```
/// use idmill_conformance::proxy::nth;
///
/// let mut second_write = nth(1, |request| request.starts_with(b"set"));
/// let sent: [&[u8]; 5] = [b"get a", b"set a", b"get b", b"set b", b"set c"];
/// assert_eq!(sent.map(|request| second_write(request)), [false, false, false, true, false]);
/// ```
pub fn nth(mut skip: u64, mut matches: impl FnMut(&[u8]) -> bool) -> impl FnMut(&[u8]) -> bool {
    let mut over = false;
    move |request| {
        if over || !matches(request) {
            return false;
        }
        over = skip == 0;
        skip = skip.saturating_sub(1);
        over
    }
}
