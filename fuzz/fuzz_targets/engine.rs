//! The refill engine against its oracle: see `src/refill/oracle.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| idmill::fuzzing::engine(data));
