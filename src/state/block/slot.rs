//! A number for each living thread: the smallest unused one. It selects the thread's block in every sequence.
//!
//! The number is read without a lock and has no destructor, so it can be read even while the thread ends: a
//! draw in the destructor of another thread-local works like any other draw. Only the guard, which releases
//! the number, has a destructor.

use std::cell::{Cell, OnceCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::sync::Mutex;

/// The number of slots in the first row, and in the second; each later row doubles the previous one.
const FIRST: usize = 8;

/// A thread's number, as its position in rows that are created when they are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThreadSlot {
    pub(crate) row: usize,
    pub(crate) column: usize,
}

/// In no row: the thread has no number yet.
const NONE: ThreadSlot = ThreadSlot { row: usize::MAX - 1, column: 0 };
/// In no row: the thread is ending, and another thread may already have its number.
const ENDED: ThreadSlot = ThreadSlot { row: usize::MAX, column: 0 };

thread_local! {
    static SLOT: Cell<ThreadSlot> = const { Cell::new(NONE) };
    static GUARD: OnceCell<Guard> = const { OnceCell::new() };
}

/// The numbers that no living thread has.
struct Free {
    /// The smallest number that was never used.
    next: usize,
    given_back: BinaryHeap<Reverse<usize>>,
}

static FREE: Mutex<Free> = Mutex::new(Free { next: 0, given_back: BinaryHeap::new() });

/// Releases the number when the thread ends. The lock publishes the thread's writes to the next thread in the
/// slot.
struct Guard(usize);

impl Guard {
    fn new() -> Self {
        let mut free = FREE.lock();
        Self(free.given_back.pop().map_or_else(
            || {
                free.next += 1;
                free.next - 1
            },
            |Reverse(number)| number,
        ))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Mark the slot as ended before another thread can get its number. If this access fails, all later
        // accesses fail too.
        let _ = SLOT.try_with(|slot| slot.set(ENDED));
        FREE.lock().given_back.push(Reverse(self.0));
    }
}

impl ThreadSlot {
    /// Returns the number of slots in `row`.
    pub(crate) const fn columns(row: usize) -> usize {
        FIRST << row.saturating_sub(1)
    }

    fn numbered(number: usize) -> Self {
        match (number / FIRST).checked_ilog2() {
            None => Self { row: 0, column: number },
            Some(doublings) => Self { row: doublings as usize + 1, column: number - (FIRST << doublings) },
        }
    }

    /// Returns this thread's slot; it is in no row if the thread has none.
    #[allow(clippy::inline_always)] // two loads
    #[inline(always)]
    pub(crate) fn mine() -> Self {
        SLOT.try_with(Cell::get).unwrap_or(ENDED)
    }

    /// Returns this thread's slot, and assigns one if necessary; `None` while the thread ends.
    pub(crate) fn take() -> Option<Self> {
        match Self::mine() {
            ENDED => None,
            NONE => {
                let number = GUARD.try_with(|guard| guard.get_or_init(Guard::new).0).ok()?;
                SLOT.try_with(|slot| {
                    slot.set(Self::numbered(number));
                    slot.get()
                })
                .ok()
            }
            slot => Some(slot),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seats_fill_the_rows_one_after_the_other() {
        let (mut row, mut column) = (0, 0);
        for number in 0..10_000 {
            assert_eq!(ThreadSlot::numbered(number), ThreadSlot { row, column });
            column += 1;
            if column == ThreadSlot::columns(row) {
                (row, column) = (row + 1, 0);
            }
        }
    }
}
