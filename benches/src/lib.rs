//! What the benchmarks of idmill share.
