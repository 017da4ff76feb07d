//! Tests of grants, signals and parts of a `take`, with a driver without an actor.

use std::time::Duration;

use futures_util::FutureExt as _;

use super::*;
use crate::name::SequenceName;
use crate::sequence::parts::{Mailbox, Message};
use crate::sequence::reply::Reply;
use crate::sequence::settings::{Settings, Sizing};
use crate::store::Bounds;

fn grant(start: u64, epoch: u64) -> Grant {
    let identity = Identity { incarnation: 1, epoch };
    Grant { range: IdRange::new(start, 10).unwrap(), identity, bounds: Bounds::of::<u64>() }
}

fn driver() -> (Arc<Core>, Driver) {
    let (core, driver, _) = signalling();
    (core, driver)
}

fn signalling() -> (Arc<Core>, Driver, Arc<Mailbox>) {
    let sizing = Sizing::Fixed { step: 10, watermark: 10 };
    let settings = Settings { sizing, ..Settings::of::<u64>() };
    let mailbox = Arc::new(Mailbox::new());
    let core = Core::new(SequenceName::new("s").unwrap(), Arc::new(settings), mailbox.clone());
    let core = Arc::new(core);
    (core.clone(), Driver::new(core), mailbox)
}

#[test]
fn empty_sequence_signals_once_until_it_is_refilled() {
    let (core, mut driver, mailbox) = signalling();
    let signals = || mailbox.receive(9).low.len();
    let try_in_vain = || (0..3).for_each(|_| drop(core.refused(ErrorKind::Empty)));
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
    assert_eq!(core.take(1).map(|ids| ids.len()).unwrap_or_default(), 1);
    assert_eq!(signals(), 1, "a draw below the watermark wakes the actor");
}

/// Sends the request of a `take` of `want` ids that has already got `part`.
fn ask(core: &Arc<Core>, mailbox: &Mailbox, want: u64, part: Ranges) -> (Reply, Request) {
    let part = Some(Part::new(core.clone(), part, core.stock.generation()));
    let reply = Reply::ask(core, Question { want, part, known: None }, Time::MAX, None).unwrap();
    let Some(Message::Request(request)) = mailbox.receive(0).messages.pop_front() else { panic!("queued") };
    (reply, request)
}

#[test]
fn part_of_a_refused_take_returns_to_memory() {
    for is_cancelled in [false, true] {
        let (core, mut driver, mailbox) = signalling();
        let now = Duration::ZERO;
        assert!(driver.low(now).is_some());
        assert!(driver.answered(Ok(grant(1, 0)), now).is_none());
        let Err(part) = core.take(12) else { panic!("there are ten") };
        let (reply, request) = ask(&core, &mailbox, 12, part);
        let reply = Some(reply).filter(|_| !is_cancelled);
        assert_eq!(driver.request(request, now).is_some(), !is_cancelled);
        let _ = driver.answered(Err(ErrorKind::Exhausted.into()), now);
        assert_eq!((core.stock.remaining(), core.drawn(), core.stats.dropped()), (10, 0, 0));
        assert!(reply.is_none_or(|reply| reply.now_or_never().unwrap().is_err()));
    }
}

#[test]
fn part_that_others_drew_beyond_is_only_its_callers() {
    for fails in [false, true] {
        let (core, mut driver, mailbox) = signalling();
        let now = Duration::ZERO;
        assert!(driver.low(now).is_some());
        assert!(driver.answered(Ok(grant(1, 0)), now).is_none());
        let Err(part) = core.take(12) else { panic!("there are ten") };
        assert!(driver.low(now).is_some());
        assert!(driver.answered(Ok(grant(11, 0)), now).is_none());
        let _ = core.take(9);
        let (reply, request) = ask(&core, &mailbox, 12, part);
        assert!(
            driver.request(request, now).is_some(),
            "two ids are missing and one is left, so a reserve is needed"
        );
        let answer = if fails { Err(ErrorKind::Exhausted.into()) } else { Ok(grant(21, 0)) };
        let _ = driver.answered(answer, now);
        let taken = reply.now_or_never().unwrap().map(|ids| ids.ids().collect::<Vec<_>>());
        if fails {
            assert_eq!((core.stock.remaining(), core.stats.dropped()), (1, 10));
        } else {
            assert_eq!(taken.unwrap(), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 21]);
        }
    }
}

#[test]
fn rejected_grant_counts_only_as_a_failure() {
    let (core, mut driver) = driver();
    let now = Duration::ZERO;
    assert!(driver.low(now).is_some());
    assert!(driver.answered(Ok(grant(11, 3)), now).is_none());
    let _ = core.take(1);
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
    let (core, mut driver) = driver();
    let now = Duration::ZERO;
    assert!(driver.low(now).is_some());
    let _ = driver.revoked(now);
    let _ = driver.answered(Ok(grant(1, 0)), now);
    assert_eq!((core.stats.granted(), core.stats.abandoned(), core.stats.identity()), (10, 10, None));
}

#[test]
fn range_of_new_identity_revoked_in_flight_is_dropped() {
    let (core, mut driver) = driver();
    let now = Duration::ZERO;
    assert!(driver.low(now).is_some());
    assert!(driver.answered(Ok(grant(11, 0)), now).is_none());
    let _ = core.take(1);
    assert!(driver.low(now).is_some());
    // The driver has not handled the revocation when the answer arrives.
    assert_eq!(core.revoke(), 9);
    let _ = driver.answered(Ok(grant(1, 1)), now);
    assert_eq!(core.stock.remaining(), 0, "reserved before the revocation");
}
