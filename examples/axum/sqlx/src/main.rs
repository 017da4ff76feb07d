//! Orders with ids from memory, and invoices with numbers without gaps, over an sqlx pool.
//!
//! `DATABASE_URL=postgres://… cargo run --manifest-path examples/axum/sqlx/Cargo.toml`

#[path = "../../serve.rs"]
mod serve;

use std::env;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, State};
use axum::routing::{get, post};
use idmill::{Allocator, Sequences};
use idmill_sqlx::postgres::{PostgresStore, next_in};
use metrics_exporter_prometheus::PrometheusBuilder;
use sqlx::PgPool;
use sqlx::error::{DatabaseError, ErrorKind};

use serve::{AnyError, BILLED, Failure, UNKNOWN};

struct Shop {
    pool: PgPool,
    orders: Allocator<i64>,
}

#[tokio::main]
async fn main() -> Result<(), AnyError> {
    let metrics = PrometheusBuilder::new().install_recorder()?; // before the first sequence
    let pool = PgPool::connect(&env::var("DATABASE_URL")?).await?;
    sqlx::raw_sql(include_str!("../../schema.sql")).execute(&pool).await?;

    let ids = Sequences::new(PostgresStore::from_pool(&pool).await?)?;
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
    shop.pool.close().await;
    Ok(())
}

/// The id is known before the first query.
async fn order(State(shop): State<Arc<Shop>>) -> Result<String, Failure> {
    let id = shop.orders.next().await?;
    sqlx::query("INSERT INTO orders VALUES ($1)").bind(id).execute(&shop.pool).await?;
    Ok(format!("{id}\n"))
}

/// Writes both the number and the invoice, or neither: if the insert fails, the next invoice gets the
/// number. If the client leaves, this future is dropped, and the transaction is rolled back.
async fn bill(State(shop): State<Arc<Shop>>, Path(order): Path<i64>) -> Result<String, Failure> {
    let mut tx = shop.pool.begin().await?;
    let number: i64 = next_in(&mut tx, "invoices").await?;
    let insert = sqlx::query("INSERT INTO invoices VALUES ($1, $2)").bind(number).bind(order);
    insert.execute(&mut *tx).await.map_err(refused)?;
    tx.commit().await?;
    Ok(format!("{number}\n"))
}

fn refused(error: sqlx::Error) -> Failure {
    match error.as_database_error().map(DatabaseError::kind) {
        Some(ErrorKind::ForeignKeyViolation) => UNKNOWN,
        Some(ErrorKind::UniqueViolation) => BILLED,
        _ => error.into(),
    }
}

async fn invoices(State(shop): State<Arc<Shop>>) -> Result<String, Failure> {
    let numbers =
        sqlx::query_scalar("SELECT number FROM invoices ORDER BY number").fetch_all(&shop.pool).await?;
    Ok(serve::lines(&numbers))
}
