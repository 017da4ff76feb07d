//! What a proxy can do to a connection, and when.

use std::sync::Arc;

use tokio::sync::watch;

/// What is done to a connection when one of its requests is met.
///
/// The client is cut off by closing its connection. The engine's side is then closed for writing only and
/// read for two more seconds, so that the engine still reads what it was sent.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The request never reaches the engine; the client is cut off.
    CutBefore,
    /// The request reaches the engine; the client is cut off at once.
    CutAfter,
    /// The request reaches the engine; the client is cut off when the next answer comes on its connection,
    /// which it does not see.
    CutReply,
    /// The request reaches the engine; from the next answer on, the answers on this connection are kept back
    /// until the gate is opened. If it never is, they are never delivered.
    Withhold(Gate),
    /// The request reaches the engine; instead of the next answer this comes back, and then the end.
    Garble(Nonsense),
    /// The request, and all that the client sends on this connection after it, reaches the engine when the
    /// gate is opened: also if the client is gone by then, and if it never is, never. A further request that
    /// is to be held meanwhile waits behind this one, for this one's gate; its own catches nothing.
    Hold(Gate),
    /// As [`Hold`](Self::Hold), but what is sent after the request overtakes it. For protocols that allow it,
    /// on a proxy that [knows their frames](super::ProxyBuilder::frames).
    HoldAlone(Gate),
}

/// What comes instead of an answer. Nothing that could be a wrong answer in any
/// protocol: no store could tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nonsense {
    /// As many random bytes.
    Noise,
    /// Half of the answer.
    Half,
    /// An answer of another protocol.
    Stranger,
    /// The answer with every bit of its first 16 bytes flipped.
    Flipped,
}

impl Nonsense {
    pub(super) fn instead_of(self, answer: &[u8]) -> Vec<u8> {
        match self {
            Self::Noise => answer.iter().map(|_| fastrand::u8(..)).collect(),
            Self::Half => answer[..answer.len() / 2].to_vec(),
            Self::Stranger => b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n".to_vec(),
            Self::Flipped => {
                let flipped = |(position, byte): (usize, &u8)| if position < 16 { !byte } else { *byte };
                answer.iter().enumerate().map(flipped).collect()
            }
        }
    }
}

/// Where a proxy keeps something back until the gate is opened, once and for all. Clones are the same gate.
#[derive(Clone, Debug)]
pub struct Gate(Arc<watch::Sender<State>>);

#[derive(Debug, Default)]
struct State {
    caught: u64,
    passed: u64,
    open: bool,
}

impl Gate {
    /// A gate that is closed.
    pub fn new() -> Self {
        Self(Arc::new(watch::Sender::new(State::default())))
    }

    /// Waits until something has been kept back here; at once if that was before. For ever if nothing ever
    /// is: put a limit around it. Cancelling changes nothing.
    pub async fn caught(&self) {
        self.until(|state| state.caught > 0).await;
    }

    /// Lets go what is kept back, and whatever comes later. Returns before it is delivered: see
    /// [`passed`](Self::passed).
    pub fn open(&self) {
        self.0.send_modify(|state| state.open = true);
    }

    /// Waits until all that was kept back here was written to whom it was for, at least one thing; that they
    /// have read it, nobody knows. For ever where it was lost with its connection. Cancelling changes
    /// nothing.
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

/// For [`Proxy::arm`](super::Proxy::arm): holds once, for the first request for which `matches` does, when
/// `skip` others have passed for which it did.
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
