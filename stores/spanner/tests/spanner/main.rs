//! Tests the Spanner store on Google's emulator. Each test starts an emulator through `ci/engines/spanner`.

mod cut;
mod errors;
mod faults;
mod modes;
mod published;
mod setup;
mod transactions;
