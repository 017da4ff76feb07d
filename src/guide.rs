//! The examples of the pages in `docs/`, which are run as tests.

#[doc = include_str!("../docs/guarantees.md")]
mod guarantees {}

#[doc = include_str!("../docs/codecs.md")]
mod codecs {}

#[doc = include_str!("../docs/tiers.md")]
mod tiers {}

#[doc = include_str!("../docs/metrics.md")]
mod metrics {}

#[doc = include_str!("../docs/restore.md")]
mod restore {}

#[doc = include_str!("../docs/server.md")]
mod server {}

#[doc = include_str!("../docs/security.md")]
mod security {}
