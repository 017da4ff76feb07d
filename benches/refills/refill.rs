//! The decisions of the refill.

library! {
    "../../src/refill/engine.rs" engine,
    "../../src/refill/event.rs" event,
    "../../src/refill/policy.rs" policy,
    "../../src/refill/queue.rs" queue,
    "../../src/refill/retry.rs" retry,
}
