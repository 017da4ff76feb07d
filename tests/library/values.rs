//! Newtypes of ids, and values as text and in serde formats.

use std::collections::HashSet;
use std::num::NonZeroU32;

use idmill::{Error, ErrorKind, Id, IdRange, Ranges, SequenceName, id_type};

id_type! {
    /// Signed.
    pub struct OrderId(i32);
}
id_type! {
    #[derive(Default)]
    pub(crate) struct Unsigned(pub u64);
}
id_type! { struct Positive(NonZeroU32); }

/// A type that has only the derives of its author.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Bare(i64);
id_type!(Bare(i64));

#[test]
fn newtype_has_the_traits_of_an_id() {
    for (text, raw) in [("0", 0), ("2147483647", 2_147_483_647)] {
        let id: OrderId = text.parse().unwrap();
        assert_eq!(
            (id.to_string(), id.into_raw(), u64::try_from(i32::from(id)).unwrap()),
            (text.into(), raw, raw)
        );
        assert_eq!(OrderId::try_from(id.0).unwrap(), id);
    }
    assert_eq!("18446744073709551615".parse::<Unsigned>().unwrap(), Unsigned(u64::MAX));
    assert_eq!(Unsigned::default(), Unsigned(0));
    assert_eq!(format!("{:05}", Positive(NonZeroU32::MIN)), "00001");
    let ids: HashSet<_> = [1, 2, 2].map(|raw| OrderId::try_from(raw).unwrap()).into();
    assert_eq!(ids.into_iter().max(), Some(OrderId(2)));
    assert_eq!(Bare::try_from_raw(u64::MAX / 2).unwrap(), Bare(i64::MAX));
}

#[test]
fn malformed_ids_are_rejected_with_the_valid_form() {
    fn fault<T: std::str::FromStr<Err = Error>>(text: &str) -> String {
        let error = text.parse::<T>().err().expect(text);
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        error.to_string()
    }
    for text in ["", "-1", "+1", " 1", "1 ", "1.0", "x", "١"] {
        assert!(fault::<OrderId>(text).contains("decimal digits"), "{text:?}");
    }
    assert!(fault::<OrderId>("2147483648").contains("2147483648 does not fit the id type, which holds 0..="));
    assert!(fault::<Unsigned>("18446744073709551616").contains("does not fit"));
    assert!(fault::<Positive>("0").contains("holds 1..=4294967295"));
    let negative = OrderId::try_from(i32::MIN).unwrap_err();
    assert!(negative.to_string().starts_with("-2147483648 does not fit"), "{negative}");
}

#[test]
fn ranges_are_walked_by_reference() {
    let ranges =
        Ranges::try_from(vec!["1..3".parse::<IdRange>().unwrap(), "7..=8".parse().unwrap()]).unwrap();
    let mut seen = Vec::new();
    for id in &ranges {
        seen.push(id);
    }
    assert_eq!(seen, [1, 2, 7, 8]);
    assert!(ranges.iter().eq(ranges.ranges().iter().flatten()) && ranges.clone().into_iter().eq(seen));
    assert_eq!(ranges.ranges().len(), 2);
}

#[test]
fn a_name_is_text() {
    let name: SequenceName = "orders".parse().unwrap();
    assert_eq!(name, "orders");
    assert!(HashSet::from([name]).contains("orders"));
}

#[cfg(feature = "serde")]
mod data {
    use std::fmt::Debug;

    use idmill::store::{
        Bounds, Capabilities, Change, Durability, Identity, MemoryStore, SequenceInfo, Store,
    };
    use idmill::{Health, Operation, Order, Snapshot, Status};
    use idmill_kit::Mode;
    use proptest::prelude::*;
    use serde::de::DeserializeOwned;

    use super::*;

    idmill::serde_type!(OrderId);
    idmill::serde_type!(Positive);

    fn survives<T: serde::Serialize + DeserializeOwned + PartialEq + Debug>(value: &T) -> String {
        let text = serde_json::to_string(value).unwrap();
        assert_eq!(&serde_json::from_str::<T>(&text).unwrap(), value, "{text}");
        // Not every format can lend a `&str`, so also read from owned text.
        let data = serde_json::to_value(value).unwrap();
        assert_eq!(&serde_json::from_value::<T>(data).unwrap(), value, "{text}");
        text
    }

