//! The fuzzer's (`fuzz/`) access to private items. Not part of the crate's interface.
#![allow(missing_docs)]

use std::time::Duration;

use crate::bytes::Bytes;
use crate::name::SequenceName;
use crate::range::{IdRange, Ranges};
use crate::refill::engine::policy::Policy;
use crate::state::segment::{MAX_LEN, Segment};
use crate::state::settings::{Adaptive, Sizing};
use crate::store::{Bounds, Change, Identity, SequenceInfo};

/// The refill engine against its oracle.
pub fn engine(data: &[u8]) {
    crate::refill::oracle::run(data);
}

/// Every plan satisfies its invariants, for arbitrary measurements.
pub fn policy(data: &[u8]) {
    let mut bytes = Bytes::new(data);
    let (max_buffered, min_step) = (bytes.number(), bytes.number());
    let outage_budget = Duration::from_nanos(bytes.number());
    let settings = Adaptive { outage_budget, max_buffered, min_step, by_bounds: false };
    let sizing = Sizing::Adaptive(settings);
    if sizing.check().is_err() {
        return;
    }
    let mut policy = Policy::new(&sizing);
    let (mut now, mut total) = (Duration::ZERO, 0_u64);
    while !bytes.is_empty() {
        now += Duration::from_nanos(bytes.number());
        // The total may also decrease: the counters that it is computed from are read one after the other.
        total = if bytes.below(8) == 0 { bytes.number() } else { total.saturating_add(bytes.number()) };
        policy.drawn(total, now);
        let before = policy.plan();
        policy.note_latency(Duration::from_nanos(bytes.number()));
        policy.adapt(&sizing);
        let plan = policy.plan();
        assert!(plan.step >= 1 && plan.watermark <= plan.step, "{plan:?}");
        assert!(u128::from(plan.step) + u128::from(plan.watermark) <= u128::from(max_buffered), "{plan:?}");
        assert!(plan.step <= before.step.saturating_mul(4), "{before:?} to {plan:?}");
        assert!(policy.rate().is_finite() && policy.rate() >= 0.0);
    }
}

/// Ranges, segments and stored sequences against a reference in `u128`.
pub fn range(data: &[u8]) {
    let mut bytes = Bytes::new(data);
    while !bytes.is_empty() {
        match bytes.below(3) {
            0 => ranges(&mut bytes),
            1 => segment(&mut bytes),
            _ => sequence(&mut bytes),
        }
    }
}

fn ranges(bytes: &mut Bytes<'_>) {
    let (start, len, n) = (bytes.number(), bytes.number(), bytes.number());
    let end = u128::from(start) + u128::from(len);
    let Some(range) = IdRange::<u64>::new(start, len) else {
        return assert!(end > u128::from(u64::MAX) + 1);
    };
    assert!(end <= u128::from(u64::MAX) + 1);
    assert_eq!((range.end(), range.len(), range.is_empty()), (end, len, len == 0));
    let mut rest = range;
    let front = rest.take_front(n);
    assert_eq!((front.start(), front.len()), (start, n.min(len)));
    assert_eq!(rest.len(), len - front.len());
    assert!(rest.is_empty() || (u128::from(rest.start()), rest.end()) == (front.end(), end));
    assert_eq!(range.skip(n).len(), rest.len());
    assert!(!front.overlaps(&rest) && !rest.overlaps(&front));
    let mut whole = Ranges::none();
    whole.push(front);
    whole.push(rest);
    assert_eq!(whole.len(), len);
    assert!(whole.ranges().len() <= 1);
    let id = bytes.number();
    assert_eq!(range.contains(id), u128::from(id) < end && id >= start);
}

fn segment(bytes: &mut Bytes<'_>) {
    let (start, len, watermark) = (bytes.number(), bytes.number() % (MAX_LEN + 1), bytes.number());
    let Some(range) = IdRange::<u64>::new(start, len) else { return };
    let segment = Segment::new(range, watermark);
    let (mut expected, mut left, mut signals) = (u128::from(start), len, 0);
    for _ in 0..bytes.below(32) {
        let (taken, low) = match bytes.number() {
            0 => {
                assert_eq!(segment.seal().len(), left);
                left = 0;
                continue;
            }
            1 => match segment.draw() {
                Some(drawn) => (IdRange::new(drawn.id, 1).expect("an id"), drawn.low),
                None => (IdRange::EMPTY, false),
            },
            n => {
                let taken = segment.take(n);
                assert_eq!(taken.range.len(), n.min(left));
                (taken.range, taken.low)
            }
        };
        assert!(taken.is_empty() || u128::from(taken.start()) == expected);
        expected += u128::from(taken.len());
        left -= taken.len();
        signals += u32::from(low);
        assert_eq!(segment.remaining(), left);
        assert!(signals <= 1 && (!low || left < watermark));
    }
}

fn sequence(bytes: &mut Bytes<'_>) {
    let start = bytes.number();
    let Ok(bounds) = Bounds::new(start, bytes.number()) else { return };
    let name = SequenceName::new("s").expect("a name");
    let identity = Identity { incarnation: 1, epoch: 0 };
    let mut info = SequenceInfo { name, next: Some(start), bounds, identity };
    for _ in 0..bytes.below(16) {
        if bytes.below(4) > 0 {
            grant(&mut info, bytes.number(), bytes.number());
        } else {
            change(&mut info, bytes);
        }
        let max = info.bounds.max();
        assert!(info.next.is_none_or(|next| (bounds.start()..=max).contains(&next)), "{info:?}");
    }
}

fn grant(info: &mut SequenceInfo, count: u64, ceiling: u64) {
    let before = info.clone();
    let last = u128::from(before.bounds.max().min(ceiling));
    let Ok(grant) = info.grant(count, ceiling) else {
        assert!(before.next.is_none_or(|next| u128::from(next) > last));
        return assert_eq!(*info, before);
    };
    let next = before.next.expect("granted");
    let expected = u128::from(count.max(1)).min(last + 1 - u128::from(next));
    assert_eq!((grant.range.start(), u128::from(grant.range.len())), (next, expected));
    assert_eq!(info.remaining(), before.remaining() - expected);
    assert_eq!((grant.identity, grant.bounds), (before.identity, before.bounds));
}

/// One past the largest id that was reserved.
fn reached(info: &SequenceInfo) -> u128 {
    info.next.map_or(u128::from(info.bounds.max()) + 1, u128::from)
}

fn change(info: &mut SequenceInfo, bytes: &mut Bytes<'_>) {
    let mut some = || (bytes.below(2) == 0).then(|| bytes.number());
    let (next, max) = (some(), some());
    let other = Identity { incarnation: 2, epoch: 0 };
    let expect = [None, Some(info.identity), Some(other)][usize::from(bytes.below(3))];
    let change = Change {
        next,
        max,
        backwards: bytes.below(2) == 0,
        revoke: bytes.below(4) == 0,
        expect,
        ..Change::default()
    };
    let before = info.clone();
    if info.apply(&change).is_err() {
        return assert_eq!(*info, before);
    }
    assert_ne!(expect, Some(other));
    assert_eq!(info.bounds.max(), max.unwrap_or(before.bounds.max()));
    let back = reached(info) < reached(&before);
    assert!(
        !back || (change.backwards && info.identity.epoch > before.identity.epoch),
        "{before:?} {change:?}"
    );
    // One past max means that no id is left.
    let left = next.filter(|next| *next <= info.bounds.max());
    assert!(next.is_none() || info.next == left, "{before:?} {change:?} {info:?}");
}
