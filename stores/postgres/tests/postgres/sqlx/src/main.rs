//! Draws ids as in `stores/postgres/README.md`. Arguments: the URL, the statement, the sequence,
//! and the number of ids. Prints the first id, or `none`.

use sqlx::{AssertSqlSafe, Connection, PgConnection};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, sql, sequence, count] = arguments.as_slice() else { return Err("URL SQL SEQUENCE COUNT".into()) };
    let (sql, count): (&str, i64) = (sql, count.parse()?);
    let mut connection = PgConnection::connect(url).await?;
    let mut tx = connection.begin().await?;
    let first: Option<i64> =
        sqlx::query_scalar(AssertSqlSafe(sql)).bind(sequence).bind(count).fetch_optional(&mut *tx).await?;
    tx.commit().await?;
    println!("{}", first.map_or("none".to_owned(), |first| first.to_string()));
    Ok(())
}
