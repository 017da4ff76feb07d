//! The decisions of a window that is one number in a cache; pure, so that a model checker runs the very same functions.
//!
//! The number is `block << 32 | offset`: a block of [`Blocks::len`] ids that the store behind has reserved, and how many
//! of its ids were drawn. What a client does, one command a round trip:
//!
//! 1. [`Command::Add`]: draw. The ids that the number moved over are the client's, as far as they are in the block.
//! 2. Missing: [`Command::Look`] places a *stub*, an item without a number that expires by itself. Exactly one client
//!    hears that it won. For all others the stub is not a number: they wait and draw again.
//! 3. Dry, that is `offset >= len`: [`Command::Clear`] deletes the number that was seen, if it still is that one, and looks, in one
//!    round trip. Nobody adds to a number that it knows to be dry: see [`Blocks::MOST_DRY`].
//! 4. The winner reserves a block from the store, after it won and never before, and puts it in the stub's place
//!    if that still stands ([`Command::Put`]), itself drawing the first ids. Otherwise the block is abandoned.
//! 5. When a connection is lost, what was learnt on it is worth nothing: a [`Fence`] holds on its own connection alone, since a
//!    cache that restarts numbers its items from the beginning.
//!
//! Only whole ends of blocks are ever in the cache: every number says of itself where its ids end, whatever the
//! reader believes about the sequence. Ids that do not reach to the end of a block (those before the sequence's `max`, and after somebody
//! reserved from the store directly) are the winner's alone, and it then deletes the stub ([`Command::Release`]).

use crate::range::Range;

/// How ids lie in blocks: block 0 begins with the sequence's first id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Blocks {
    start: u64,
    len: u64,
}

impl Blocks {
    /// The longest block.
    pub const MAX_LEN: u64 = 1 << 20;
    /// The most ids of one draw.
    pub const MAX_DRAW: u64 = 1 << 16;
    /// The last block: one less than fits, so that the number could not even wrap if it spilled over.
    pub const MAX_BLOCK: u64 = (1 << 32) - 2;
    /// So many draws may find the same block dry, before the first of them is done with its next step, without the offset spilling
    /// over into the block's number. Each client has one such draw under way, since it does not add again while dry.
    pub const MOST_DRY: u64 = ((1 << 32) - Self::MAX_LEN) / Self::MAX_DRAW - 1;

    /// Blocks of `len` ids, 1 to [`MAX_LEN`](Self::MAX_LEN), of a sequence whose first id is `start`.
    pub fn new(start: u64, len: u64) -> Option<Self> {
        (1..=Self::MAX_LEN).contains(&len).then_some(Self { start, len })
    }

    /// How many ids a block has.
    pub fn len(self) -> u64 {
        self.len
    }

    /// Never: a block has at least one id.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// How many ids a draw asks the cache for, when its caller wants `count`.
    pub fn draw_of(self, count: u64) -> u64 {
        count.clamp(1, self.len.min(Self::MAX_DRAW))
    }

    /// The number that stands for `drawn` ids of `block`.
    pub fn encode(block: u64, drawn: u64) -> u64 {
        block << 32 | drawn
    }

    /// The block of a number, and how many ids of it were drawn; more than there are, if it was found dry.
    pub fn decode(number: u64) -> (u64, u64) {
        (number >> 32, number & 0xffff_ffff)
    }

    /// Whether no id is left.
    pub fn is_dry(self, number: u64) -> bool {
        Self::decode(number).1 >= self.len
    }

    /// The id that the next draw from a number begins with; `None` if it is dry, or beyond 2^64.
    pub fn next_of(self, number: u64) -> Option<u64> {
        let (block, drawn) = Self::decode(number);
        if drawn >= self.len { None } else { (block * self.len + drawn).checked_add(self.start) }
    }

    /// How many ids to reserve at `next`, for a draw of `count` from a sequence that ends with `max`: as far as the block reaches,
    /// and where it does not fit, what the caller wants for itself.
    pub fn refill_of(self, next: Option<u64>, max: u64, count: u64) -> u64 {
        // Nothing is left, as far as is known: the store has the last word.
        let Some(next) = next.filter(|next| *next >= self.start) else { return self.draw_of(count) };
        let (block, offset) = self.place(next);
        let left = self.len - offset;
        let whole = block <= Self::MAX_BLOCK && next.checked_add(left - 1).is_some_and(|last| last <= max);
        if whole { left } else { self.draw_of(count) }
    }

    /// The block that an id from `start` on is in, and how many ids of it are before.
    fn place(self, id: u64) -> (u64, u64) {
        ((id - self.start) / self.len, (id - self.start) % self.len)
    }

    /// One past the last id that can be in a window. Beyond, every draw goes to the store, one after another: such a
    /// sequence needs larger blocks.
    pub fn reach(self) -> u128 {
        u128::from(self.start) + u128::from(Self::MAX_BLOCK + 1) * u128::from(self.len)
    }

    /// The first id after the block of `id`, so far at least the store has granted once the window hands out `id`; `None` beyond 2^64.
    pub fn end_of(self, id: u64) -> Option<u64> {
        id.checked_add(self.len - id.checked_sub(self.start)? % self.len)
    }
}

