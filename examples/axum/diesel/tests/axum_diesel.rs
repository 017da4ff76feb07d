//! The service over a real PostgreSQL, which `ci/engines/postgres` starts: one for each test.

use idmill_testing::service;

const PROGRAM: &str = env!("CARGO_BIN_EXE_axum-diesel");

#[tokio::test]
async fn ids_are_unique_and_invoices_gapless() {
    service::ids_are_unique_and_invoices_gapless(PROGRAM).await;
}

#[tokio::test]
async fn clients_may_disconnect() {
    service::clients_may_disconnect(PROGRAM).await;
}

#[tokio::test]
async fn restarted_service_continues_the_ids() {
    service::restarted_service_continues_the_ids(PROGRAM).await;
}

#[tokio::test]
async fn ends_under_load() {
    service::ends_under_load(PROGRAM).await;
}
