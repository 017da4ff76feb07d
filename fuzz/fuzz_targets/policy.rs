//! The policy's sizes satisfy their invariants for arbitrary measurements.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| idmill::fuzzing::policy(data));
