//! No-op functions without the feature `metrics`.

use std::time::Duration;

use crate::error::Result;
use crate::state::core::Core;
use crate::store::Grant;

pub(crate) fn describe() {}

/// Counts nothing.
pub fn count(_: &'static str, _: &[(&'static str, &str)]) {}

pub(crate) fn answered(_: &Core, _: Duration, _: &Result<Grant>) {}

pub(crate) fn record(_: &Core, _: Duration) {}

pub(crate) fn opening(_: &Core, _: usize) {}
