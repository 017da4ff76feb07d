//! The models, one question per file.

mod cancel;
mod close;
mod end;
mod flight;
mod promotion;
mod registry;
mod revoke;
mod signal;
mod take_end;
mod thread_block;
mod turn;
mod wake;

use crate::harness::Model;

pub(crate) const MODELS: &[&[Model]] = &[
    signal::MODELS,
    promotion::MODELS,
    take_end::MODELS,
    revoke::MODELS,
    thread_block::MODELS,
    turn::MODELS,
    wake::MODELS,
    cancel::MODELS,
    close::MODELS,
    end::MODELS,
    flight::MODELS,
    registry::MODELS,
];
