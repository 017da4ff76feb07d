//! Sizes keep their promises, whatever was measured.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| idmill::fuzzing::policy(data));
