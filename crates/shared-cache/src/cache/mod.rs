//! The decisions of a window that is one number in a cache; pure, so that a model checker runs the very same
//! functions.
//!
//! The number says where the ids of the window end, how many of them are left, and how many remain when the
//! next range is to be prepared ([`Layout`]). A client sends one command a round trip:
//!
//! 1. [`Command::Add`]: draw. The ids that the number moved over are the client's, as far as there are any.
//! 2. Missing: [`Command::Look`] places a *stub*, an item without a number that expires by itself. Exactly
//!    one client wins. For all others the stub is not a number: they wait and draw again.
//! 3. Dry (nothing is left, and for a while nobody put anything there): [`Command::Clear`] deletes the number
//!    that was seen, if it is still that one, and looks, in one round trip. No client adds to a number that
//!    it knows to be dry: see [`Layout::MOST_DRY`].
//! 4. The winner reserves a range from the store, after it won and never before. It puts the range in the
//!    stub's place if the stub still stands ([`Command::Put`]), and draws the first ids itself. Otherwise the
//!    range is abandoned.
//! 5. When a connection is lost, everything learnt on it is forgotten. A [`Fence`] holds on its own
//!    connection only, since a cache that restarts numbers its items from the beginning.
//! 6. The one draw that moves the number over its *mark* prepares the next range before this one ends
//!    ([`Taken::low`]): it reserves, looks ([`Command::Peek`]), and moves the window's end on if it still
//!    ends where the draw saw it end ([`extend`]).
//!
//! Every number tells by itself where its ids end and how many are left, whatever the reader believes about
//! the sequence, so each range may have another length. Ids that no number can represent belong to the winner
//! alone, which then deletes the stub ([`Command::Release`]).

use idmill::IdRange;

/// Bits of a number that count; above them are the end (26 bits), the mark (5) and the scale (5).
const COUNTED: u32 = 28;
const END: u32 = 26;
const SMALL: u32 = 5;

/// How a number represents ids of a sequence whose first id is `start`.
///
/// The lowest 28 bits are [`MAX_LEN`](Self::MAX_LEN) minus the number of ids left: an addition draws. The end
/// is counted from `start`. It is exact up to 2^26 and then has 26 binary digits, as a float does: further
/// on, ranges end at multiples of a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    start: u64,
}

/// What a number says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Standing {
    /// One past the last id, counted from the sequence's first.
    pub end: u64,
    /// How many ids are left.
    pub left: u64,
    /// When this many are left, the next range is prepared; 0: never.
    pub mark: u64,
}

/// What a draw took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The ids.
    pub range: IdRange,
    /// What the draw left.
    pub after: Standing,
    /// The draw moved the window over its mark. Exactly one draw does so for this end, and prepares the next
    /// range.
    pub low: bool,
}

impl Layout {
    /// The most ids of a window.
    pub const MAX_LEN: u64 = 1 << 20;
    /// The most ids of one draw.
    pub const MAX_DRAW: u64 = 1 << 13;
    /// How far from the sequence's first id a window can be. Beyond that, every draw goes to the store, one
    /// after another.
    pub const REACH: u64 = ((1 << END) - 1) << 20;
    /// How many draws may find the same number dry without overflowing the count, before the first of them
    /// has done its next step. Each client has one such draw under way, since it does not add again while the
    /// number is dry.
    pub const MOST_DRY: u64 = ((1 << COUNTED) - Self::MAX_LEN) / Self::MAX_DRAW - 1;

    /// Creates the layout for a sequence whose first id is `start`.
    pub const fn new(start: u64) -> Self {
        Self { start }
    }

    /// Returns how many ids a draw asks the cache for, when its caller wants `count`.
    pub fn draw_of(count: u64) -> u64 {
        count.clamp(1, Self::MAX_DRAW)
    }

    /// Returns how many binary digits of an end are not kept.
    fn scale(end: u64) -> u32 {
        (u64::BITS - end.leading_zeros()).saturating_sub(END)
    }

    /// Returns the last end up to this one that a number can have.
    fn round_down(end: u64) -> u64 {
        let end = end.min(Self::REACH);
        end >> Self::scale(end) << Self::scale(end)
    }

    /// Returns the first end from this one on that a number can have, if there is one.
    fn round_up(end: u64) -> Option<u64> {
        let unit = 1 << Self::scale(end);
        end.checked_next_multiple_of(unit).filter(|end| *end <= Self::REACH)
    }

