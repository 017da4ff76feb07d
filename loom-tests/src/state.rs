//! The state shared by callers and the actor, without the files that need tokio or thread-locals.

library! {
    "../../src/state/block/mod.rs" block,
    "../../src/state/core.rs" core,
    "../../src/state/draw.rs" draw,
    "../../src/state/mailbox.rs" mailbox,
    "../../src/state/metrics/off.rs" metrics,
    "../../src/state/fork.rs" fork,
    "../../src/state/registry.rs" registry,
    "../../src/state/reply.rs" reply,
    "../../src/state/grant_history.rs" grant_history,
    "../../src/state/segment.rs" segment,
    "../../src/state/settings.rs" settings,
    "../../src/state/stats.rs" stats,
    "../../src/state/stock.rs" stock,
    "../../src/state/time.rs" time,
    "../../src/state/want.rs" want,
}
