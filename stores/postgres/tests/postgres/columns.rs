//! The largest id in a column of a user's table.

use idmill::ErrorKind;
use idmill_doctor::ColumnUrl;
use idmill_kit::Largest;

use crate::{client, schemes, server, url};

#[tokio::test]
async fn the_largest_id_is_that_of_the_users_own_column() {
    let Some(engine) = server().await else { return };
    let admin = client(&engine).await;
    let made = "CREATE SCHEMA \"my.shop\";
        CREATE DOMAIN order_id AS integer;
        CREATE TABLE \"my.shop\".\"or\"\"ders\" (\"ID\" bigint, small smallint, whole order_id, wide numeric(20), part numeric, note text);
        INSERT INTO \"my.shop\".\"or\"\"ders\" VALUES (500, 7, 8, 18446744073709551615, 1.5, 'x'), (-1, 1, 1, 1, 1, 'y');
        CREATE TABLE empty (id bigint)";
    admin.batch_execute(made).await.unwrap();
    let look = async |column: &str| {
        ColumnUrl::parse(&schemes(), &url(&engine, &format!("&column={column}"))).unwrap().largest().await
    };
    let orders = |column: &str| format!(r#""my.shop"."or""ders".{column}"#);
    assert_eq!(look("empty.id").await.unwrap().id, None);
    assert_eq!(look("public.empty.id").await.unwrap().id, None);
    let found = look(&orders("ID")).await.unwrap();
    assert_eq!(found, Largest::new(500, "bigint", i64::MAX.unsigned_abs()).negative(-1));
    assert_eq!(look(&orders("small")).await.unwrap(), Largest::new(7, "smallint", 32_767));
    assert_eq!(look(&orders("whole")).await.unwrap(), Largest::new(8, "integer", 2_147_483_647));
    assert_eq!(look(&orders("wide")).await.unwrap().id, Some(i128::from(u64::MAX)));
    for (column, kind, why) in [
        (orders("note"), ErrorKind::Unsupported, "is text, not integer"),
        (orders("part"), ErrorKind::Unsupported, "is numeric, not integer"),
        (orders("id"), ErrorKind::NotFound, "no column"),
        ("orders.id".to_owned(), ErrorKind::NotFound, "no table"),
        ("nowhere.empty.id".to_owned(), ErrorKind::NotFound, "no table"),
        ("a.b.c.d".to_owned(), ErrorKind::InvalidInput, "too many parts"),
    ] {
        let error = look(&column).await.unwrap_err();
        assert!(error.kind() == kind && error.to_string().contains(why), "{column}: {error}");
    }
    let tables = "SELECT count(*) FROM pg_class WHERE relname = 'idmill_sequences'";
    assert_eq!(admin.query_one(tables, &[]).await.unwrap().get::<_, i64>(0), 0, "looking makes no table");
}
