//! Tests of grants, signals and waiting callers, with a driver without an actor.

use std::time::Duration;

use futures_util::FutureExt as _;

use super::*;
use crate::name::SequenceName;
use crate::state::mailbox::Message;
use crate::state::reply::Reply;
use crate::state::settings::{Settings, Sizing};
use crate::store::Bounds;

fn grant(start: u64, epoch: u64) -> Grant {
    let identity = Identity { incarnation: 1, epoch };
    Grant::new(IdRange::new(start, 10).unwrap(), identity, Bounds::of::<u64>())
}

fn driver() -> (Arc<Core>, Driver, Mailbox) {
    let sizing = Sizing::Fixed { step: 10, watermark: 10 };
    let settings = Settings { sizing, ..Settings::of::<u64>() };
    let core = Arc::new(Core::new(SequenceName::new("s").unwrap(), Arc::new(settings)));
    (core.clone(), Driver::new(core), Mailbox::new())
}

#[test]
fn empty_sequence_signals_once_until_it_is_refilled() {
    let (core, mut driver, mailbox) = driver();
    let signals = || mailbox.receive(9).low.len();
    let try_in_vain = || (0..3).for_each(|_| drop(core.refused(ErrorKind::Empty, &mailbox)));
    let now = Duration::ZERO;
    try_in_vain();
    assert_eq!(signals(), 1);
    assert!(driver.low(now).is_some());
    try_in_vain();
    assert_eq!(signals(), 0, "a reserve is in flight");
    let _ = driver.answered(Err(ErrorKind::Unavailable.into()), now);
    try_in_vain();
    assert_eq!(signals(), 0, "no signal before the retry is due");
    assert!(driver.tick(Duration::from_secs(1)).is_some());
    assert!(driver.answered(Ok(grant(1, 0)), now).is_none());
    assert_eq!(core.take(1, &mailbox).map(|ids| ids.len()).unwrap_or_default(), 1);
    assert_eq!(signals(), 1, "a draw below the watermark wakes the actor");
}

/// Sends the request of a `take` of `want` ids.
fn ask(core: &Arc<Core>, mailbox: &Mailbox, want: u64) -> (Reply, Request) {
    let reply = mailbox.ask(core, Want::Ids(want), Time::MAX, None).unwrap();
    let Some(Message::Request(request)) = mailbox.receive(0).messages.pop_front() else { panic!("queued") };
    (reply, request)
}

#[test]
fn take_leaves_memory_to_others_until_the_grant() {
    for is_granted in [true, false] {
        let (core, mut driver, mailbox) = driver();
        let now = Duration::ZERO;
        assert!(driver.low(now).is_some());
        assert!(driver.answered(Ok(grant(1, 0)), now).is_none());
        let (reply, request) = ask(&core, &mailbox, 12);
        assert_eq!(driver.request(request, &mailbox, now).map(|reserve| reserve.count), Some(12));
        assert_eq!(core.take(3, &mailbox).unwrap().iter().collect::<Vec<_>>(), [1, 2, 3]);
        let answer = if is_granted { Ok(grant(11, 0)) } else { Err(ErrorKind::Exhausted.into()) };
        let _ = driver.answered(answer, now);
        let taken = reply.now_or_never().unwrap().map(|ids| ids.iter().collect::<Vec<_>>());
        if is_granted {
            assert_eq!(taken.unwrap(), (4..=15).collect::<Vec<_>>());
            assert_eq!((core.stock.remaining(), core.drawn()), (5, 15));
        } else {
            assert!(taken.is_err());
            assert_eq!((core.stock.remaining(), core.drawn()), (7, 3));
        }
        assert_eq!(core.stats.dropped(), 0);
    }
}

#[test]
fn one_id_is_drawn_from_memory_while_a_take_waits() {
    let (core, mut driver, mailbox) = driver();
    let now = Duration::ZERO;
    assert!(driver.low(now).is_some());
    assert!(driver.answered(Ok(grant(1, 0)), now).is_none());
    let (_take, request) = ask(&core, &mailbox, 12);
    assert!(driver.request(request, &mailbox, now).is_some());
    let (next, request) = ask(&core, &mailbox, 1);
    let _ = driver.request(request, &mailbox, now);
    assert_eq!(next.now_or_never().unwrap().unwrap().only::<u64>(), 1);
    assert_eq!((core.stock.remaining(), core.drawn()), (9, 1));
}

#[test]
fn grant_of_another_identity_voids_drained_ids() {
    let (core, mut driver, mailbox) = driver();
    let now = Duration::ZERO;
    assert!(driver.low(now).is_some());
    assert!(driver.answered(Ok(grant(1, 0)), now).is_none());
    let (reply, request) = ask(&core, &mailbox, 12);
    assert!(driver.request(request, &mailbox, now).is_some());
    // The new grant has the same ids as memory, and too few for the caller: others may draw them.
    assert_eq!(driver.answered(Ok(grant(1, 1)), now).map(|reserve| reserve.count), Some(12));
    assert_eq!((core.stock.remaining(), core.stats.abandoned()), (10, 10));
    let _ = driver.answered(Ok(grant(11, 1)), now);
    let ids = reply.now_or_never().unwrap().unwrap();
    assert_eq!(ids.iter().collect::<Vec<_>>(), (1..=12).collect::<Vec<_>>());
}

#[test]
fn rejected_grant_counts_only_as_a_failure() {
    let (core, mut driver, mailbox) = driver();
    let now = Duration::ZERO;
    assert!(driver.low(now).is_some());
    assert!(driver.answered(Ok(grant(11, 3)), now).is_none());
    let _ = core.take(1, &mailbox);
    assert!(driver.low(now).is_some());
    // The store went back in time: callers get the error after the raise.
    assert!(driver.answered(Ok(grant(1, 2)), now).is_none());
    assert_eq!(driver.raise().and_then(|change| change.next), Some(21));
    assert_eq!((core.stats.failures(), driver.is_idle()), (0, false));
    assert!(driver.raised(now).is_none());
    let (stats, identity) = (&core.stats, Identity { incarnation: 1, epoch: 3 });
    assert_eq!((stats.granted(), stats.failures(), stats.identity()), (10, 1, Some(identity)));
    assert_eq!(stats.unreserved(30), Some(10));
}

#[test]
fn a_grant_that_is_void_is_granted_and_a_gap() {
    let (core, mut driver, _) = driver();
    let now = Duration::ZERO;
    assert!(driver.low(now).is_some());
    let _ = driver.revoked(now);
    let _ = driver.answered(Ok(grant(1, 0)), now);
    assert_eq!((core.stats.granted(), core.stats.abandoned(), core.stats.identity()), (10, 10, None));
}

#[test]
fn range_of_new_identity_revoked_in_flight_is_dropped() {
    let (core, mut driver, mailbox) = driver();
    let now = Duration::ZERO;
    assert!(driver.low(now).is_some());
    assert!(driver.answered(Ok(grant(11, 0)), now).is_none());
    let _ = core.take(1, &mailbox);
    assert!(driver.low(now).is_some());
    // The driver has not handled the revocation when the answer arrives.
    assert_eq!(core.revoke(&mailbox), 9);
    let _ = driver.answered(Ok(grant(1, 1)), now);
    assert_eq!(core.stock.remaining(), 0, "reserved before the revocation");
}
