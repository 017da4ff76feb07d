//! The largest id in a column of the user's own.

use idmill::ErrorKind;
use idmill::doctor::ColumnUrl;
use idmill::store::Largest;

use crate::{root, run, server, url};

#[tokio::test]
async fn the_largest_id_is_that_of_the_users_own_column() {
    let Some(engine) = server().await else { return };
    idmill_mysql::register().unwrap();
    let mut root = root(engine.address()).await;
    run(
        &mut root,
        &[
            "CREATE DATABASE `my.shop`",
            "CREATE TABLE `my.shop`.`or``der's` (`ID` BIGINT UNSIGNED, whole INT, note TEXT, part DECIMAL(5,1))",
            "INSERT INTO `my.shop`.`or``der's` VALUES (18446744073709551615, 8, 'x', 0.5), (3, -7, 'y', 1)",
            "CREATE TABLE columns_empty (id INT UNSIGNED)",
        ],
    )
    .await;
    let look = async |column: &str| {
        let url = url(engine.address(), "t", &format!("&column={column}"));
        ColumnUrl::parse(&url).unwrap().largest().await
    };
    let orders = |column: &str| format!(r#""my.shop".or`der's.{column}"#);
    assert_eq!(look("columns_empty.id").await.unwrap(), Largest::new(None, "int unsigned", 4_294_967_295));
    let found = look(&orders("ID")).await.unwrap();
    assert_eq!(found, Largest::new(i128::from(u64::MAX), "bigint unsigned", u64::MAX));
    assert_eq!(look(&orders("whole")).await.unwrap(), Largest::new(8, "int", 2_147_483_647));
    for (column, kind, why) in [
        (orders("note"), ErrorKind::Unsupported, "is text, not integer"),
        (orders("part"), ErrorKind::Unsupported, "is decimal, not integer"),
        (orders("nothing"), ErrorKind::NotFound, "no column"),
        ("orders.id".to_owned(), ErrorKind::NotFound, "no table"),
        ("nowhere.columns_empty.id".to_owned(), ErrorKind::NotFound, "no table"),
    ] {
        let error = look(&column).await.unwrap_err();
        assert!(error.kind() == kind && error.to_string().contains(why), "{column}: {error}");
    }
    // Names are found whatever their case, as MySQL has columns.
    assert_eq!(look(&orders("id")).await.unwrap().id, Some(i128::from(u64::MAX)));
}
