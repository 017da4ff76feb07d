//! Your own id types as types of columns.

/// Makes an id type usable in columns: `BIGINT` with `i64`, `INTEGER` with `i32`.
///
/// The type can then be bound, decoded, and used as a field of a `FromRow`, with any sqlx database
/// that has such a column; with the feature `postgres`, also in arrays (`= ANY($1)`, `UNNEST($1)`).
/// Any [`Id`](idmill::Id) works, including unsigned ones. Binding fails if the column cannot hold
/// the id. Decoding fails if the type cannot hold the number.
///
/// ```
/// use idmill_sqlx::idmill;
///
/// idmill::id_type! {
///     pub struct OrderId(u32);
/// }
/// idmill_sqlx::sql_type!(OrderId: i64);
/// ```
#[macro_export]
macro_rules! sql_type {
    ($name:ident: $column:ty) => {
        impl<DB: $crate::driver::Database> $crate::driver::Type<DB> for $name
        where
            $column: $crate::driver::Type<DB>,
        {
            fn type_info() -> DB::TypeInfo {
                <$column as $crate::driver::Type<DB>>::type_info()
            }

            fn compatible(ty: &DB::TypeInfo) -> bool {
                <$column as $crate::driver::Type<DB>>::compatible(ty)
            }
        }

        impl<'q, DB: $crate::driver::Database> $crate::driver::Encode<'q, DB> for $name
        where
            $column: $crate::driver::Encode<'q, DB>,
        {
            fn encode_by_ref(
                &self,
                to: &mut $crate::__buffer!('q, DB),
            ) -> ::std::result::Result<
                $crate::driver::encode::IsNull,
                $crate::driver::error::BoxDynError,
            > {
                let value: $column = $crate::__private::to_column(*self)?;
                <$column as $crate::driver::Encode<'q, DB>>::encode(value, to)
            }
        }

        impl<'r, DB: $crate::driver::Database> $crate::driver::Decode<'r, DB> for $name
        where
            $column: $crate::driver::Decode<'r, DB>,
        {
            fn decode(
                value: <DB as $crate::driver::Database>::ValueRef<'r>,
            ) -> ::std::result::Result<Self, $crate::driver::error::BoxDynError> {
                let value = <$column as $crate::driver::Decode<'r, DB>>::decode(value)?;
                ::std::result::Result::Ok($crate::__private::from_column(value)?)
            }
        }

        $crate::__array!($name: $column);
    };
}

#[cfg(feature = "postgres")]
#[doc(hidden)]
#[macro_export]
macro_rules! __array {
    ($name:ident: $column:ty) => {
        impl $crate::driver::postgres::PgHasArrayType for $name {
            fn array_type_info() -> $crate::driver::postgres::PgTypeInfo {
                <$column as $crate::driver::postgres::PgHasArrayType>::array_type_info()
            }
        }
    };
}

#[cfg(not(feature = "postgres"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __array {
    ($name:ident: $column:ty) => {};
}
