use idmill::ErrorKind;
use idmill::store::{self, Cursor, Durability, Listing};
use proptest::prelude::*;

use super::*;

fn name() -> SequenceName {
    "shop.orders".parse().unwrap()
}

fn identity() -> Identity {
    Identity { incarnation: u64::MAX >> 1, epoch: 3 }
}

/// Returns a request of each kind.
fn asks() -> Vec<Ask> {
    let (name, identity) = (name(), identity());
    let change = Change::new().next(7).max(u64::MAX).backwards(true).revoke(true).expect(identity);
    let page = Page::of("shop.").after(Cursor::new("x")).limit(9);
    let create = Bounds::new(0, u64::MAX).unwrap();
    vec![
        Ask::Capabilities,
        Ask::Reserve(vec![
            Reserve::new(name.clone(), u64::MAX).ceiling(5).create(create),
            Reserve::new(name.clone(), 1).ceiling(5),
        ]),
        Ask::GiveBack { name: name.clone(), identity, rest: IdRange::new(u64::MAX, 1).unwrap() },
        Ask::Create { name: name.clone(), bounds: Bounds::new(1, 2).unwrap() },
        Ask::Inspect(vec![name.clone()]),
        Ask::List(page.clone()),
        Ask::Set { name: name.clone(), change },
        Ask::Remove(name.clone()),
        Ask::RemoveIf { name: name.clone(), identity },
        Ask::Record(name.clone()),
        Ask::SwapRecord { name, seen: None, wanted: "\"'\\".to_owned() },
        Ask::ListRecords(page),
        Ask::Server,
    ]
}

/// Returns a result of each kind.
fn said() -> Vec<Said> {
    let (name, bounds, identity) = (name(), Bounds::new(1, 9).unwrap(), identity());
    let info = SequenceInfo::stored(name.clone(), None, bounds, identity);
    let fault = WireError::of(&Error::new(ErrorKind::Exhausted, "no more").of(&name));
    let unreadable = vec![Row { name: "\n".to_owned(), fault: fault.clone() }];
    let next = Some(Cursor::new("x"));
    vec![
        Said::Capabilities(Capabilities::new(Durability::Disk).records(true)),
        Said::Grants(vec![
            Outcome::Ok(Grant::new(IdRange::new(3, 4).unwrap(), identity, bounds)),
            Outcome::Failed(fault.clone()),
        ]),
        Said::Sequences(vec![
            Outcome::Ok(None),
            Outcome::Ok(Some(info.clone())),
            Outcome::Failed(fault.clone()),
        ]),
        Said::Sequence(info.clone()),
        Said::Rows(Rows { sequences: vec![info], unreadable: unreadable.clone(), next: next.clone() }),
        Said::Record(Some("text".to_owned())),
        Said::Records(Records { records: vec![(name, "text".to_owned())], unreadable, next }),
        Said::Server(Some("etcd cluster 7".to_owned())),
        Said::Done(true),
        Said::Failed(fault),
    ]
}

#[test]
fn messages_round_trip() {
    for (number, ask) in (u64::MAX - 20..).zip(asks()) {
        let request = Request { number, ask };
        assert_eq!(Request::decode(&request.encode()).unwrap(), request);
    }
    for (number, said) in (0..).zip(said()) {
        let answer = Answer { number, said };
        assert_eq!(Answer::decode(&answer.encode()).unwrap(), answer);
    }
}

