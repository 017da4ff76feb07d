//! A user's id types in diesel and in PostgreSQL's binary format, without a server.

#![allow(missing_docs)] // `table!` generates public items without docs

use std::fmt::Debug;
use std::num::NonZeroU32;

use idmill_diesel::diesel::deserialize::{FromSql, FromSqlRow};
use idmill_diesel::diesel::expression::AsExpression;
use idmill_diesel::diesel::pg::{Pg, PgMetadataLookup, PgTypeMetadata, PgValue};
use idmill_diesel::diesel::query_builder::BindCollector;
use idmill_diesel::diesel::query_builder::bind_collector::RawBytesBindCollector;
use idmill_diesel::diesel::serialize::ToSql;
use idmill_diesel::diesel::sql_types::{BigInt, HasSqlType, Integer};
use idmill_diesel::diesel::{self, ExpressionMethods, Insertable, QueryDsl, Queryable, debug_query};
use idmill_diesel::idmill::{Id, id_type};
use idmill_diesel::sql_type;

id_type! {
    #[derive(AsExpression, FromSqlRow)]
    #[diesel(sql_type = BigInt)]
    struct Wide(u64);
}
sql_type!(Wide: BigInt);

id_type! {
    #[derive(AsExpression, FromSqlRow)]
    #[diesel(sql_type = Integer)]
    struct Narrow(NonZeroU32);
}
sql_type!(Narrow: Integer);

diesel::table! {
    invoices (number) {
        number -> BigInt,
        customer -> Nullable<Integer>,
    }
}

#[derive(Debug, Insertable, Queryable)]
#[diesel(table_name = invoices)]
struct Invoice {
    number: Wide,
    customer: Option<Narrow>,
}

/// A lookup that panics: PostgreSQL's built-in types have fixed oids.
struct Unasked;

impl PgMetadataLookup for Unasked {
    fn lookup_type(&mut self, name: &str, _: Option<&str>) -> PgTypeMetadata {
        panic!("{name} is a type of PostgreSQL itself");
    }
}

fn written<ST, T: ToSql<ST, Pg>>(id: &T) -> Result<Vec<u8>, String>
where
    Pg: HasSqlType<ST>,
{
    let mut binds = RawBytesBindCollector::<Pg>::new();
    let lookup: &mut dyn PgMetadataLookup = &mut Unasked;
    let pushed = BindCollector::push_bound_value::<ST, T>(&mut binds, id, lookup);
    pushed.map_err(|error| error.to_string())?;
    Ok(binds.binds.remove(0).expect("is not null"))
}

fn read<ST, T: FromSql<ST, Pg>>(bytes: &[u8]) -> Result<T, String> {
    let any = NonZeroU32::MIN;
    T::from_sql(PgValue::new(bytes, &any)).map_err(|error| error.to_string())
}

#[test]
fn a_value_survives_at_both_ends_of_its_domain() {
    for raw in [0, 1, i64::MAX.unsigned_abs()] {
        let bytes = written::<BigInt, _>(&Wide(raw)).unwrap();
        assert_eq!(bytes, raw.to_be_bytes());
        assert_eq!(read::<BigInt, Wide>(&bytes), Ok(Wide(raw)));
    }
    for raw in [1, i32::MAX.unsigned_abs()] {
        let id = Narrow(NonZeroU32::new(raw).unwrap());
        let bytes = written::<Integer, _>(&id).unwrap();
        assert_eq!((bytes.as_slice(), read::<Integer, Narrow>(&bytes)), (&raw.to_be_bytes()[..], Ok(id)));
    }
}

#[test]
fn out_of_range_ids_are_rejected_with_the_reason() {
    let fault = written::<BigInt, _>(&Wide(1 << 63)).unwrap_err();
    assert!(fault.contains("the id 9223372036854775808 does not fit the column"), "{fault}");
    let fault = read::<BigInt, Wide>(&(-1_i64).to_be_bytes()).unwrap_err();
    assert!(fault.starts_with("-1 does not fit the id type"), "{fault}");
    assert!(read::<Integer, Narrow>(&0_i32.to_be_bytes()).is_err());
    assert!(written::<Integer, _>(&Narrow(NonZeroU32::MAX)).is_err());
}

/// A service's queries compile, and bind the ids.
#[test]
fn queries_take_and_give_ids() {
    let (number, customer) = (Wide(4711), Narrow::from_raw(7));
    let shown = |query: &dyn Debug| format!("{query:?}");
    let insert = diesel::insert_into(invoices::table).values(Invoice { number, customer: Some(customer) });
    let sql = shown(&debug_query::<Pg, _>(&insert));
    assert!(sql.contains("binds: [Wide(4711), Narrow(7)]"), "{sql}");
    let found = invoices::table
        .filter(invoices::number.eq(number))
        .filter(invoices::customer.eq(Some(customer)))
        .filter(invoices::number.eq_any([number]));
    let sql = shown(&debug_query::<Pg, _>(&found));
    assert!(sql.contains("[Wide(4711), Some(Narrow(7)), [Wide(4711)]]"), "{sql}");
}
