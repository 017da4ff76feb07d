//! Parts of a request: the name in the path and the object in the body.

use std::fmt;
use std::marker::PhantomData;

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

use super::problem::Problem;

/// The name of a sequence in the path.
pub(super) struct Name(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let name = Path::from_request_parts(parts, state).await;
        name.map(|Path(name)| Self(name)).map_err(|error| Problem::invalid(error.body_text()))
    }
}

/// A body as the extractor returns it.
pub(super) type Body<T> = Result<Json<Object<T>>, JsonRejection>;

/// # Errors
/// If the body is not a JSON object with these fields.
pub(super) fn object<T>(body: Body<T>) -> Result<T, Problem> {
    body.map(|Json(Object(value))| value).map_err(|error| Problem::invalid(error.body_text()))
}

/// A JSON object. Derived `Deserialize` implementations accept arrays as well.
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