    /// Returns the number of a window that ends at `end` with `left` ids left; `None` if no number can say
    /// that.
    pub fn encode(end: u64, left: u64) -> Option<u64> {
        if left > Self::MAX_LEN || left > end || Self::round_down(end) != end {
            return None;
        }
        // Half of what is there, or up to twice as late.
        let mark = (left / 2).checked_ilog2().map_or(0, |log| u64::from(log) + 1);
        let scale = Self::scale(end);
        let high = (u64::from(scale) << SMALL | mark) << END | end >> scale;
        Some(high << COUNTED | (Self::MAX_LEN - left))
    }

    /// Returns what a number says; `None` if it is not one of ours.
    pub fn decode(number: u64) -> Option<Standing> {
        let part = |from: u32, bits: u32| number >> from & ((1 << bits) - 1);
        let (mark, scale) = (part(COUNTED + END, SMALL), part(COUNTED + END + SMALL, SMALL));
        let end = part(COUNTED, END) << scale;
        let left = Self::MAX_LEN.saturating_sub(part(0, COUNTED));
        let mark = mark.checked_sub(1).map_or(0, |log| 1 << log);
        (left <= end && end <= Self::REACH).then_some(Standing { end, left, mark })
    }

    /// Returns the id that the next draw from a number begins with; `None` if it is dry, or not ours.
    pub fn next_of(self, number: u64) -> Option<u64> {
        let standing = Self::decode(number).filter(|standing| standing.left > 0)?;
        self.id(standing.end - standing.left)
    }

    /// Returns the id at this distance from the sequence's first; `None` beyond 2^64.
    pub fn id(self, offset: u64) -> Option<u64> {
        self.start.checked_add(offset)
    }

    /// Returns how many ids to reserve at `next`, for a draw of `count` from a sequence that ends with `max`.
    /// The window gets about `size` ids, up to an end that a number can have. If there is no such end, this
    /// is what the caller wants for itself.
    pub fn refill_of(self, next: Option<u64>, max: u64, count: u64, size: u64) -> u64 {
        // Nothing is left, as far as is known: the store has the last word.
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

/// What a client sends. Each command is one round trip, and is never sent again by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Adds to the number, and reads it (`ma K D<count> v c`).
    Add {
        /// How many ids.
        count: u64,
    },
    /// Reads the item, and places a stub if there is none (`mg K N<ttl> c v t`).
    Look,
    /// Reads the item, and places nothing (`mg K c v t`).
    Peek,
    /// Deletes the item if it has this cas, and looks (`md K C<cas>` and `mg K N<ttl> c v t`).
    Clear {
        /// Of the number that was seen to be dry.
        cas: u64,
    },
    /// Replaces the item by this number if it has this cas (`ms K <len> C<cas> T0`).
    Put {
        /// Of the stub, or of the number whose end is moved on.
        cas: u64,
        /// Where the ids end, and how many are left.
        number: u64,
    },
    /// Deletes the stub if it has this cas (`md K C<cas>`).
    Release {
        /// Of the stub.
        cas: u64,
    },
    /// Deletes the item, whatever it is (`md K`). To other clients this is an eviction. It is sent after the
    /// sequence was changed behind the window: a client that refills the window from then on reserves after
    /// the change, and a client that reserved before finds its stub gone.
    Delete,
}

/// What a client does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Hands out these ids.
    Take(Taken),
    /// Begins again, with [`draw`].
    Draw,
    /// Sends this.
    Send(Command),
    /// Reserves a range: the client holds the stub.
    Refill(Fence),
    /// Waits a little and draws again: another client holds the stub.
    Wait,
    /// Waits a little and looks again, never adding: the window is used up, and another client prepares the
    /// next range. After a while at the latest, sends [`Command::Clear`], since the other client may be gone.
    Await {
        /// Where the window ends.
        end: u64,
        /// The number's.
        cas: u64,
    },
    /// Gives up: the item under its key is not ours.
    Foreign,
    /// Gives up: the cache does not number its items (memcached with `-C`), so nothing could be put in the
    /// place of what was seen.
    Unnumbered,
}

/// The answer to [`Command::Add`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Added {
    /// The number after adding, and its cas.
    Number {
        /// After adding.
        number: u64,
        /// The item's.
        cas: u64,
    },
    /// There is no item.
    Missing,
    /// There is an item, but it is not a number: a stub.
    NotANumber,
}

/// The answer to [`Command::Look`], [`Command::Peek`] and the second half of [`Command::Clear`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Seen {
    /// A stub, placed by this very look.
    Won {
        /// The stub's.
        cas: u64,
    },
    /// Another client's stub.
    Stub,
    /// Nothing, and this command places no stub.
    Nothing,
    /// A number.
    Number {
        /// As it stands.
        number: u64,
        /// The item's.
        cas: u64,
    },
    /// None of these.
    Foreign,
}

