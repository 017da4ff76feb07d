//! Orders with ids from memory, and invoices with numbers without gaps, over a connection of SeaORM.
//!
//! `DATABASE_URL=postgres://… cargo run --manifest-path examples/axum/sea-orm/Cargo.toml`

mod entities;
#[path = "../../serve.rs"]
mod serve;

use std::env;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, State};
use axum::routing::{get, post};
use idmill::{Allocator, Sequences};
use idmill_sea_orm::postgres::{PostgresStore, next_in};
use metrics_exporter_prometheus::PrometheusBuilder;
use sea_orm::{
    ActiveModelTrait, ConnectionTrait, Database, DatabaseConnection, DbErr, EntityTrait, QueryOrder,
    QuerySelect, Set, SqlErr, TransactionTrait,
};

use entities::{invoice, order};
use serve::{AnyError, BILLED, Failure, UNKNOWN};

struct Shop {
    db: DatabaseConnection,
    orders: Allocator<i64>,
}

#[tokio::main]
async fn main() -> Result<(), AnyError> {
    let metrics = PrometheusBuilder::new().install_recorder()?; // before the first sequence
    let db = Database::connect(env::var("DATABASE_URL")?).await?;
    db.execute_unprepared(include_str!("../../schema.sql")).await?;

    let ids = Sequences::new(PostgresStore::from_connection(&db).await?)?;
    let orders = ids.sequence::<i64>("orders").await?;
    // Warm up before the service is ready: after a failover, a sequence may open although every draw fails.
    orders.warm(1).await?;

    let shop = Arc::new(Shop { db, orders: orders.clone() });
    let app = Router::new()
        .route("/orders", post(order))
        .route("/orders/{id}/invoice", post(bill))
        .route("/invoices", get(invoices))
        .with_state(shop.clone())
        .merge(serve::watched(ids.clone(), orders, metrics));
    serve::until_told_to_end(app).await?;

    ids.close().await; // the store takes back the ids that are left
    shop.db.close_by_ref().await?;
    Ok(())
}

/// The id is known before the first query.
async fn order(State(shop): State<Arc<Shop>>) -> Result<String, Failure> {
    let id = shop.orders.next().await?;
    order::ActiveModel { id: Set(id) }.insert(&shop.db).await?;
    Ok(format!("{id}\n"))
}

/// Writes both the number and the invoice, or neither: if the insert fails, the next invoice gets the
/// number. If the client leaves, this future is dropped, and the transaction is rolled back.
async fn bill(State(shop): State<Arc<Shop>>, Path(order): Path<i64>) -> Result<String, Failure> {
    let tx = shop.db.begin().await?;
    let number: i64 = next_in(&tx, "invoices").await?;
    let invoice = invoice::ActiveModel { number: Set(number), order_id: Set(order) };
    invoice.insert(&tx).await.map_err(refused)?;
    tx.commit().await?;
    Ok(format!("{number}\n"))
}

fn refused(error: DbErr) -> Failure {
    match error.sql_err() {
        Some(SqlErr::ForeignKeyConstraintViolation(_)) => UNKNOWN,
        Some(SqlErr::UniqueConstraintViolation(_)) => BILLED,
        _ => error.into(),
    }
}

async fn invoices(State(shop): State<Arc<Shop>>) -> Result<String, Failure> {
    let numbers = invoice::Entity::find().select_only().column(invoice::Column::Number);
    let numbers: Vec<i64> = numbers.order_by_asc(invoice::Column::Number).into_tuple().all(&shop.db).await?;
    Ok(serve::lines(&numbers))
}
