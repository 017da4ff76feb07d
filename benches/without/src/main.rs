//! The service of `examples/axum/sqlx` with ids from PostgreSQL instead of idmill, one round trip each.

use std::env;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use metrics_exporter_prometheus::PrometheusBuilder;
use sqlx::PgPool;
use sqlx::error::{DatabaseError, ErrorKind};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};

type AnyError = Box<dyn Error + Send + Sync>;

const GRACE: Duration = Duration::from_secs(10);

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS orders (id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY);
    CREATE TABLE IF NOT EXISTS invoices (
        number bigint PRIMARY KEY, order_id bigint NOT NULL UNIQUE REFERENCES orders
    );
    CREATE TABLE IF NOT EXISTS counters (name text PRIMARY KEY, last bigint NOT NULL);
    INSERT INTO counters VALUES ('invoices', 0) ON CONFLICT DO NOTHING";

#[tokio::main]
async fn main() -> Result<(), AnyError> {
    let metrics = PrometheusBuilder::new().install_recorder()?;
    let pool = Arc::new(PgPool::connect(&env::var("DATABASE_URL")?).await?);
    sqlx::raw_sql(SCHEMA).execute(&*pool).await?;

    let page = async move || {
        metrics.run_upkeep();
        metrics.render()
    };
    let app = Router::new()
        .route("/orders", post(order))
        .route("/orders/{id}/invoice", post(bill))
        .route("/invoices", get(invoices))
        .with_state(pool.clone())
        .route("/metrics", get(page))
        .route("/health", get(async || "Serving\n"));
    serve(app).await?;
    pool.close().await;
    Ok(())
}

async fn serve(app: Router) -> Result<(), AnyError> {
    let (told, told_too) = (signal(SignalKind::terminate())?, signal(SignalKind::terminate())?);
    let listener = TcpListener::bind(env::var("LISTEN").as_deref().unwrap_or("127.0.0.1:3000")).await?;
    println!("listening on {}", listener.local_addr()?);
    let too_long = async {
        heard(told_too).await;
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        served = axum::serve(listener, app).with_graceful_shutdown(heard(told)) => served?,
        () = too_long => eprintln!("requests still pending after {GRACE:?} are dropped"),
    }
    Ok(())
}

async fn heard(mut signal: Signal) {
    signal.recv().await;
}

async fn order(State(pool): State<Arc<PgPool>>) -> Result<String, Failure> {
    let insert = sqlx::query_scalar("INSERT INTO orders DEFAULT VALUES RETURNING id");
    let id: i64 = insert.fetch_one(&*pool).await?;
    Ok(format!("{id}\n"))
}

async fn bill(State(pool): State<Arc<PgPool>>, Path(order): Path<i64>) -> Result<String, Failure> {
    let mut tx = pool.begin().await?;
    let next =
        sqlx::query_scalar("UPDATE counters SET last = last + 1 WHERE name = 'invoices' RETURNING last");
    let number: i64 = next.fetch_one(&mut *tx).await?;
    let insert = sqlx::query("INSERT INTO invoices VALUES ($1, $2)").bind(number).bind(order);
    insert.execute(&mut *tx).await.map_err(refused)?;
    tx.commit().await?;
    Ok(format!("{number}\n"))
}

async fn invoices(State(pool): State<Arc<PgPool>>) -> Result<String, Failure> {
    let numbers = sqlx::query_scalar("SELECT number FROM invoices ORDER BY number").fetch_all(&*pool).await?;
    Ok(numbers.iter().map(|number: &i64| number.to_string() + "\n").collect())
}

struct Failure(StatusCode, &'static str);

fn refused(error: sqlx::Error) -> Failure {
    match error.as_database_error().map(DatabaseError::kind) {
        Some(ErrorKind::ForeignKeyViolation) => Failure(StatusCode::NOT_FOUND, "no such order\n"),
        Some(ErrorKind::UniqueViolation) => {
            Failure(StatusCode::CONFLICT, "the order already has an invoice\n")
        }
        _ => error.into(),
    }
}

impl<E: Into<AnyError>> From<E> for Failure {
    fn from(error: E) -> Self {
        eprintln!("{}", error.into());
        Self(StatusCode::SERVICE_UNAVAILABLE, "not now\n")
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        (self.0, self.1).into_response()
    }
}
