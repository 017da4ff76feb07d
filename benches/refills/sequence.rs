//! The segments that callers draw from.

library! {
    "../../src/sequence/process.rs" process,
    "../../src/sequence/grant_history.rs" grant_history,
    "../../src/sequence/segment.rs" segment,
    "../../src/sequence/settings.rs" settings,
    "../../src/sequence/stock.rs" stock,
    "../../src/sequence/time.rs" time,
    "../../src/sequence/want.rs" want,
}
