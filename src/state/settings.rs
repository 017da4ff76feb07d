//! The settings of one sequence, checked once when the sequence is opened.

use std::time::Duration;

use crate::error::{Error, Operation, Result, string_enum};
use crate::id::Id;
use crate::state::segment::MAX_LEN;
use crate::store::Bounds;

string_enum! {
    /// The ordering guarantee of the ids of a sequence.
    ///
    /// In every order, no id is ever handed out twice. See `docs/guide/order.md` in the repository.
    #[derive(Default)]
    pub enum Order, "order" {
        /// An id requested after another was returned, *anywhere*, is larger. Costs one round trip to the
        /// store, shared by all callers that wait at that moment. Nothing is prefetched, and `try_next` never
        /// returns an id.
        Global = "global",
        /// Ids grow within the process: an id requested after another was returned, in any thread, is larger.
        /// Costs nanoseconds.
        #[default]
        Process = "process",
        /// Ids grow per handle, and per thread for callers of the allocator itself. Costs about as much as a
        /// plain increment; throughput grows with the number of cores.
        Thread = "thread",
    }
}

/// The settings of one sequence. Fixed when the sequence is opened.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Settings {
    pub(crate) order: Order,
    pub(crate) sizing: Sizing,
    /// The bounds to create the sequence with.
    pub(crate) bounds: Bounds,
    /// The smallest and the largest id that the caller's type can hold.
    pub(crate) floor: u64,
    pub(crate) ceiling: u64,
    /// How many ids a thread or a handle takes at a time under [`Order::Thread`].
    pub(crate) block: u64,
    /// Fixes the jitter of retries, for repeatable simulations.
    pub(crate) seed: Option<u64>,
}

impl Settings {
    pub(crate) fn of<T: Id>() -> Self {
        let bounds = Bounds::of::<T>();
        Self {
            order: Order::default(),
            sizing: Sizing::Adaptive(Adaptive::for_bounds(bounds)),
            bounds,
            floor: T::MIN,
            ceiling: T::MAX,
            block: 64,
            seed: None,
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        let invalid = |message: String| Err(Error::invalid(message).during(Operation::Configure));
        let (start, max) = (self.bounds.start(), self.bounds.max());
        if start < self.floor || max > self.ceiling {
            let (floor, ceiling) = (self.floor, self.ceiling);
            return invalid(format!(
                "bounds {start}..={max} do not fit the id type, which holds {floor}..={ceiling}"
            ));
        }
        if self.block == 0 || self.block > MAX_LEN {
            return invalid(format!("invalid block of {} ids; it must be from 1 to 2^48", self.block));
        }
        self.sizing.check().map_err(|message| Error::invalid(message).during(Operation::Configure))
    }
}

/// The limits of an allocator's calls. Allocators of one sequence may have different ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallLimits {
    /// The timeout of a call that waits.
    pub(crate) timeout: Duration,
    /// The maximum number of ids per `take`; by default [`Sizing::largest_take`].
    pub(crate) max_take: Option<u64>,
}

impl Default for CallLimits {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(30), max_take: None }
    }
}

impl CallLimits {
    pub(crate) fn check(&self) -> Result<()> {
        match self.max_take {
            Some(ids) if ids == 0 || ids > MAX_LEN => {
                let message = format!("invalid `max_take` of {ids} ids; it must be from 1 to 2^48");
                Err(Error::invalid(message).during(Operation::Configure))
            }
            _ => Ok(()),
        }
    }
}

/// How many ids a refill reserves, and when it starts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Sizing {
    /// Constant sizes.
    Fixed {
        /// How many ids a refill reserves; at least 1.
        step: u64,
        /// How many ids remain when a refill starts: from 0 (only when memory is empty: the *batch* mode) up
        /// to `step`.
        watermark: u64,
    },
    /// Sizes from the measured rate and latency.
    Adaptive(Adaptive),
}

/// The default limit of one `take`. By default, a restart may waste up to this many ids of a large sequence,
/// so a cancelled take costs no more. More are seldom useful: databases accept fewer in one statement.
const LARGEST_TAKE: u64 = 1_000_000;

/// The first adaptive step, and every step while replies are lost; smaller if `step` or `max_buffered`
/// requires it.
const LEAST_STEP: u64 = 32;

/// The settings of [`Sizing::Adaptive`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Adaptive {
    /// How long ids in memory should last at the current rate while the store is unreachable.
    pub(crate) outage_budget: Duration,
    /// The maximum number of ids in memory, which a restart loses; takes precedence over the budget.
    pub(crate) max_buffered: u64,
    /// The minimum step, which is also the first step.
    pub(crate) min_step: u64,
    /// Whether `max_buffered` is the default, which also depends on the bounds of the stored sequence.
    pub(crate) by_bounds: bool,
}

