//! An entity whose key is an id type of the service.

// The derives generate unreachable `pub` items.
#![allow(unreachable_pub)]

use idmill_sea_orm::idmill;
use idmill_sea_orm::postgres::next_in;
use sea_orm::entity::prelude::*;
use sea_orm::{Set, TransactionTrait, TryFromU64};

use crate::{open, server, service};

idmill::id_type! {
    /// A key whose type holds more than its column.
    pub struct OrderId(u64);
}
idmill_sea_orm::sql_type!(OrderId: i64);

#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "orders")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: OrderId,
    pub parent: Option<OrderId>,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}

#[tokio::test]
async fn key_is_written_read_and_found() {
    let Some(engine) = server().await else { return };
    let db = service(&engine, 1).await;
    open(&db).await;
    db.execute_unprepared("CREATE TABLE orders (id bigint PRIMARY KEY, parent bigint)").await.unwrap();
    let tx = db.begin().await.unwrap();
    let first: OrderId = next_in(&tx, "orders").await.unwrap();
    let last = OrderId(i64::MAX.unsigned_abs());
    for (id, parent) in [(first, None), (last, Some(first))] {
        let row = ActiveModel { id: Set(id), parent: Set(parent) }.insert(&tx).await.unwrap();
        assert_eq!(row, Model { id, parent });
        assert_eq!(Entity::find_by_id(id).one(&tx).await.unwrap(), Some(row));
    }
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn key_beyond_its_column_is_an_error_not_a_panic() {
    let Some(engine) = server().await else { return };
    let db = service(&engine, 1).await;
    db.execute_unprepared("CREATE TABLE orders (id bigint PRIMARY KEY, parent bigint)").await.unwrap();
    let beyond = OrderId(1 << 63);
    let error = ActiveModel { id: Set(beyond), parent: Set(None) }.insert(&*db).await.unwrap_err();
    assert!(error.to_string().contains("bigint"), "{error}");
    let error = Entity::find_by_id(beyond).one(&*db).await.unwrap_err();
    assert!(error.to_string().contains("bigint"), "{error}");
    db.execute_unprepared("INSERT INTO orders VALUES (-1)").await.unwrap();
    let error = Entity::find().one(&*db).await.unwrap_err();
    assert!(error.to_string().contains("-1 does not fit the id type"), "{error}");
}

#[test]
fn last_insert_id_is_converted_or_rejected() {
    assert_eq!(OrderId::try_from_u64(7).unwrap(), OrderId(7));
    idmill::id_type! { struct Narrow(i32); }
    idmill_sea_orm::sql_type!(Narrow: i32);
    let error = Narrow::try_from_u64(1 << 31).unwrap_err();
    assert!(error.to_string().contains("2147483648 does not fit the id type"), "{error}");
}