/// A server must not execute only a part of a request from a newer client.
#[test]
fn page_keeps_the_rows_that_the_client_may_see() {
    fn damaged<T>() -> idmill::Result<T> {
        Err(Error::new(ErrorKind::StoreViolation, "the row is damaged"))
    }
    let info = |text: &str| {
        SequenceInfo::stored(text.parse().unwrap(), Some(1), Bounds::new(1, 9).unwrap(), identity())
    };
    let seen = |name: &str| name.starts_with("shop.");
    let mut listing = Listing::new(vec![info("shop.a"), info("b")], Some(Cursor::new("b")));
    listing.add("shop.c".to_owned(), damaged());
    listing.add("d".to_owned(), damaged());
    let back = Listing::from(Rows::of(listing, seen));
    assert_eq!((back.sequences, back.next), (vec![info("shop.a")], Some(Cursor::new("b"))));
    let unreadable: Vec<_> = back.unreadable.iter().map(|row| (&*row.name, row.error.kind())).collect();
    assert_eq!(unreadable, [("shop.c", ErrorKind::StoreViolation)]);
    let rows = vec![("shop.a".parse().unwrap(), "1".to_owned()), ("b".parse().unwrap(), "2".to_owned())];
    let mut records = store::Records::new(rows, None);
    records.add("shop.c", damaged());
    records.add("d", damaged());
    let back = store::Records::from(Records::of(records, seen));
    assert_eq!(back.records, [("shop.a".parse().unwrap(), "1".to_owned())]);
    let unreadable: Vec<_> = back.unreadable.iter().map(|row| (&*row.name, row.error.kind())).collect();
    assert_eq!(unreadable, [("shop.c", ErrorKind::StoreViolation)]);
}

#[test]
fn unknown_request_field_is_rejected_at_any_depth() {
    let mut found = 0;
    for ask in asks() {
        let text = String::from_utf8(Request { number: 1, ask }.encode()).unwrap();
        for (at, _) in text.match_indices('{').filter(|(at, _)| !text[*at..].starts_with("{\"start\"")) {
            let more = format!("{}\"unless\":1,{}", &text[..=at], &text[at + 1..]);
            assert!(Request::decode(more.as_bytes()).is_err(), "{more}");
            found += 1;
        }
    }
    assert!(found > 15, "{found}");
}

#[test]
fn store_types_round_trip() {
    fn survives<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(value: &T, text: &str) {
        assert_eq!(String::from_utf8(encode(value)).unwrap(), text);
        assert_eq!(decode::<T>(text.as_bytes()).unwrap(), *value);
    }
    let reserve = Reserve::new(name(), 4).ceiling(9);
    let text = r#"{"name":"shop.orders","count":4,"ceiling":9,"create":"#;
    survives(&reserve, &format!("{text}null}}"));
    let reserve = reserve.create(Bounds::new(1, 2).unwrap());
    survives(&reserve, &format!(r#"{text}{{"start":1,"max":2}}}}"#));
    let mut change = Change::new().next(7).max(8).backwards(true).revoke(true).expect(identity());
    let text = r#"{"next":7,"max":8,"backwards":true,"revoke":true,"#;
    let expect = r#""expect":"7fffffffffffffff.3"}"#;
    survives(&change, &format!("{text}{expect}"));
    change.keep_history = true;
    survives(&change, &format!(r#"{text}"keep_history":true,{expect}"#));
    let page = Page::of("a").after(Cursor::new("b")).limit(3);
    survives(&page, r#"{"prefix":"a","after":"b","limit":3}"#);
    let grant = Grant::new(IdRange::new(1, 2).unwrap(), identity(), Bounds::new(1, 2).unwrap());
    let text =
        r#"{"range":{"start":1,"len":2},"identity":"7fffffffffffffff.3","bounds":{"start":1,"max":2}}"#;
    survives(&grant, text);
    survives(&grant.leaving_gap(5), &text.replace("2}}", r#"2},"gap":5}"#));
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
        let _ = (Request::decode(&bytes), Answer::decode(&bytes));
    }

    /// Changes one byte of a message. If the result still decodes, encoding and decoding it again must
    /// return the same message.
    #[test]
    fn decoded_messages_encode_the_same(which in 0..10_usize, at: prop::sample::Index, byte: u8) {
        let mut request = Request { number: 5, ask: asks().swap_remove(which) }.encode();
        let at_request = at.index(request.len());
        request[at_request] = byte;
        if let Ok(read) = Request::decode(&request) {
            prop_assert_eq!(Request::decode(&read.encode()).unwrap(), read);
        }
        let mut answer = Answer { number: 5, said: said().swap_remove(which) }.encode();
        let at_answer = at.index(answer.len());
        answer[at_answer] = byte;
        if let Ok(read) = Answer::decode(&answer) {
            prop_assert_eq!(Answer::decode(&read.encode()).unwrap(), read);
        }
    }
}
