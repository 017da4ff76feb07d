//! Checking a sequence's name never panics, and a valid name is kept unchanged.
#![no_main]

use idmill::SequenceName;

libfuzzer_sys::fuzz_target!(|text: &str| match SequenceName::new(text) {
    Ok(name) => {
        assert_eq!(name.as_str(), text);
        assert!((1..=SequenceName::MAX_LEN).contains(&text.len()));
        assert!(text.trim() == text && !text.contains(char::is_control));
    }
    Err(error) => assert_eq!(error.kind(), idmill::ErrorKind::InvalidInput),
});
