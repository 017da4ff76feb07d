//! The actor's decisions, and the driver that carries them out. The models replace the actor.

library! {
    "../../src/refill/driver/mod.rs" driver,
    "../../src/refill/engine/mod.rs" engine,
}
