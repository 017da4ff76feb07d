//! Ranges, segments and the arithmetic of stored sequences, against a reference in wider integers.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| idmill::fuzzing::range(data));
