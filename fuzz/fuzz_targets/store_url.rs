//! Parsing a store's URL never panics, and its printed form parses to the same URL.
#![no_main]

use std::sync::LazyLock;

use idmill_url::Schemes;

static SCHEMES: LazyLock<Schemes> =
    LazyLock::new(|| Schemes::default().with(idmill_sqlite::SCHEMES).expect("one crate has `sqlite:`"));

libfuzzer_sys::fuzz_target!(|text: &str| {
    // Parse the text unchanged, and after a scheme, which the fuzzer would otherwise have to guess.
    for text in [text, &format!("sqlite:{text}"), &format!("sqlite:x?{text}")] {
        if let Ok(url) = SCHEMES.parse(text) {
            let printed = url.to_string();
            let again = SCHEMES.parse(&printed).expect("reads back");
            assert_eq!(again, url, "{printed:?}");
        }
    }
});
