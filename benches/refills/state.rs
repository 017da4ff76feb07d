//! The segments that callers draw from.

library! {
    "../../src/state/fork.rs" fork,
    "../../src/state/grant_history.rs" grant_history,
    "../../src/state/segment.rs" segment,
    "../../src/state/settings.rs" settings,
    "../../src/state/stock.rs" stock,
    "../../src/state/time.rs" time,
    "../../src/state/want.rs" want,
}
