//! Reading a format never panics; what is printed reads back as the same; ids go through it and back; and no
//! two texts mean the same id but for what `crockford` lets people write.
#![no_main]

use idmill::ErrorKind;
use idmill_codec::{Format, Key};

libfuzzer_sys::fuzz_target!(|input: (&str, u64, &str)| {
    let (text, id, other) = input;
    // As it is, and behind what the fuzzer would have to guess first.
    for text in [text, &format!("permute(key=7,{text}"), &format!("crockford(check)|{text}")] {
        // No keys are looked for: the fuzzer would find files to read.
        match Format::parse_with(text, |_| Ok(Key::from(7_u64))) {
            Ok(format) => check(&format, id, other),
            Err(error) => assert_eq!(error.kind(), ErrorKind::InvalidInput),
        }
    }
});

fn check(format: &Format, id: u64, other: &str) {
    let printed = format.to_string();
    let again = Format::parse_with(&printed, |_| Ok(Key::from(7_u64))).expect("reads back");
    assert_eq!(again.to_string(), printed);
    assert_eq!(&again, format);
    match format.encode(id) {
        Ok(text) => {
            assert!(format.domain().contains(id));
            assert_eq!(format.decode(&text).expect("was written"), id, "{text:?}");
        }
        Err(error) => {
            assert!(!format.domain().contains(id));
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
        }
    }
    for text in [other, &format!("{other}{}", format.encode(0).expect("0 is in every domain"))] {
        match format.decode(text) {
            Ok(id) => assert_eq!(plain(&format.encode(id).expect("was read")), plain(text)),
            Err(error) => assert_eq!(error.kind(), ErrorKind::InvalidInput),
        }
    }
}

/// A text without what `crockford` does not look at.
fn plain(text: &str) -> String {
    let same = |c: char| match c.to_ascii_uppercase() {
        'O' => '0',
        'I' | 'L' => '1',
        c => c,
    };
    text.chars().filter(|c| *c != '-').map(same).collect()
}
