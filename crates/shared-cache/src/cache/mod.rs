//! The decisions of a window that is one number in a cache. The functions are pure, so that a model checker
//! can run them.
//!
//! The number encodes the end of the window's ids, how many are left, and the mark at which the next range is
//! prepared ([`Layout`]). A client sends one command per round trip:
//!
//! 1. [`Command::Add`]: draw. The ids that the addition covers belong to the client, up to the end of the
//!    window.
//! 2. Missing: [`Command::Look`] places a *stub*, an item that holds no number and expires. Exactly one
//!    client wins. All others find the winner's stub instead of a number: they wait and draw again.
//! 3. Empty (nothing is left, and no range was added for a while): [`Command::Clear`] deletes the number if
//!    it is unchanged. [`Command::Look`] follows in the same round trip. No client adds to a number that it
//!    has found empty: see [`Layout::MOST_EMPTY`].
//! 4. The winner reserves a range from the store. It always wins the stub before it reserves. If the stub is
//!    still in place, [`Command::Put`] replaces it with the range, and the winner keeps the first ids.
//!    Otherwise the range is abandoned.
//! 5. After a connection is lost, every cas that was read on it is dropped. A [`Fence`] is valid only on its
//!    own connection, because a restarted cache numbers its items from the beginning.
//! 6. Exactly one draw moves the number over its *mark* ([`Taken::low`]). Its client prepares the next range
//!    before the current one ends: it reserves, and reads the item ([`Command::Peek`]). If the window's end
//!    has not changed since the draw, the client moves the end ([`extend`]).
//!
//! Every number encodes its own end and the ids left, independent of the reader's state. So each range may
//! have a different length. If no number can represent the ids after the winner's own ids, those later ids
//! are a gap, and the winner deletes the stub ([`Command::Release`]).

use idmill::IdRange;

/// Low bits of a number that hold the count; above them are the end (26 bits), the mark (5) and the scale
/// (5).
const COUNTED: u32 = 28;
const END: u32 = 26;
const SMALL: u32 = 5;

/// The encoding of ids as a number, for a sequence whose first id is `start`.
///
/// The lowest 28 bits are [`MAX_LEN`](Self::MAX_LEN) minus the number of ids left, so an addition draws. The
/// end is relative to `start`. It is exact up to 2^26. Above that it has 26 significant bits, like a float,
/// so ranges end at multiples of a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    start: u64,
}

/// The decoded value of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Standing {
    /// One past the last id, counted from the sequence's first.
    pub end: u64,
    /// The number of ids left.
    pub left: u64,
    /// When this many are left, the next range is prepared; 0: never.
    pub mark: u64,
}

/// The result of a draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The ids.
    pub range: IdRange,
    /// The state of the window after the draw.
    pub after: Standing,
    /// Whether the draw crossed the window's mark. Exactly one draw does so for each end of the window; its
    /// client prepares the next range.
    pub low: bool,
}

impl Layout {
    /// The maximum number of ids in a window.
    pub const MAX_LEN: u64 = 1 << 20;
    /// The maximum number of ids in one draw.
    pub const MAX_DRAW: u64 = 1 << 13;
    /// The maximum distance of a window from the sequence's first id. Every draw beyond it goes to the store,
    /// one at a time.
    pub const REACH: u64 = ((1 << END) - 1) << 20;
    /// How many draws may find the same number empty before the first of them takes its next step, without
    /// overflowing the count. Each client has at most one such draw in progress, because it does not add
    /// again while the number is empty.
    pub const MOST_EMPTY: u64 = ((1 << COUNTED) - Self::MAX_LEN) / Self::MAX_DRAW - 1;

    /// Creates the layout for a sequence whose first id is `start`.
    pub const fn new(start: u64) -> Self {
        Self { start }
    }

    /// Returns how many ids a draw requests from the cache for a caller that requests `count` ids.
    pub fn draw_of(count: u64) -> u64 {
        count.clamp(1, Self::MAX_DRAW)
    }

