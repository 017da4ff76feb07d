//! A window and its source as one store, over a window in memory on which anything can go wrong.

mod interleavings;
mod moves;
mod refills;
mod shelf;
