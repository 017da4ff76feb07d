//! The Spanner store over the real emulator, which `ci/engines/spanner` starts: one for each test.

mod cut;
mod errors;
mod faults;
mod modes;
mod published;
mod setup;
mod transactions;