    /// Returns how many low bits of an end are dropped.
    fn scale(end: u64) -> u32 {
        (u64::BITS - end.leading_zeros()).saturating_sub(END)
    }

    /// Returns the largest representable end up to `end`.
    fn round_down(end: u64) -> u64 {
        let end = end.min(Self::REACH);
        end >> Self::scale(end) << Self::scale(end)
    }

    /// Returns the smallest representable end from `end` on, if there is one.
    fn round_up(end: u64) -> Option<u64> {
        let unit = 1 << Self::scale(end);
        end.checked_next_multiple_of(unit).filter(|end| *end <= Self::REACH)
    }

    /// Returns the number of a window that ends at `end` with `left` ids left; `None` if it cannot be
    /// represented.
    pub fn encode(end: u64, left: u64) -> Option<u64> {
        if left > Self::MAX_LEN || left > end || Self::round_down(end) != end {
            return None;
        }
        // The mark is half of the ids left, rounded down to a power of two.
        let mark = (left / 2).checked_ilog2().map_or(0, |log| u64::from(log) + 1);
        let scale = Self::scale(end);
        let high = (u64::from(scale) << SMALL | mark) << END | end >> scale;
        Some(high << COUNTED | (Self::MAX_LEN - left))
    }

    /// Decodes a number; `None` if idmill cannot have written it.
    pub fn decode(number: u64) -> Option<Standing> {
        let part = |from: u32, bits: u32| number >> from & ((1 << bits) - 1);
        let (mark, scale) = (part(COUNTED + END, SMALL), part(COUNTED + END + SMALL, SMALL));
        let end = part(COUNTED, END) << scale;
        let left = Self::MAX_LEN.saturating_sub(part(0, COUNTED));
        let mark = mark.checked_sub(1).map_or(0, |log| 1 << log);
        (left <= end && end <= Self::REACH).then_some(Standing { end, left, mark })
    }

    /// Returns the first id of the next draw from a number; `None` if it is empty or foreign.
    pub fn next_of(self, number: u64) -> Option<u64> {
        let standing = Self::decode(number).filter(|standing| standing.left > 0)?;
        self.id(standing.end - standing.left)
    }

    /// Returns the id at this distance from the sequence's first; `None` beyond 2^64.
    pub fn id(self, offset: u64) -> Option<u64> {
        self.start.checked_add(offset)
    }

    /// Returns how many ids to reserve at `next`, for a draw of `count` from a sequence that ends with `max`.
    /// The window gets about `size` ids, up to a representable end. If there is none, only the caller's own
    /// ids are reserved.
    pub fn refill_of(self, next: Option<u64>, max: u64, count: u64, size: u64) -> u64 {
        // Without a known next id, reserve only the caller's ids and let the store decide.
        let alone = Self::draw_of(count);
        let Some(offset) = next.and_then(|next| next.checked_sub(self.start)) else { return alone };
        if size <= alone {
            return alone;
        }
        let last = max.saturating_sub(self.start).saturating_add(1);
        let wanted = offset.saturating_add(size.min(Self::MAX_LEN));
        let end = Self::round_up(wanted).filter(|end| *end <= last).unwrap_or(Self::round_down(last));
        end.checked_sub(offset).filter(|len| *len > alone && *len <= 2 * Self::MAX_LEN).unwrap_or(alone)
    }
}

/// A command to the cache. Each is one round trip, and is never resent automatically.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Adds to the number and returns the result (`ma K D<count> v c`).
    Add {
        /// The number of ids.
        count: u64,
    },
    /// Reads the item, and places a stub if there is none (`mg K N<ttl> c v t`).
    Look,
    /// Reads the item, and places nothing (`mg K c v t`).
    Peek,
    /// Deletes the item if it has this cas, then acts as `Look` (`md K C<cas>` and `mg K N<ttl> c v t`).
    Clear {
        /// The cas of the number that was found empty.
        cas: u64,
    },
    /// Replaces the item with this number if it has this cas (`ms K <len> C<cas> T0`).
    Put {
        /// The cas of the stub, or of the number whose end is moved.
        cas: u64,
        /// The new number, which encodes the end of the window and the number of ids left.
        number: u64,
    },
    /// Deletes the stub if it has this cas (`md K C<cas>`).
    Release {
        /// The cas of the stub.
        cas: u64,
    },
    /// Deletes any item (`md K`). To other clients, the deletion looks like an eviction. It is sent after the
    /// sequence was changed in the store. A client that refills the window afterwards reserves after the
    /// change. A client that reserved before finds its stub missing.
    Delete,
}

