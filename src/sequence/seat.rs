//! A number for each living thread: the smallest unused one. It selects the thread's stripe of every
//! sequence.
//!
//! It is read without a lock and without a destructor, also while the thread ends: a draw in the destructor
//! of another thread-local works like any other draw. Only the guard, which releases the number, has a
//! destructor.

use std::cell::{Cell, OnceCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::sync::Mutex;

/// The number of seats in the first row, and in the second; each later row doubles the previous one.
const FIRST: usize = 8;

/// A thread's number, as its position in rows that are created when they are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seat {
    pub(crate) row: usize,
    pub(crate) column: usize,
}

/// In no row: the thread has no number yet.
const NONE: Seat = Seat { row: usize::MAX - 1, column: 0 };
/// In no row: the thread is ending, and another thread may already have its number.
const ENDED: Seat = Seat { row: usize::MAX, column: 0 };

thread_local! {
    static SEAT: Cell<Seat> = const { Cell::new(NONE) };
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
/// seat.
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
        // Before another thread can get the number. If this fails, every other access fails too.
        let _ = SEAT.try_with(|seat| seat.set(ENDED));
        FREE.lock().given_back.push(Reverse(self.0));
    }
}

impl Seat {
    /// Returns the number of seats in `row`.
    pub(crate) const fn columns(row: usize) -> usize {
        FIRST << row.saturating_sub(1)
    }

    fn numbered(number: usize) -> Self {
        match (number / FIRST).checked_ilog2() {
            None => Self { row: 0, column: number },
            Some(doublings) => Self { row: doublings as usize + 1, column: number - (FIRST << doublings) },
        }
    }

    /// Returns this thread's seat; it is in no row if the thread has none.
    #[allow(clippy::inline_always)] // two loads
    #[inline(always)]
    pub(crate) fn mine() -> Self {
        SEAT.try_with(Cell::get).unwrap_or(ENDED)
    }

    /// Returns this thread's seat, and assigns one if necessary; `None` while the thread ends.
    pub(crate) fn take() -> Option<Self> {
        match Self::mine() {
            ENDED => None,
            NONE => {
                let number = GUARD.try_with(|guard| guard.get_or_init(Guard::new).0).ok()?;
                SEAT.try_with(|seat| {
                    seat.set(Self::numbered(number));
                    seat.get()
                })
                .ok()
            }
            seat => Some(seat),
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
            assert_eq!(Seat::numbered(number), Seat { row, column });
            column += 1;
            if column == Seat::columns(row) {
                (row, column) = (row + 1, 0);
            }
        }
    }
}
