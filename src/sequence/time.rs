//! What a deadline is reckoned in.

use std::time::Duration;

/// A point in time, as the time since the actor's [clock](crate::sequence::clock) began. The refill engine
/// knows no other clock.
pub(crate) type Time = Duration;
