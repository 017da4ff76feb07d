//! Reading a store's URL never panics, and what is printed reads back as the same.
#![no_main]

use idmill_url::StoreUrl;

libfuzzer_sys::fuzz_target!(init: idmill_url::register(idmill_sqlite::SCHEMES).expect("nobody else has `sqlite:`"), |text: &str| {
    // As it is, and as what follows a scheme, which the fuzzer would have to guess first.
    for text in [text, &format!("sqlite:{text}"), &format!("sqlite:x?{text}")] {
        if let Ok(url) = StoreUrl::parse(text) {
            let printed = url.to_string();
            let again = StoreUrl::parse(&printed).expect("reads back");
            assert_eq!(again, url, "{printed:?}");
        }
    }
});