/// What a client sends. Each is one round trip, and sent once: never again by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Adds to the number, and reads it (`ma K D<count> v c`).
    Add {
        /// How many.
        count: u64,
    },
    /// Reads the item, and places a stub if there is none (`mg K N<ttl> c v t`).
    Look,
    /// Deletes the item if it has this cas, and looks (`md K C<cas>` and `mg K N<ttl> c v t`).
    Clear {
        /// Of the number that was seen to be dry.
        cas: u64,
    },
    /// Replaces the stub by this number if it has this cas (`ms K <len> C<cas> T0`).
    Put {
        /// Of the stub.
        cas: u64,
        /// The block, and what is drawn of it already.
        number: u64,
    },
    /// Deletes the stub if it has this cas (`md K C<cas>`).
    Release {
        /// Of the stub.
        cas: u64,
    },
    /// Deletes the item, whatever it is (`md K`): to the others that is an eviction. After the sequence was changed behind the
    /// window: whoever refills it then reserves after the change, and whoever reserved before finds its stub gone.
    Delete,
}

/// What a client does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Hands out these ids.
    Take(Range),
    /// Begins again, with [`draw`].
    Draw,
    /// Sends this.
    Send(Command),
    /// Reserves a block; it holds the stub.
    Refill(Fence),
    /// Waits a little and draws again: somebody else holds the stub.
    Wait,
    /// Gives up: what is under its key is not ours.
    Foreign,
}

/// What [`Command::Add`] was answered with.
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
    /// There is one, but not a number: a stub.
    NotANumber,
}

/// What [`Command::Look`], and the second half of [`Command::Clear`], was answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Seen {
    /// A stub, placed for this very look.
    Won {
        /// The stub's.
        cas: u64,
    },
    /// Somebody else's stub.
    Stub,
    /// A number.
    Number {
        /// As it stands.
        number: u64,
        /// The item's.
        cas: u64,
    },
    /// Neither.
    Foreign,
}

/// The right to refill: the stub that a client won, and the connection on which it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fence {
    connection: u64,
    cas: u64,
}

impl Fence {
    /// The stub's cas, if this is still the connection on which it was won. On another it may belong to another item,
    /// for a cache that was restarted numbers them from the beginning.
    pub fn cas_on(self, connection: u64) -> Option<u64> {
        (self.connection == connection).then_some(self.cas)
    }
}

/// The first step of every draw.
pub fn draw(blocks: Blocks, count: u64) -> Command {
    Command::Add { count: blocks.draw_of(count) }
}

/// After [`Command::Add`] of `count`.
pub fn after_add(blocks: Blocks, count: u64, reply: Added) -> Next {
    match reply {
        Added::Missing => Next::Send(Command::Look),
        Added::NotANumber => Next::Wait,
        Added::Number { number, cas } => {
            let (block, after) = Blocks::decode(number);
            // A number smaller than what was just added was not one of ours before.
            let Some(before) = after.checked_sub(count) else { return Next::Foreign };
            if before >= blocks.len {
                return Next::Send(Command::Clear { cas });
            }
            taken(blocks, block, before, after.min(blocks.len) - before)
        }
    }
}

fn taken(blocks: Blocks, block: u64, offset: u64, len: u64) -> Next {
    // 2^32 blocks of 2^20 ids and a start: only a number that nobody of ours put there leads beyond 2^64.
    let first = (block * blocks.len + offset).checked_add(blocks.start);
    first.and_then(|first| Range::new(first, len)).map_or(Next::Foreign, Next::Take)
}

/// After [`Command::Look`] and [`Command::Clear`], on this connection.
pub fn after_look(blocks: Blocks, connection: u64, reply: Seen) -> Next {
    match reply {
        Seen::Won { cas } => Next::Refill(Fence { connection, cas }),
        Seen::Stub => Next::Wait,
        Seen::Number { number, cas } if blocks.is_dry(number) => Next::Send(Command::Clear { cas }),
        Seen::Number { .. } => Next::Draw,
        Seen::Foreign => Next::Foreign,
    }
}

/// What becomes of a range that was reserved for a refill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refill {
    /// The command on whose success all of this rests: [`Command::Put`] or [`Command::Release`]. On anything else the
    /// whole range is abandoned.
    pub command: Command,
    /// The first ids, for the winner.
    pub own: Range,
    /// How many ids are neither the winner's nor in the window: a gap.
    pub unused: u64,
}

/// What to do with a range that was reserved after the fence was won, for a draw of `count` ids; `None` if the fence
/// is of another connection, or the range not of this sequence: it is abandoned.
pub fn refill(blocks: Blocks, fence: Fence, connection: u64, range: Range, count: u64) -> Option<Refill> {
    let cas = fence.cas_on(connection)?;
    if range.start() < blocks.start || range.is_empty() {
        return None;
    }
    let (block, offset) = blocks.place(range.start());
    let left = blocks.len - offset;
    let (mut rest, count) = (range, blocks.draw_of(count));
    // Ids that reach to the end of their block go to the window; what lies beyond, in the next one, is lost.
    if range.len() >= left && block <= Blocks::MAX_BLOCK {
        let own = rest.take_front(count.min(left));
        let number = Blocks::encode(block, offset + own.len());
        return Some(Refill { command: Command::Put { cas, number }, own, unused: range.len() - left });
    }
    let own = rest.take_front(count);
    Some(Refill { command: Command::Release { cas }, own, unused: rest.len() })
}

#[cfg(test)]
mod tests;
