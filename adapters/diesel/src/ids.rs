//! Your own id types as types of columns.

/// Implements `ToSql` and `FromSql` for an id type, as a `BigInt` or an `Integer` of PostgreSQL.
/// Add diesel's own derives `AsExpression` and `FromSqlRow`; see the README of this crate.
///
/// Any [`Id`](idmill::Id) works, including unsigned ones. Binding fails if the column cannot hold
/// the id. Reading fails if the type cannot hold the number.
#[macro_export]
macro_rules! sql_type {
    ($name:ident: BigInt) => {
        $crate::sql_type!(@ $name, BigInt, i64);
    };
    ($name:ident: Integer) => {
        $crate::sql_type!(@ $name, Integer, i32);
    };
    (@ $name:ident, $sql:ident, $column:ident) => {
        impl $crate::diesel::serialize::ToSql<$crate::diesel::sql_types::$sql, $crate::diesel::pg::Pg> for $name {
            fn to_sql<'b>(
                &'b self,
                out: &mut $crate::diesel::serialize::Output<'b, '_, $crate::diesel::pg::Pg>,
            ) -> $crate::diesel::serialize::Result {
                let value: $column = $crate::__private::to_column(*self)?;
                $crate::diesel::serialize::ToSql::<
                    $crate::diesel::sql_types::$sql,
                    $crate::diesel::pg::Pg,
                >::to_sql(&value, &mut out.reborrow())
            }
        }

        impl $crate::diesel::deserialize::FromSql<$crate::diesel::sql_types::$sql, $crate::diesel::pg::Pg>
            for $name
        {
            fn from_sql(value: $crate::diesel::pg::PgValue<'_>) -> $crate::diesel::deserialize::Result<Self> {
                let value = <$column as $crate::diesel::deserialize::FromSql<
                    $crate::diesel::sql_types::$sql,
                    $crate::diesel::pg::Pg,
                >>::from_sql(value)?;
                ::std::result::Result::Ok($crate::__private::from_column(value)?)
            }
        }
    };
}
