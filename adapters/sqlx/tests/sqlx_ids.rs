//! A user's id types in columns of a real SQLite database.

use std::num::NonZeroU32;

use idmill_sqlx::driver::{self as sqlx, Connection as _, Executor as _, FromRow, SqliteConnection};
use idmill_sqlx::idmill::{Id, id_type};
use idmill_sqlx::sql_type;

id_type! { struct Wide(u64); }
sql_type!(Wide: i64);
id_type! { struct Narrow(NonZeroU32); }
sql_type!(Narrow: i32);

/// An id type whose struct is not generated.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Own(i64);
idmill_sqlx::idmill::id_type!(Own(i64));
sql_type!(Own: i64);

async fn connect() -> SqliteConnection {
    let mut connection = SqliteConnection::connect("sqlite::memory:").await.unwrap();
    connection.execute("CREATE TABLE t (id BIGINT, own BIGINT)").await.unwrap();
    connection
}

#[tokio::test]
async fn a_value_survives_at_both_ends_of_its_domain() {
    let mut connection = connect().await;
    for raw in [Wide::MIN, 1, i64::MAX.unsigned_abs()] {
        let (id, own) = (Wide(raw), Own::from_raw(raw));
        connection
            .execute(sqlx::query("INSERT INTO t VALUES ($1, $2)").bind(id).bind(Some(own)))
            .await
            .unwrap();
        let found: Row = sqlx::query_as("SELECT id, own FROM t WHERE id = $1")
            .bind(id)
            .fetch_one(&mut connection)
            .await
            .unwrap();
        assert_eq!((found.id, found.own), (id, Some(own)));
    }
    for raw in [1, i32::MAX.unsigned_abs()] {
        let id = Narrow(NonZeroU32::new(raw).unwrap());
        let read: Narrow = sqlx::query_scalar("SELECT CAST($1 AS INTEGER)")
            .bind(id)
            .fetch_one(&mut connection)
            .await
            .unwrap();
        assert_eq!(read, id);
    }
}

struct Row {
    id: Wide,
    own: Option<Own>,
}

// Written manually: sqlx's feature `derive` is not enabled here.
impl<'r> FromRow<'r, sqlx::sqlite::SqliteRow> for Row {
    fn from_row(row: &'r sqlx::sqlite::SqliteRow) -> sqlx::Result<Self> {
        use sqlx::Row as _;
        Ok(Self { id: row.try_get("id")?, own: row.try_get("own")? })
    }
}

#[tokio::test]
async fn out_of_range_ids_are_rejected_with_the_reason() {
    let mut connection = connect().await;
    let insert = sqlx::query("INSERT INTO t VALUES ($1, NULL)");
    let beyond = insert.bind(Wide(1 << 63)).execute(&mut connection).await.unwrap_err();
    let shown = format!("{beyond:?}");
    assert!(
        shown.contains("the id 9223372036854775808 does not fit the column, which has 64 bits"),
        "{shown}"
    );
    for (number, reason) in [(-1_i64, "holds 0..="), (-5, "-5 does not fit")] {
        let read = sqlx::query_scalar::<_, Wide>("SELECT $1").bind(number).fetch_one(&mut connection).await;
        let shown = format!("{:?}", read.unwrap_err());
        assert!(shown.contains(reason), "{shown}");
    }
    let read = sqlx::query_scalar::<_, Narrow>("SELECT $1").bind(0_i32).fetch_one(&mut connection).await;
    assert!(format!("{:?}", read.unwrap_err()).contains("holds 1..=4294967295"));
}
