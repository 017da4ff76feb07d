//! Checks that other threads' accesses to a thread's block neither lose nor repeat its ids.
//!
//! *Threads*: a thread that draws from its thread block and renews it; a thread that revokes, and gives up
//! the blocks of all threads. The actor publishes after the revocation, so that the thread block can be
//! renewed before it is given up. Up to 3 preemptions.
//!
//! *Promises*: ids are unique and grow. No draw that begins after a revocation yields an id from before it.
//! Every granted id is drawn, or counted as sealed or dropped.
//!
//! *Bugs it catches*: a revocation that writes to fields that only the block's own thread may write; a
//! revocation that gives up a block without changing its generation.

use loom::thread;

use crate::error::ErrorKind;
use crate::explore::explore;
use crate::harness::models;
use crate::state::block::thread::ThreadBlock;
use crate::state::core::Core;
use crate::state::mailbox::Mailbox;
use crate::sync::{Arc, AtomicBool, Ordering};
use crate::world::{range, sequence};

models![a_thread_keeps_what_it_renewed, what_was_given_up_is_void];

/// Does the thread's part: `BlockTable::draw`, and then `BlockTable::renew` if the thread block is empty.
fn draw(core: &Arc<Core>, mailbox: &Mailbox, block: &ThreadBlock) -> Option<u64> {
    let mut segment = core.stock.current();
    let take = || core.take_some(2, &mut segment, mailbox);
    block.draw(&core.stock).or_else(|| block.renew(&core.stock, &core.stats, take))
}

/// Revokes everything, as `Core::revoke` does. Returns the number of ids that were sealed in segments.
fn revoke(core: &Arc<Core>, block: &ThreadBlock) -> u64 {
    let sealed = core.stock.revoke(ErrorKind::Empty, |_| {}).len();
    block.give_up(&core.stock, &core.stats);
    sealed
}

/// Fails unless `drawn` grow, and all `granted` ids are drawn, sealed or dropped.
fn assert_counted(core: &Arc<Core>, drawn: &[u64], sealed: u64, granted: u64) {
    assert!(drawn.is_sorted_by(|before, after| before < after), "{drawn:?}");
    let (dropped, drawn) = (core.stats.dropped(), drawn.len() as u64);
    // A draw that is in progress when its block is given up also counts as dropped.
    let counted = drawn + sealed + dropped;
    assert!((granted..=granted + 1).contains(&counted), "{drawn} drawn, {sealed} sealed, {dropped} dropped");
}

fn a_thread_keeps_what_it_renewed() {
    explore(4_700, Some(3), || {
        let (core, mailbox) = sequence(4, 0, 100);
        let block = Arc::new(ThreadBlock::default());
        let thread = {
            let (core, block) = (core.clone(), block.clone());
            thread::spawn(move || -> Vec<u64> {
                std::iter::repeat_with(|| draw(&core, &mailbox, &block)).take(3).flatten().collect()
            })
        };
        let _nothing = core.stock.revoke(ErrorKind::Empty, |_| {});
        assert!(core.stock.publish(range(1, 3), 0, 1, |_| ()));
        block.give_up(&core.stock, &core.stats);
        let drawn = thread.join().unwrap();
        let sealed = revoke(&core, &block);
        assert_counted(&core, &drawn, sealed, 3);
    });
}

fn what_was_given_up_is_void() {
    explore(2_700, Some(3), || {
        let (core, mailbox) = sequence(4, 0, 100);
        assert!(core.stock.publish(range(1, 2), 0, 0, |_| ()));
        let block = Arc::new(ThreadBlock::default());
        let returned = Arc::new(AtomicBool::new(false));
        let thread = {
            let (core, block, returned) = (core.clone(), block.clone(), returned.clone());
            thread::spawn(move || {
                let first = draw(&core, &mailbox, &block);
                let after = returned.load(Ordering::Acquire);
                let second = draw(&core, &mailbox, &block);
                assert!(!after || second.is_none_or(|id| id > 2), "{second:?} after revocation");
                [first, second].into_iter().flatten().collect::<Vec<_>>()
            })
        };
        let mut sealed = revoke(&core, &block);
        returned.store(true, Ordering::Release);
        assert!(core.stock.publish(range(3, 1), 0, 1, |_| ()));
        let drawn = thread.join().unwrap();
        sealed += revoke(&core, &block);
        assert_counted(&core, &drawn, sealed, 3);
    });
}
