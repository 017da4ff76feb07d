//! What a client and a server say to each other: no bytes make either of them panic, and what is read says
//! the same when it is written and read again.
#![no_main]

use idmill_remote::protocol::{Answer, Request};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(request) = Request::decode(bytes) {
        let written = request.encode();
        let again = Request::decode(&written).expect("reads back");
        assert_eq!(again, request);
        assert_eq!(again.encode(), written);
    }
    if let Ok(answer) = Answer::decode(bytes) {
        let written = answer.encode();
        let again = Answer::decode(&written).expect("reads back");
        assert_eq!(again, answer);
        assert_eq!(again.encode(), written);
    }
});
