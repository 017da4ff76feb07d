//! Ids in JSON. Many programs read its numbers as doubles, which hold whole ones up to 2^53 only.

use serde::{Serialize, Serializer};

const EXACT: u64 = 1 << 53;

/// A number up to 2^53, and a string of digits beyond: rounded down, an id would be another one.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_what_a_double_holds_it_is_text() {
        let json = |number| serde_json::to_string(&Number(number)).unwrap();
        assert_eq!(json(1 << 53), "9007199254740992");
        assert_eq!(json((1 << 53) + 1), "\"9007199254740993\"");
    }
}
