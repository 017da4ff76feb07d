//! Parts of a request: the name in the path and the JSON object in the body; and ids in JSON.

use std::fmt;
use std::marker::PhantomData;

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Unexpected, Visitor};
use serde::{Serialize, Serializer};

use super::problem::Problem;

/// Many JSON parsers read numbers as doubles, which hold every integer exactly only up to this value.
const EXACT: u64 = 1 << 53;

/// The sequence name in the path.
pub(super) struct Name(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let name = Path::from_request_parts(parts, state).await;
        name.map(|Path(name)| Self(name)).map_err(|error| Problem::invalid(error.body_text()))
    }
}

/// The extractor's result for a body.
pub(super) type Body<T> = Result<Json<Object<T>>, JsonRejection>;

/// Returns the value in a body.
///
/// # Errors
/// If the body is not a JSON object with these fields.
pub(super) fn object<T>(body: Body<T>) -> Result<T, Problem> {
    body.map(|Json(Object(value))| value).map_err(|error| Problem::invalid(error.body_text()))
}

/// A JSON object. Without this type, derived `Deserialize` implementations would accept arrays too.
pub(super) struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(Fields(PhantomData)).map(Self)
    }
}

struct Fields<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(fields))
    }
}

/// A number that is written as a JSON number up to 2^53, and as a string of digits above. Otherwise some
/// clients would round an id to a different id. Both forms are accepted for any size, except a JSON number
/// that a double has rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number(pub(super) u64);

impl From<i64> for Number {
    fn from(id: i64) -> Self {
        Self(id.unsigned_abs())
    }
}

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0 <= EXACT { serializer.serialize_u64(self.0) } else { serializer.collect_str(&self.0) }
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Digits).map(Self)
    }
}

struct Digits;

impl Visitor<'_> for Digits {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number from 0 to 2^64 - 1, or its digits as a string")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<u64, E> {
        if is_rounded(number) {
            return Err(E::custom(format!(
                "{number} was rounded to a double; send the exact number as a string"
            )));
        }
        Ok(number)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<u64, E> {
        let digits = Some(text).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        let number = digits.and_then(|digits| digits.parse().ok());
        number.ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }
}

/// Returns whether a double has probably rounded the number: the number is the decimal form of a double
/// with another value. For example, 2^63 is printed as 9223372036854776000.
#[allow(clippy::float_cmp, clippy::cast_possible_truncation, clippy::cast_sign_loss)] // of whole numbers
fn is_rounded(number: u64) -> bool {
    let double = number as f64;
    double as u128 != u128::from(number) && double.to_string() == number.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_above_2_53_is_written_as_a_string() {
        let json = |number| serde_json::to_string(&Number(number)).unwrap();
        assert_eq!(json(1 << 53), "9007199254740992");
        assert_eq!(json((1 << 53) + 1), "\"9007199254740993\"");
    }

    #[test]
    fn numbers_and_strings_parse_and_rounded_ones_fail() {
        let read = |json: &str| serde_json::from_str::<Number>(json).ok().map(|Number(number)| number);
        for number in [0, 1, 1 << 53, (1 << 53) + 1, 1 << 60, i64::MAX as u64, u64::MAX] {
            assert_eq!(read(&number.to_string()), Some(number));
            assert_eq!(read(&format!("\"{number}\"")), Some(number));
        }
        assert_eq!(read("1000000000000000000"), Some(1_000_000_000_000_000_000), "a double holds it");
        assert_eq!(read("\"9223372036854776000\""), Some(9_223_372_036_854_776_000));
        for none in ["9223372036854776000", "18446744073709552000", "1152921504606847000"] {
            assert_eq!(read(none), None, "{none}");
        }
    }
}
