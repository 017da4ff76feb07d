//! The examples of the pages in `docs/`, which are run as tests.

#[doc = include_str!("../docs/guide/guarantees.md")]
mod guarantees {}

#[doc = include_str!("../docs/guide/codecs.md")]
mod codecs {}

#[doc = include_str!("../docs/guide/tiers.md")]
mod tiers {}

#[doc = include_str!("../docs/guide/metrics.md")]
mod metrics {}

#[doc = include_str!("../docs/guide/restore.md")]
mod restore {}

#[doc = include_str!("../docs/guide/server.md")]
mod server {}

#[doc = include_str!("../docs/guide/security.md")]
mod security {}
