//! The option `max_skip` of both windows: how long the ids in the window last.

use std::time::Duration;

use crate::error::Result;
use crate::store::kit::query::{self, Printed};
use crate::store::kit::refuse;

pub const DEFAULT: Option<Duration> = Some(Duration::from_secs(5));

const UNBOUNDED: &str = "none";

pub fn read(value: &str) -> Result<Option<Duration>> {
    if value == UNBOUNDED {
        return Ok(None);
    }
    query::duration("max_skip", value, "500ms, 5s, none").map(Some)
}

pub fn check(lasts: Option<Duration>) -> Result<()> {
    match lasts.filter(|lasts| !(Duration::from_millis(10)..=Duration::from_secs(3600)).contains(lasts)) {
        Some(lasts) => Err(refuse(format!("max_skip={lasts:?}; it must be 10ms to 60m, or none"))),
        None => Ok(()),
    }
}

pub fn print(options: Printed, lasts: Option<Duration>) -> Printed {
    match lasts {
        None => options.given("max_skip", Some(UNBOUNDED)),
        Some(lasts) => options.duration("max_skip", lasts, DEFAULT.unwrap_or_default()),
    }
}
