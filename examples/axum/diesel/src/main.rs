//! Orders with ids from memory, and invoices with numbers without gaps, over a pool of diesel-async.
//!
//! `DATABASE_URL=postgres://… cargo run --manifest-path examples/axum/diesel/Cargo.toml`

mod schema;
#[path = "../../serve.rs"]
mod serve;

use std::env;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, State};
use axum::routing::{get, post};
use diesel::prelude::*;
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use diesel_async::pooled_connection::AsyncDieselConnectionManager;
use diesel_async::pooled_connection::deadpool::Pool;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use idmill::{Allocator, Sequences};
use idmill_diesel::postgres::{PostgresStore, next_in};
use metrics_exporter_prometheus::PrometheusBuilder;

use schema::{invoices, orders};
use serve::{AnyError, BILLED, Failure, UNKNOWN};

struct Shop {
    pool: Pool<AsyncPgConnection>,
    orders: Allocator<i64>,
}

#[tokio::main]
async fn main() -> Result<(), AnyError> {
    let metrics = PrometheusBuilder::new().install_recorder()?; // before the first sequence
    let url = env::var("DATABASE_URL")?;
    let pool = Pool::builder(AsyncDieselConnectionManager::<AsyncPgConnection>::new(&url)).build()?;
    pool.get().await?.batch_execute(include_str!("../../schema.sql")).await?;

    let ids = Sequences::new(PostgresStore::open(&url).await?)?;
    let orders = ids.sequence::<i64>("orders").await?;
    // Warm up before the service is ready: after a failover, a sequence may open although every draw fails.
    orders.warm(1).await?;

    let shop = Arc::new(Shop { pool, orders: orders.clone() });
    let app = Router::new()
        .route("/orders", post(order))
        .route("/orders/{id}/invoice", post(bill))
        .route("/invoices", get(invoices))
        .with_state(shop.clone())
        .merge(serve::watched(ids.clone(), orders, metrics));
    serve::until_told_to_end(app).await?;

    ids.close().await; // the store takes back the ids that are left
    shop.pool.close();
    Ok(())
}

/// The id is known before the first query.
async fn order(State(shop): State<Arc<Shop>>) -> Result<String, Failure> {
    let id = shop.orders.next().await?;
    let mut conn = shop.pool.get().await?;
    diesel::insert_into(orders::table).values(orders::id.eq(id)).execute(&mut conn).await?;
    Ok(format!("{id}\n"))
}

/// Writes in a separate task, which continues if the client leaves: a transaction that is dropped halfway
/// would stay open at the server, and lock the invoices for all clients.
async fn bill(State(shop): State<Arc<Shop>>, Path(order): Path<i64>) -> Result<String, Failure> {
    tokio::spawn(write(shop, order)).await?
}

/// Writes both the number and the invoice, or neither: if the insert fails, the next invoice gets the
/// number.
async fn write(shop: Arc<Shop>, order: i64) -> Result<String, Failure> {
    let mut conn = shop.pool.get().await?;
    conn.transaction(async |conn| {
        let number: i64 = next_in(conn, "invoices").await?;
        let invoice = (invoices::number.eq(number), invoices::order_id.eq(order));
        diesel::insert_into(invoices::table).values(invoice).execute(conn).await.map_err(refused)?;
        Ok(format!("{number}\n"))
    })
    .await
}

fn refused(error: DieselError) -> Failure {
    match error {
        DieselError::DatabaseError(DatabaseErrorKind::ForeignKeyViolation, _) => UNKNOWN,
        DieselError::DatabaseError(DatabaseErrorKind::UniqueViolation, _) => BILLED,
        _ => error.into(),
    }
}

async fn invoices(State(shop): State<Arc<Shop>>) -> Result<String, Failure> {
    let mut conn = shop.pool.get().await?;
    let numbers = invoices::table.select(invoices::number).order(invoices::number).load(&mut conn).await?;
    Ok(serve::lines(&numbers))
}
