//! PostgreSQL: rows of a table, and its own sequences.

use idmill_conformance::{Endpoint, Suite};
use idmill_testing::engines::OnDemand;
use idmill_url::Schemes;

fn table() -> Suite {
    suite("postgres", "")
}

fn native() -> Suite {
    suite("postgres_native", "&sequences=native")
        .largest_id(i64::MAX.cast_unsigned())
        // The number of values that `nextval` logs ahead.
        .skips_at_a_kill(32)
        .skip("large_counts", "a statement draws 10,000 values at most, and 2^63 ids would take years")
        .skip("names_are_kept", "PostgreSQL's names have 63 bytes at most")
}

fn suite(name: &str, options: &'static str) -> Suite {
    Suite::new(name, move |endpoint: Endpoint| async move {
        let url = format!(
            "postgres://postgres@{}/postgres?timeout={}ms{options}",
            endpoint.address(),
            endpoint.timeout().as_millis()
        );
        Schemes::default().with(idmill_postgres::SCHEMES)?.open(&url).await
    })
    .engine(OnDemand::new("postgres"))
}

fn main() {
    idmill_conformance::main([table(), native()])
}
