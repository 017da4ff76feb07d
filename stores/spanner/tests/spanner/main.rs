//! The Spanner store on the real emulator, which `ci/engines/spanner` starts: one per test.

mod cut;
mod errors;
mod faults;
mod modes;
mod published;
mod setup;
mod transactions;
