//! Types that ids can have.
//!
//! Internally, every id is a `u64`. [`Id`] defines the values that a type can hold. Each range is checked
//! against these bounds once, so that the conversion of an id on the hot path is free.

use std::fmt;
use std::num::{NonZeroI32, NonZeroI64, NonZeroU32, NonZeroU64};

use crate::error::{Error, Result};

/// A type that ids can be handed out as: the integers and `NonZero`s of 32 and 64 bits, and your own newtypes
/// over them, made with [`id_type!`](crate::id_type).
///
/// Ids are never negative: signed types hold `0..=MAX`.
pub trait Id: Copy + Send + Sync + 'static {
    /// The smallest id that the type can hold. The builder rejects a lower start; the default start is 1, or
    /// this if larger.
    const MIN: u64;
    /// The largest id that the type can hold.
    const MAX: u64;

    /// Converts a raw value, which the allocator guarantees to be in `MIN..=MAX`.
    ///
    /// # Panics
    /// May panic on a value outside these bounds.
    fn from_raw(raw: u64) -> Self;

    /// Returns the raw value of an id.
    fn into_raw(self) -> u64;

    /// Converts an arbitrary raw value.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a value outside `MIN..=MAX`.
    fn try_from_raw(raw: u64) -> Result<Self> {
        checked(raw, &raw)
    }
}

/// Converts a raw value; the error prints it as `shown`.
#[doc(hidden)]
pub fn checked<T: Id>(raw: u64, shown: &dyn fmt::Display) -> Result<T> {
    if (T::MIN..=T::MAX).contains(&raw) {
        return Ok(T::from_raw(raw));
    }
    Err(does_not_fit::<T>(shown))
}

fn does_not_fit<T: Id>(shown: &dyn fmt::Display) -> Error {
    Error::invalid(format!("{shown} does not fit the id type, which holds {}..={}", T::MIN, T::MAX))
}

/// Parses an id in decimal digits.
#[doc(hidden)]
pub fn read<T: Id>(text: &str) -> Result<T> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits {
        return Err(Error::invalid(format!("{text:?} is not an id; write a number in decimal digits")));
    }
    // A number that overflows u64 fits no id type.
    text.parse().map_or_else(|_| Err(does_not_fit::<T>(&text)), |raw| checked(raw, &text))
}

macro_rules! integer {
    ($($ty:ty),*) => {$(
        impl Id for $ty {
            const MIN: u64 = 0;
            const MAX: u64 = <$ty>::MAX as u64;

            // Only called with values in MIN..=MAX, which fit.
            #[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)]
            #[inline]
            fn from_raw(raw: u64) -> Self {
                debug_assert!(raw <= <Self as Id>::MAX);
                raw as $ty
            }

            // Ids from the allocator are not negative.
            #[allow(clippy::cast_sign_loss, clippy::cast_lossless)]
            #[inline]
            fn into_raw(self) -> u64 {
                self as u64
            }
        }
    )*};
}

macro_rules! non_zero {
    ($($ty:ty => $inner:ty),*) => {$(
        impl Id for $ty {
            const MIN: u64 = 1;
            const MAX: u64 = <$inner as Id>::MAX;

            #[inline]
            fn from_raw(raw: u64) -> Self {
                Self::new(<$inner as Id>::from_raw(raw)).expect("the bounds were checked against `Id::MIN`")
            }

            #[inline]
            fn into_raw(self) -> u64 {
                self.get().into_raw()
            }
        }
    )*};
}

integer!(u64, i64, u32, i32);
non_zero!(NonZeroU64 => u64, NonZeroI64 => i64, NonZeroU32 => u32, NonZeroI32 => i32);

