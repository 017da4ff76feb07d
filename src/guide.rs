//! Runs the examples of these pages in `docs/` as tests.

#[doc = include_str!("../docs/guide/codecs.md")]
mod codecs {}

#[doc = include_str!("../docs/tiers.md")]
mod tiers {}

#[doc = include_str!("../docs/guide/metrics.md")]
mod metrics {}

#[doc = include_str!("../docs/guide/restore.md")]
mod restore {}

#[doc = include_str!("../docs/guide/server.md")]
mod server {}

#[doc = include_str!("../docs/guide/security.md")]
mod security {}

#[doc = include_str!("../docs/guide/errors.md")]
mod errors {}

#[doc = include_str!("../docs/guide/gaps.md")]
mod gaps {}

#[doc = include_str!("../docs/guide/order.md")]
mod order {}

#[doc = include_str!("../docs/guide/testing.md")]
mod testing {}

#[doc = include_str!("../docs/guide/transactions.md")]
mod transactions {}
