//! The state shared by callers and the actor, without the files that need tokio or thread-locals.

library! {
    "../../src/sequence/block/mod.rs" block,
    "../../src/sequence/core.rs" core,
    "../../src/sequence/draw.rs" draw,
    "../../src/sequence/mailbox.rs" mailbox,
    "../../src/sequence/metrics/off.rs" metrics,
    "../../src/sequence/process.rs" process,
    "../../src/sequence/registry.rs" registry,
    "../../src/sequence/reply.rs" reply,
    "../../src/sequence/grant_history.rs" grant_history,
    "../../src/sequence/segment.rs" segment,
    "../../src/sequence/settings.rs" settings,
    "../../src/sequence/stats.rs" stats,
    "../../src/sequence/stock.rs" stock,
    "../../src/sequence/time.rs" time,
    "../../src/sequence/want.rs" want,
}
