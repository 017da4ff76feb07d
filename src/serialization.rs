//! Feature `serde`: names and kinds as text, ids as numbers, ranges as start and length. All input is
//! checked.

use std::borrow::Cow;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Serialize, Serializer};

use crate::error::{Error, ErrorKind, Operation, Status};
use crate::id::Id;
use crate::name::SequenceName;
use crate::range::{IdRange, Ranges};
use crate::state::settings::Order;
use crate::state::snapshot::Health;
use crate::store::{Bounds, Cursor, Durability, Identity, SequenceInfo};

fn read<'de, D: Deserializer<'de>, T: FromStr<Err = Error>>(from: D) -> Result<T, D::Error> {
    Cow::<str>::deserialize(from)?.parse().map_err(D::Error::custom)
}

macro_rules! text {
    ($($ty:ty),* $(,)?) => {$(
        impl Serialize for $ty {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $ty {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                read(from)
            }
        }
    )*};
}

text!(SequenceName, ErrorKind, Status, Operation, Order, Health, Durability, Identity, Cursor);

/// The serialized form of a range. It has no end: the end of a range up to `u64::MAX` does not fit in a
/// `u64`.
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(rename = "Range")]
struct RangeData {
    start: u64,
    len: u64,
}

impl<T> Serialize for IdRange<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        RangeData { start: self.start(), len: self.len() }.serialize(to)
    }
}

impl<'de, T: Id> Deserialize<'de> for IdRange<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let RangeData { start, len } = RangeData::deserialize(from)?;
        Self::new(start, len).ok_or_else(|| {
            let (floor, ceiling) = (T::MIN, T::MAX);
            D::Error::custom(format!(
                "{len} ids from {start} on do not fit the id type, which holds {floor}..={ceiling}"
            ))
        })
    }
}

impl<T> Serialize for Ranges<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.ranges())
    }
}

impl<'de, T: Id> Deserialize<'de> for Ranges<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Vec::<IdRange<T>>::deserialize(from)?.try_into().map_err(D::Error::custom)
    }
}

#[derive(serde::Serialize, serde::Deserialize)]
#[serde(rename = "Bounds")]
struct BoundsData {
    start: u64,
    max: u64,
}

impl Serialize for Bounds {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        BoundsData { start: self.start(), max: self.max() }.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Bounds {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let BoundsData { start, max } = BoundsData::deserialize(from)?;
        Self::new(start, max).map_err(D::Error::custom)
    }
}

#[derive(serde::Deserialize)]
#[serde(rename = "SequenceInfo")]
struct SequenceData {
    name: SequenceName,
    next: Option<u64>,
    bounds: Bounds,
    identity: Identity,
}

impl<'de> Deserialize<'de> for SequenceInfo {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let SequenceData { name, next, bounds, identity } = SequenceData::deserialize(from)?;
        if let Some(next) = next.filter(|next| !(bounds.start()..=bounds.max()).contains(next)) {
            return Err(D::Error::custom(format!("next {next} is outside the sequence's bounds {bounds}")));
        }
        Ok(Self { name, next, bounds, identity })
    }
}

/// Serializes an id of a newtype: for [`serde_type!`](crate::serde_type).
#[doc(hidden)]
pub fn write_id<T: Id, S: Serializer>(id: T, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(id.into_raw())
}

/// Deserializes an id of a newtype, and checks that it fits: for [`serde_type!`](crate::serde_type).
#[doc(hidden)]
pub fn read_id<'de, T: Id, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    T::try_from_raw(u64::deserialize(from)?).map_err(D::Error::custom)
}
