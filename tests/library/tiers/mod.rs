//! A window and its source as one store, over a window in memory that can fail in every way.

mod interleavings;
mod moves;
mod refills;
mod shelf;
