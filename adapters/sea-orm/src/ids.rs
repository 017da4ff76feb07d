//! Your own id types as types of columns and keys.

use std::any::type_name;
use std::fmt::Display;

use idmill::Id;
use sea_orm::{DbErr, Value};

use crate::version::Source;

/// Makes an id type usable in entities: `BIGINT` with `i64`, `INTEGER` with `i32`.
///
/// The type can then be a field of a model, also in an `Option`, and a primary key. Any [`Id`](idmill::Id)
/// works, including unsigned ones. Reading fails if the type cannot hold the number.
///
/// SeaORM's conversion of a value cannot fail. So an id that the column cannot hold is sent as a text with
/// the reason, which PostgreSQL rejects because of its type. (For a `u64` above `i64::MAX`, SeaORM panics.)
///
/// ```
/// use idmill_sea_orm::idmill;
/// use sea_orm::entity::prelude::*;
///
/// idmill::id_type! {
///     pub struct OrderId(u64);
/// }
/// idmill_sea_orm::sql_type!(OrderId: i64);
///
/// #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
/// #[sea_orm(table_name = "orders")]
/// pub struct Model {
///     #[sea_orm(primary_key, auto_increment = false)]
///     pub id: OrderId,
/// }
/// # #[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
/// # pub enum Relation {}
/// # impl ActiveModelBehavior for ActiveModel {}
/// ```
#[macro_export]
macro_rules! sql_type {
    ($name:ident: $column:ty) => {
        impl ::std::convert::From<$name> for $crate::driver::Value {
            fn from(id: $name) -> Self {
                $crate::__private::to_value::<$column>(id)
            }
        }

        impl $crate::driver::TryGetable for $name {
            fn try_get_by<I: $crate::driver::ColIdx>(
                row: &$crate::driver::QueryResult,
                index: I,
            ) -> ::std::result::Result<Self, $crate::driver::TryGetError> {
                let number = <$column as $crate::driver::TryGetable>::try_get_by(row, index)?;
                $crate::__private::from_column(number).map_err($crate::driver::TryGetError::DbErr)
            }
        }

        impl $crate::driver::TryFromU64 for $name {
            fn try_from_u64(number: u64) -> ::std::result::Result<Self, $crate::driver::DbErr> {
                $crate::__private::from_column(number)
            }
        }

        impl $crate::driver::sea_query::ValueType for $name {
            fn try_from(
                value: $crate::driver::Value,
            ) -> ::std::result::Result<Self, $crate::driver::sea_query::ValueTypeErr> {
                let number = <$column as $crate::driver::sea_query::ValueType>::try_from(value)?;
                $crate::__private::from_column(number).map_err(|_| $crate::driver::sea_query::ValueTypeErr)
            }

            fn type_name() -> ::std::string::String {
                ::std::stringify!($name).to_owned()
            }

            fn array_type() -> $crate::driver::sea_query::ArrayType {
                <$column as $crate::driver::sea_query::ValueType>::array_type()
            }

            fn column_type() -> $crate::driver::sea_query::ColumnType {
                <$column as $crate::driver::sea_query::ValueType>::column_type()
            }
        }

        impl $crate::driver::sea_query::Nullable for $name {
            fn null() -> $crate::driver::Value {
                <$column as $crate::driver::sea_query::Nullable>::null()
            }
        }

        impl $crate::driver::IntoActiveValue<$name> for $name {
            fn into_active_value(self) -> $crate::driver::ActiveValue<$name> {
                $crate::driver::ActiveValue::Set(self)
            }
        }
    };
}

/// Converts an id to the value of a column, or to a text with the reason if the id does not fit.
pub fn to_value<C: TryFrom<u64> + Into<Value>>(id: impl Id) -> Value {
    match idmill_sql::column::to_column::<C>(id) {
        Ok(number) => number.into(),
        Err(error) => error.to_string().into(),
    }
}

/// Converts the number in a column to an id.
///
/// # Errors
/// `TryIntoErr` if the id type cannot hold the number. Its source is the reason.
pub fn from_column<T: Id, C: TryInto<u64> + Display + Copy>(number: C) -> Result<T, DbErr> {
    idmill_sql::column::from_column(number).map_err(|error| DbErr::TryIntoErr {
        from: type_name::<C>(),
        into: type_name::<T>(),
        source: Source::new(error),
    })
}