    proptest! {
        #[test]
        fn values_survive(start: u64, len: u64, incarnation: u64, epoch: u64, name in "[a-z\"\\\\é]{1,20}") {
            let identity = Identity { incarnation, epoch };
            survives(&identity);
            survives(&SequenceName::new(&name).unwrap());
            let bounds = Bounds::new(start.min(len), start.max(len)).unwrap();
            survives(&bounds);
            survives(&SequenceInfo::new(SequenceName::new(&name).unwrap(), bounds));
            if let Some(range) = IdRange::<u64>::new(start, len) {
                survives(&range);
                if !range.is_empty() {
                    survives(&Ranges::try_from(vec![range]).unwrap());
                }
            }
            survives(&OrderId((start >> 33) as i32));
        }
    }

    #[test]
    fn kinds_are_their_names() {
        assert_eq!(survives(&ErrorKind::UnknownOutcome), "\"unknown_outcome\"");
        assert_eq!(survives(&Operation::GiveBack), "\"give back\"");
        assert_eq!(survives(&Order::Process), "\"process\"");
        assert_eq!(
            survives(&(Status::Unknown, Health::Empty, Mode::ReadOnly)),
            r#"["unknown","empty","ro"]"#
        );
        assert_eq!(
            survives(&IdRange::<u64>::new(u64::MAX, 1).unwrap()),
            r#"{"start":18446744073709551615,"len":1}"#
        );
        assert_eq!(survives(&OrderId(i32::MAX)), "2147483647");
        survives(&Change::default());
        survives::<Capabilities>(&MemoryStore::new().capabilities());
    }

    #[tokio::test]
    async fn a_snapshot_survives() {
        let ids = idmill::Sequences::new(MemoryStore::new()).unwrap();
        let orders = ids.sequence::<u64>("orders").await.unwrap();
        orders.next().await.unwrap();
        survives::<Snapshot>(&orders.snapshot());
    }

    /// Clients and servers of different versions exchange this JSON, so old JSON must stay readable.
    #[test]
    fn capabilities_keep_their_earlier_form() {
        let text = r#"{"retry":"gap","durability":"disk","batches":false,"shared":true,"gives_back":false,"records":false}"#;
        let can = Capabilities::new(Durability::Disk).shared(true);
        assert_eq!(serde_json::to_string(&can).unwrap(), text);
        assert_eq!(serde_json::from_str::<Capabilities>(text).unwrap(), can);
        let earlier =
            r#"{"durability":"disk","retry":"nothing","batches":false,"shared":true,"gives_back":false}"#;
        assert_eq!(serde_json::from_str::<Capabilities>(earlier).unwrap(), can);
    }

    #[test]
    fn invalid_json_values_are_rejected_with_the_reason() {
        fn fault<T: DeserializeOwned + Debug>(json: &str) -> String {
            serde_json::from_str::<T>(json).expect_err(json).to_string()
        }
        assert!(fault::<SequenceName>("\" a\"").contains("begins or ends with white space"));
        assert!(fault::<SequenceName>("7").contains("expected a string"));
        assert!(fault::<Order>("\"total\"").contains("use one of: global, process, thread"));
        assert!(fault::<IdRange<i32>>(r#"{"start":2147483647,"len":2}"#).contains("holds 0..=2147483647"));
        assert!(fault::<Bounds>(r#"{"start":2,"max":1}"#).contains("start 2 is larger than max 1"));
        assert!(fault::<Ranges>(r#"[{"start":2,"len":2},{"start":3,"len":1}]"#).contains("starts before"));
        assert!(fault::<Positive>("0").contains("holds 1..=4294967295"));
        assert!(fault::<OrderId>("2147483648").contains("does not fit"));
        assert!(fault::<OrderId>("-1").contains("expected u64"));
        let info = r#"{"name":"a","next":9,"bounds":{"start":1,"max":8},"identity":"0000000000000001.0"}"#;
        assert!(fault::<SequenceInfo>(info).contains("next 9 is outside the sequence's bounds 1..=8"));
    }
}
