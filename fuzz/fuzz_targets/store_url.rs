//! Reading a store's URL never panics, and what is printed reads back as the same.
#![no_main]

use std::sync::LazyLock;

use idmill_url::Schemes;

static SCHEMES: LazyLock<Schemes> =
    LazyLock::new(|| Schemes::default().with(idmill_sqlite::SCHEMES).expect("one crate has `sqlite:`"));

libfuzzer_sys::fuzz_target!(|text: &str| {
    // As it is, and as what follows a scheme, which the fuzzer would have to guess first.
    for text in [text, &format!("sqlite:{text}"), &format!("sqlite:x?{text}")] {
        if let Ok(url) = SCHEMES.parse(text) {
            let printed = url.to_string();
            let again = SCHEMES.parse(&printed).expect("reads back");
            assert_eq!(again, url, "{printed:?}");
        }
    }
});