/// Defines an id type: a tuple struct over a type that is already an [`Id`].
///
/// Given a struct definition, the macro defines the struct and implements `Clone`, `Copy`, `Debug`, `Eq`,
/// `Ord`, `Hash`; `Display` and `FromStr` in decimal digits; `From` to the inner type, and `TryFrom` from the
/// inner type. Your own attributes and derives are kept.
///
/// ```
/// idmill::id_type! {
///     /// The id of an order.
///     pub struct OrderId(i32);
/// }
///
/// let id: OrderId = "4711".parse()?;
/// assert_eq!(id.to_string(), "4711");
/// assert_eq!(i32::from(id), 4711);
/// assert!(id < OrderId::try_from(5000)?);
///
/// let error = OrderId::try_from(-1).unwrap_err(); // ids are never negative
/// assert_eq!(error.to_string(), "-1 does not fit the id type, which holds 0..=2147483647");
/// # Ok::<(), idmill::Error>(())
/// ```
///
/// Given only the name and the inner type, the macro implements [`Id`] for a struct that you have defined,
/// and nothing else:
///
/// ```
/// #[derive(Clone, Copy, Debug, PartialEq)]
/// pub struct OrderId(i32);
/// idmill::id_type!(OrderId(i32));
///
/// use idmill::Id;
/// assert_eq!(OrderId::MAX, 2_147_483_647);
/// assert_eq!(OrderId::from_raw(7), OrderId(7));
/// ```
///
/// [`serde_type!`](crate::serde_type) adds serde. `idmill_sqlx::sql_type!` and `idmill_diesel::sql_type!`
/// make an id type usable as a column type.
#[macro_export]
macro_rules! id_type {
    ($(#[$meta:meta])* $vis:vis struct $name:ident($field:vis $inner:ty);) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $vis struct $name($field $inner);

        $crate::id_type!($name($inner));

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                ::std::fmt::Display::fmt(&self.0, f)
            }
        }

        impl ::std::str::FromStr for $name {
            type Err = $crate::Error;

            fn from_str(text: &str) -> $crate::Result<Self> {
                $crate::__private::read(text)
            }
        }

        impl ::std::convert::From<$name> for $inner {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl ::std::convert::TryFrom<$inner> for $name {
            type Error = $crate::Error;

            fn try_from(value: $inner) -> $crate::Result<Self> {
                $crate::__private::checked(<$inner as $crate::Id>::into_raw(value), &value)
            }
        }
    };
    ($name:ident($inner:ty)) => {
        impl $crate::Id for $name {
            const MIN: u64 = <$inner as $crate::Id>::MIN;
            const MAX: u64 = <$inner as $crate::Id>::MAX;

            #[inline]
            fn from_raw(raw: u64) -> Self {
                $name(<$inner as $crate::Id>::from_raw(raw))
            }

            #[inline]
            fn into_raw(self) -> u64 {
                <$inner as $crate::Id>::into_raw(self.0)
            }
        }
    };
}

/// Implements serde's `Serialize` and `Deserialize` for an id type, as a number. Numbers that the type cannot
/// hold are rejected.
///
/// Needs the feature `serde` of `idmill`. JavaScript reads numbers above 2^53 - 1 inexactly. If such ids can
/// reach JavaScript, serialize their text instead.
///
/// ```
/// idmill::id_type! {
///     pub struct OrderId(i32);
/// }
/// idmill::serde_type!(OrderId);
///
/// assert_eq!(serde_json::to_string(&OrderId(7)).unwrap(), "7");
/// assert_eq!(serde_json::from_str::<OrderId>("7").unwrap(), OrderId(7));
/// assert!(serde_json::from_str::<OrderId>("-7").is_err());
/// ```
#[cfg(feature = "serde")]
#[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
#[macro_export]
macro_rules! serde_type {
    ($name:ident) => {
        impl $crate::__private::serde::Serialize for $name {
            fn serialize<S: $crate::__private::serde::Serializer>(
                &self,
                to: S,
            ) -> ::std::result::Result<S::Ok, S::Error> {
                $crate::__private::write_id(*self, to)
            }
        }

        impl<'de> $crate::__private::serde::Deserialize<'de> for $name {
            fn deserialize<D: $crate::__private::serde::Deserializer<'de>>(
                from: D,
            ) -> ::std::result::Result<Self, D::Error> {
                $crate::__private::read_id(from)
            }
        }
    };
}

/// Reports the missing feature.
#[cfg(not(feature = "serde"))]
#[doc(hidden)]
#[macro_export]
macro_rules! serde_type {
    ($name:ident) => {
        compile_error!("`serde_type!` needs the feature `serde` of the crate `idmill`");
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both_ends_survive<T: Id>() {
        for raw in [T::MIN, T::MIN + 1, T::MAX / 2, T::MAX - 1, T::MAX] {
            assert_eq!(T::from_raw(raw).into_raw(), raw);
        }
    }

    #[test]
    fn out_of_range_ids_are_rejected_and_shown() {
        assert_eq!(i32::try_from_raw(2_147_483_647).unwrap(), i32::MAX);
        let error = i32::try_from_raw(2_147_483_648).unwrap_err();
        assert_eq!(error.to_string(), "2147483648 does not fit the id type, which holds 0..=2147483647");
        assert!(NonZeroU32::try_from_raw(0).is_err());
        assert_eq!(u64::try_from_raw(u64::MAX).unwrap(), u64::MAX);
    }

    #[test]
    fn every_type_holds_its_own_bounds() {
        both_ends_survive::<u64>();
        both_ends_survive::<i64>();
        both_ends_survive::<u32>();
        both_ends_survive::<i32>();
        both_ends_survive::<NonZeroU64>();
        both_ends_survive::<NonZeroI64>();
        both_ends_survive::<NonZeroU32>();
        both_ends_survive::<NonZeroI32>();
    }
}
