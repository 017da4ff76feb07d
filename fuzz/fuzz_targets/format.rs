//! Parsing a format never panics, and its printed form parses to the same format. Ids survive encoding and
//! decoding. No two texts decode to the same id, except the variants that `crockford` permits.
#![no_main]

use idmill::ErrorKind;
use idmill_codec::{Format, Key};

libfuzzer_sys::fuzz_target!(|input: (&str, u64, &str)| {
    let (text, id, other) = input;
    // Parse the text unchanged, and after prefixes that the fuzzer would first have to guess.
    for text in [text, &format!("permute(key=7,{text}"), &format!("crockford(check)|{text}")] {
        // Do not load keys: the fuzzer would otherwise read files.
        match Format::parse_with(text, |_| Ok(Key::from(7_u64))) {
            Ok(format) => check(&format, id, other),
            Err(error) => assert_eq!(error.kind(), ErrorKind::InvalidInput),
        }
    }
});

fn check(format: &Format, id: u64, other: &str) {
    let printed = format.to_string();
    let again = Format::parse_with(&printed, |_| Ok(Key::from(7_u64))).expect("a printed format parses");
    assert_eq!(again.to_string(), printed);
    assert_eq!(&again, format);
    match format.encode(id) {
        Ok(text) => {
            assert!(format.domain().contains(id));
            assert_eq!(format.decode(&text).expect("an encoded text decodes"), id, "{text:?}");
        }
        Err(error) => {
            assert!(!format.domain().contains(id));
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
        }
    }
    for text in [other, &format!("{other}{}", format.encode(0).expect("0 is in every domain"))] {
        match format.decode(text) {
            Ok(id) => assert_eq!(plain(&format.encode(id).expect("a decoded id encodes")), plain(text)),
            Err(error) => assert_eq!(error.kind(), ErrorKind::InvalidInput),
        }
    }
}

/// A text without the differences that `crockford` ignores.
fn plain(text: &str) -> String {
    let same = |c: char| match c.to_ascii_uppercase() {
        'O' => '0',
        'I' | 'L' => '1',
        c => c,
    };
    text.chars().filter(|c| *c != '-').map(same).collect()
}