/// The right to refill: the stub that a client won, and the connection on which it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fence {
    connection: u64,
    cas: u64,
}

impl Fence {
    /// Returns the stub's cas, if this is still the connection on which it was won. On another connection the
    /// cas may belong to another item, since a restarted cache numbers its items from the beginning.
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
            // As it was before: a number smaller than what was just added was not one of ours.
            let before = number.checked_sub(count).and_then(Layout::decode);
            let Some(before) = before else { return Next::Foreign };
            if before.left == 0 { dry(before, cas) } else { taken(layout, count, before) }
        }
    }
}

/// Returns the next step for a number that is used up. If it had a mark, the draw that moved it over the mark
/// prepares the next range.
fn dry(Standing { end, mark, .. }: Standing, cas: u64) -> Next {
    match (cas, mark) {
        // They are numbered from 1.
        (0, _) => Next::Unnumbered,
        (cas, 0) => Next::Send(Command::Clear { cas }),
        (cas, _) => Next::Await { end, cas },
    }
}

fn taken(layout: Layout, count: u64, before: Standing) -> Next {
    let Standing { end, left, mark } = before;
    let len = count.min(left);
    // Only a number that nobody of ours put there leads beyond 2^64.
    let range = layout.id(end - left).and_then(|first| IdRange::new(first, len));
    let after = Standing { left: left - len, ..before };
    let low = mark > 0 && mark < left && after.left <= mark;
    range.map_or(Next::Foreign, |range| Next::Take(Taken { range, after, low }))
}

/// Returns the next step after [`Command::Look`] or [`Command::Clear`], on this connection.
pub fn after_look(connection: u64, reply: Seen) -> Next {
    match reply {
        Seen::Won { cas: 0 } => Next::Unnumbered,
        Seen::Won { cas } => Next::Refill(Fence { connection, cas }),
        Seen::Stub => Next::Wait,
        Seen::Number { number, cas } => match Layout::decode(number) {
            None => Next::Foreign,
            Some(standing) if standing.left == 0 => dry(standing, cas),
            Some(_) => Next::Draw,
        },
        Seen::Nothing => Next::Send(Command::Look),
        Seen::Foreign => Next::Foreign,
    }
}

/// What becomes of a range that was reserved for a refill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refill {
    /// The command whose success all of this depends on: [`Command::Put`] or [`Command::Release`]. On any
    /// other outcome the whole range is abandoned.
    pub command: Command,
    /// The first ids, for the winner.
    pub own: IdRange,
    /// How many ids are neither the winner's nor in the window: a gap.
    pub unused: u64,
}

/// Returns what to do with a range that was reserved after the fence was won, for a draw of `count` ids.
/// `None` if the fence is of another connection, or the range is not of this sequence: it is abandoned.
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
    /// Returns whether a range begins where a window ends.
    pub fn follows(self, end: u64, range: IdRange) -> bool {
        self.id(end) == Some(range.start())
    }

    /// Returns the end of as much of a range as fits behind `left` ids, and how many of its ids that is, if
    /// any.
    fn reaching(self, range: IdRange, left: u64) -> Option<(u64, u64)> {
        let first = range.start().checked_sub(self.start)?;
        let room = range.len().min(Self::MAX_LEN.saturating_sub(left));
        let end = Self::round_down(first.saturating_add(room));
        let len = end.checked_sub(first).filter(|len| *len > 0)?;
        Some((end, len))
    }
}

/// Returns what to do with a range that was reserved after a window was seen to be [low](Taken::low) and to
/// end at `end`: the command that moves its end on, how many ids the window then has, and how many are
/// beyond, a gap. `None` if the window does not stand any more, or the range does not follow it.
///
/// Only a range that begins where the window ends can be joined to what is left. Otherwise the ids between
/// them, which belong to others, would be handed out.
pub fn extend(layout: Layout, end: u64, range: IdRange, reply: Seen) -> Option<Extend> {
    let Seen::Number { number, cas } = reply else { return None };
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

/// How to move a window's end on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extend {
    /// [`Command::Put`], on the connection on which the number was seen. On anything but success, look again.
    pub command: Command,
    /// How many ids the window then has.
    pub size: u64,
    /// How many ids of the range are beyond its end: a gap.
    pub unused: u64,
}

#[cfg(test)]
mod tests;
