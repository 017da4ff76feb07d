//! Id types of your own, as types of columns.

/// Writes and reads an id type as a `BigInt` or an `Integer` of PostgreSQL: implements `ToSql` and `FromSql`.
/// diesel's own derives, `AsExpression` and `FromSqlRow`, do the rest; see the page of this crate.
///
/// Any [`Id`](idmill::Id) will do, unsigned ones included: an id that the column does not hold fails as it is
/// bound, and a number that is no id of the type fails as it is read.
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
