//! Which types an id can have.
//!
//! Inside, every id is a `u64` in the sequence's own domain; [`Id`] says which part of that
//! domain a type can hold. A sequence's ids are checked against it once per range, so that the
//! conversion on the hot path is free.

use std::num::{NonZeroI32, NonZeroI64, NonZeroU32, NonZeroU64};

/// A type that ids can be handed out as: the integers and `NonZero`s of 32 and 64 bits, and your own newtypes
/// over them by [`id_type!`](crate::id_type).
///
/// Ids are never negative: signed types hold `0..=MAX`.
pub trait Id: Copy + Send + Sync + 'static {
    /// The smallest id that the type can hold; where sequences start unless told otherwise is 1.
    const MIN: u64;
    /// The largest id that the type can hold.
    const MAX: u64;

    /// The id for a raw value, which the allocator guarantees to be in `MIN..=MAX`.
    ///
    /// # Panics
    /// May panic on a value outside these bounds.
    fn from_raw(raw: u64) -> Self;

    /// The raw value of an id.
    fn into_raw(self) -> u64;
}

macro_rules! integer {
    ($($ty:ty),*) => {$(
        impl Id for $ty {
            const MIN: u64 = 0;
            const MAX: u64 = <$ty>::MAX as u64;

            // Only values of MIN..=MAX come here, and those fit.
            #[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)]
            #[inline]
            fn from_raw(raw: u64) -> Self {
                debug_assert!(raw <= <Self as Id>::MAX);
                raw as $ty
            }

            // An id that the allocator made is not negative.
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
                Self::new(<$inner as Id>::from_raw(raw)).expect("bounds are checked against MIN")
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

/// Makes a tuple struct of your own an [`Id`].
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
#[macro_export]
macro_rules! id_type {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn both_ends_survive<T: Id>() {
        for raw in [T::MIN, T::MIN + 1, T::MAX / 2, T::MAX - 1, T::MAX] {
            assert_eq!(T::from_raw(raw).into_raw(), raw);
        }
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