/// The next step of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Hand out these ids.
    Take(Taken),
    /// Start again with [`draw`].
    Draw,
    /// Send this command.
    Send(Command),
    /// Reserve a range: the client holds the stub.
    Refill(Fence),
    /// Wait briefly and draw again: another client holds the stub.
    Wait,
    /// Wait briefly and read the item again, without adding: the window is used up, and another client
    /// prepares the next range. After a limited time, send [`Command::Clear`], because the other client may
    /// have stopped.
    Await {
        /// The end of the window.
        end: u64,
        /// The cas of the number.
        cas: u64,
    },
    /// Give up: the item under this key is foreign.
    Foreign,
    /// Give up: the cache does not number its items (memcached with `-C`), so no item can be replaced
    /// conditionally.
    Unnumbered,
}

/// The reply to [`Command::Add`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Added {
    /// The number after the addition, and its cas.
    Number {
        /// The value after the addition.
        number: u64,
        /// The cas of the item.
        cas: u64,
    },
    /// There is no item.
    Missing,
    /// The item is not a number: a stub.
    NotANumber,
}

/// The reply to [`Command::Look`], [`Command::Peek`] and the second half of [`Command::Clear`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LookReply {
    /// A stub, placed by this command.
    Won {
        /// The cas of the stub.
        cas: u64,
    },
    /// The stub of another client.
    Stub,
    /// There is no item, and this command places no stub.
    Nothing,
    /// A number.
    Number {
        /// The current value.
        number: u64,
        /// The cas of the item.
        cas: u64,
    },
    /// Any other item.
    Foreign,
}

/// The right to refill: the stub that a client won, and its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fence {
    connection: u64,
    cas: u64,
}

impl Fence {
    /// Returns the stub's cas if the stub was won on this connection. On another connection, the cas may
    /// belong to another item, because a restarted cache numbers its items from the beginning.
    pub fn cas_on(self, connection: u64) -> Option<u64> {
        (self.connection == connection).then_some(self.cas)
    }
}

/// Returns the first step of every draw.
pub fn draw(count: u64) -> Command {
    Command::Add { count: Layout::draw_of(count) }
}

/// Returns the next step after [`Command::Add`] of `count`.
pub fn after_add(layout: Layout, count: u64, reply: Added) -> Next {
    match reply {
        Added::Missing => Next::Send(Command::Look),
        Added::NotANumber => Next::Wait,
        Added::Number { number, cas } => {
            // The number before the addition. If the result is below `count`, the addition overflowed: idmill
            // does not write such large numbers.
            let before = number.checked_sub(count).and_then(Layout::decode);
            let Some(before) = before else { return Next::Foreign };
            if before.left == 0 { empty(before, cas) } else { taken(layout, count, before) }
        }
    }
}

/// Returns the next step for a number that is used up. If it had a mark, the draw that crossed the mark
/// prepares the next range.
fn empty(Standing { end, mark, .. }: Standing, cas: u64) -> Next {
    match (cas, mark) {
        // Valid cas values start at 1.
        (0, _) => Next::Unnumbered,
        (cas, 0) => Next::Send(Command::Clear { cas }),
        (cas, _) => Next::Await { end, cas },
    }
}

fn taken(layout: Layout, count: u64, before: Standing) -> Next {
    let Standing { end, left, mark } = before;
    let len = count.min(left);
    // If the ids would be beyond 2^64, another program wrote the number.
    let range = layout.id(end - left).and_then(|first| IdRange::new(first, len));
    let after = Standing { left: left - len, ..before };
    let low = mark > 0 && mark < left && after.left <= mark;
    range.map_or(Next::Foreign, |range| Next::Take(Taken { range, after, low }))
}

