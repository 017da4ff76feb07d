//! The refill engine against its oracle: see `fuzz/engine/oracle.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| idmill::fuzzing::engine(data));
