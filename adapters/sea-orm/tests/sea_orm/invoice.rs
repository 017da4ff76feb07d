//! An entity whose key is an id of idmill.

// The derives generate unreachable `pub` items.
#![allow(unreachable_pub)]

use sea_orm::entity::prelude::*;
use sea_orm::{ConnectionTrait, DatabaseConnection, DatabaseTransaction, QueryOrder, QuerySelect, Set};

#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "invoices")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub number: i64,
    pub cents: i64,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}

pub(crate) async fn create_table(db: &DatabaseConnection) {
    let sql = "CREATE TABLE invoices (number bigint PRIMARY KEY, cents bigint NOT NULL)";
    db.execute_unprepared(sql).await.unwrap();
}

pub(crate) async fn write(tx: &DatabaseTransaction, number: i64) {
    ActiveModel { number: Set(number), cents: Set(4200) }.insert(tx).await.unwrap();
}

/// Returns all numbers in order.
pub(crate) async fn numbers(db: &DatabaseConnection) -> Vec<i64> {
    let found = Entity::find().select_only().column(Column::Number).order_by_asc(Column::Number);
    found.into_tuple().all(db).await.unwrap()
}
