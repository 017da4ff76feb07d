//! The actor's decisions, and the driver that carries them out. The models replace the actor.

library! {
    "../../src/refill/driver/mod.rs" driver,
    "../../src/refill/engine.rs" engine,
    "../../src/refill/event.rs" event,
    "../../src/refill/policy.rs" policy,
    "../../src/refill/queue.rs" queue,
    "../../src/refill/pending_give_back.rs" pending_give_back,
    "../../src/refill/retry.rs" retry,
}