impl Adaptive {
    /// Returns the default for a sequence of these bounds: a budget of 5 s, and a cap of a ten-thousandth of
    /// the sequence, but at most a million ids.
    pub(crate) fn for_bounds(bounds: Bounds) -> Self {
        let adaptive = Self::of(Duration::from_secs(5), Self::most_buffered(bounds));
        Self { by_bounds: true, ..adaptive }
    }

    /// Returns the default `max_buffered`.
    fn most_buffered(bounds: Bounds) -> u64 {
        ((bounds.max() - bounds.start()) / 10_000).clamp(1, 1_000_000)
    }

    /// Derives the smallest step from the cap.
    pub(crate) fn of(outage_budget: Duration, max_buffered: u64) -> Self {
        let min_step = max_buffered.div_ceil(2).min(LEAST_STEP);
        Self { outage_budget, max_buffered, min_step, by_bounds: false }
    }
}

impl Sizing {
    /// Returns the sizing for a stored sequence of these bounds. They are narrower than those of the id type
    /// if the sequence was created with a smaller max; the default limits follow them.
    pub(crate) fn within(self, bounds: Bounds) -> Self {
        self.capped(Adaptive::most_buffered(bounds))
    }

    /// Returns the sizing with this default limit of the ids in memory.
    pub(crate) fn capped(self, cap: u64) -> Self {
        match self {
            Self::Adaptive(adaptive) if adaptive.by_bounds => {
                let most = adaptive.max_buffered.min(cap);
                Self::Adaptive(Adaptive { by_bounds: true, ..Adaptive::of(adaptive.outage_budget, most) })
            }
            chosen => chosen,
        }
    }

    /// Returns the maximum number of ids in memory. A fixed step has no limit of its own: ids reserved for
    /// callers that have given up stay for other callers.
    pub(crate) fn most_in_memory(&self) -> u64 {
        match *self {
            Self::Fixed { .. } => MAX_LEN,
            Self::Adaptive(Adaptive { max_buffered, .. }) => max_buffered,
        }
    }

    /// Returns the default limit of one `take`: a million, or `max_buffered` or the step if that is larger,
    /// since a crash may waste that anyway.
    pub(crate) fn largest_take(&self) -> u64 {
        match *self {
            Self::Fixed { step, .. } => step.max(LARGEST_TAKE),
            Self::Adaptive(Adaptive { max_buffered, .. }) => max_buffered.max(LARGEST_TAKE),
        }
    }

    /// Returns how many ids to reserve while replies are lost: each lost reply makes a gap of at least this
    /// size.
    pub(crate) fn least_step(&self) -> u64 {
        match *self {
            Self::Fixed { step, .. } => step.min(LEAST_STEP),
            Self::Adaptive(Adaptive { min_step, .. }) => min_step,
        }
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        match *self {
            Self::Fixed { step, .. } if step == 0 || step > MAX_LEN => {
                Err(format!("invalid step of {step} ids; it must be from 1 to 2^48"))
            }
            Self::Fixed { step, watermark } if watermark > step => Err(format!(
                "the watermark of {watermark} is above the step of {step}; lower the watermark, or raise the \
                 step"
            )),
            Self::Adaptive(Adaptive { min_step, max_buffered, .. })
                if min_step == 0 || min_step > max_buffered || max_buffered > MAX_LEN =>
            {
                Err(format!(
                    "invalid `max_buffered` {max_buffered}; it must be above 0, at least the minimum step {min_step} \
                     and at most 2^48"
                ))
            }
            _ => Ok(()),
        }
    }
}

// Not under loom, which compiles this file from another package.
#[cfg(all(test, not(idmill_loom)))]
mod tests {
    use super::*;

    /// The numbers in `docs/guide`.
    #[test]
    fn default_settings_are_those_of_the_guide() {
        let large = Settings::of::<u64>();
        assert_eq!((CallLimits::default().timeout, large.block), (Duration::from_secs(30), 64));
        assert_eq!(large.sizing.largest_take(), 1_000_000);
        let sizes = |settings: &Settings| match settings.sizing {
            Sizing::Adaptive(adaptive) => (adaptive.outage_budget.as_secs(), adaptive.max_buffered),
            Sizing::Fixed { .. } => panic!("the default follows the load"),
        };
        assert_eq!(sizes(&large), (5, 1_000_000));
        // A ten-thousandth of 2^31 ids.
        assert_eq!(sizes(&Settings::of::<i32>()), (5, 214_748));
    }

    #[test]
    fn memory_holds_a_ten_thousandth_and_at_most_a_million() {
        for (max, most) in [
            (1, 1),
            (20_000, 1),
            (20_001, 2),
            (10_000_000, 999),
            (10_000_001, 1_000),
            (10_000_000_000, 999_999),
            (10_000_000_001, 1_000_000),
            (20_000_000_001, 1_000_000),
            (u64::MAX, 1_000_000),
        ] {
            assert_eq!(Adaptive::most_buffered(Bounds::new(1, max).unwrap()), most, "1 to {max}");
        }
    }
}
