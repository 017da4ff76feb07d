//! The type of points in time, such as deadlines.

use std::time::Duration;

/// A point in time, as the time since the start of the actor's [clock](crate::state::clock). The refill
/// engine uses no other clock.
pub(crate) type Time = Duration;
