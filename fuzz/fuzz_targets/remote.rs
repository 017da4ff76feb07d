//! The protocol of client and server: no bytes make either of them panic, and a parsed message is the same
//! after it is written and parsed again.
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
