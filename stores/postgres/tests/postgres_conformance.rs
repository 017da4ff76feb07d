//! PostgreSQL: rows of a table, and its own sequences.

use std::sync::Arc;

use idmill::store::Store;
use idmill_conformance::{Endpoint, Suite};
use idmill_testing::engines::OnDemand;

fn table() -> Suite {
    suite("postgres", "")
}

fn native() -> Suite {
    suite("postgres_native", "&sequences=native")
        .largest_id(i64::MAX.cast_unsigned())
        // What `nextval` logs ahead.
        .skips_at_a_kill(32)
        .skip("large_counts", "a statement draws 10,000 values at most, and 2^63 ids would take for ever")
        .skip("names_are_kept", "PostgreSQL's names have 63 bytes at most")
}

fn suite(name: &str, options: &'static str) -> Suite {
    Suite::new(name, move |endpoint: Endpoint| async move {
        let url = format!(
            "postgres://postgres@{}/postgres?timeout={}ms{options}",
            endpoint.address(),
            endpoint.timeout().as_millis()
        );
        idmill_url::register(idmill_postgres::SCHEMES)?;
        let store: Arc<dyn Store> = idmill_url::open_store(&url).await?;
        Ok(store)
    })
    .engine(OnDemand::new("postgres"))
}

fn main() {
    idmill_conformance::main([table(), native()])
}
