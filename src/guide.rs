//! The pages that are longer than a type. They are part of the documentation alone.

#[doc = include_str!("../docs/guarantees.md")]
pub mod guarantees {}

#[doc = include_str!("../docs/codecs.md")]
pub mod codecs {}

#[doc = include_str!("../docs/tiers.md")]
pub mod tiers {}

#[doc = include_str!("../docs/metrics.md")]
pub mod metrics {}

#[doc = include_str!("../docs/restore.md")]
pub mod restore {}

#[doc = include_str!("../docs/server.md")]
pub mod server {}

#[doc = include_str!("../docs/security.md")]
pub mod security {}