/// Returns the next step after [`Command::Look`] or [`Command::Clear`], on this connection.
pub fn after_look(connection: u64, reply: LookReply) -> Next {
    match reply {
        LookReply::Won { cas: 0 } => Next::Unnumbered,
        LookReply::Won { cas } => Next::Refill(Fence { connection, cas }),
        LookReply::Stub => Next::Wait,
        LookReply::Number { number, cas } => match Layout::decode(number) {
            None => Next::Foreign,
            Some(standing) if standing.left == 0 => empty(standing, cas),
            Some(_) => Next::Draw,
        },
        LookReply::Nothing => Next::Send(Command::Look),
        LookReply::Foreign => Next::Foreign,
    }
}

/// The use of a range that was reserved for a refill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refill {
    /// The command that must succeed: [`Command::Put`] or [`Command::Release`]. After any other outcome, the
    /// whole range is abandoned.
    pub command: Command,
    /// The first ids, for the winner.
    pub own: IdRange,
    /// The number of ids that are neither the winner's nor in the window: a gap.
    pub unused: u64,
}

/// Returns how to use a range that was reserved after the fence was won, for a draw of `count` ids. Returns
/// `None` if the range must be abandoned: the fence is of another connection, or the range is empty or begins
/// before the sequence.
pub fn refill(layout: Layout, fence: Fence, connection: u64, range: IdRange, count: u64) -> Option<Refill> {
    let cas = fence.cas_on(connection)?;
    if range.start() < layout.start || range.is_empty() {
        return None;
    }
    let mut rest = range;
    let own = rest.take_front(count.max(1));
    let put = layout.reaching(rest, 0).and_then(|(end, len)| Some((Layout::encode(end, len)?, len)));
    Some(match put {
        Some((number, len)) => {
            Refill { command: Command::Put { cas, number }, own, unused: rest.len() - len }
        }
        None => Refill { command: Command::Release { cas }, own, unused: rest.len() },
    })
}

impl Layout {
    /// Returns whether a range begins at the end of a window.
    pub fn follows(self, end: u64, range: IdRange) -> bool {
        self.id(end) == Some(range.start())
    }

    /// Returns the end of the part of a range that fits behind `left` ids, and the length of that part.
    /// Returns `None` if nothing fits.
    fn reaching(self, range: IdRange, left: u64) -> Option<(u64, u64)> {
        let first = range.start().checked_sub(self.start)?;
        let room = range.len().min(Self::MAX_LEN.saturating_sub(left));
        let end = Self::round_down(first.saturating_add(room));
        let len = end.checked_sub(first).filter(|len| *len > 0)?;
        Some((end, len))
    }
}

/// Returns the command that adds a range to a window. The range was reserved after a window with this end was
/// [low](Taken::low). Returns `None` if the window's end has changed, or if ids are left and the range does
/// not follow them.
///
/// A range can be joined to the ids left only if it begins at the end of the window. Otherwise the ids in
/// between, which belong to others, would be handed out.
pub fn extend(layout: Layout, end: u64, range: IdRange, reply: LookReply) -> Option<Extend> {
    let LookReply::Number { number, cas } = reply else { return None };
    let standing = Layout::decode(number).filter(|standing| standing.end == end && cas != 0)?;
    let follows = layout.follows(end, range);
    if !follows && standing.left > 0 {
        return None;
    }
    let (end, len) = layout.reaching(range, standing.left)?;
    let size = standing.left + len;
    let number = Layout::encode(end, size)?;
    Some(Extend { command: Command::Put { cas, number }, size, unused: range.len() - len })
}

/// How to move the end of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extend {
    /// [`Command::Put`], on the connection that read the number. If it is refused, read the number again.
    pub command: Command,
    /// The number of ids in the window afterwards.
    pub size: u64,
    /// The number of ids of the range that are beyond the new end: a gap.
    pub unused: u64,
}

#[cfg(test)]
mod tests;
