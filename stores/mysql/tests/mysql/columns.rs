//! The largest id in a column of a user's table.

use idmill::ErrorKind;
use idmill_doctor::ColumnUrl;
use idmill_kit::Largest;

use crate::{one, root, run, schemes, server, url};

#[tokio::test]
async fn the_largest_id_is_that_of_the_users_own_column() {
    let Some(engine) = server().await else { return };
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
        ColumnUrl::parse(&schemes(), &url).unwrap().largest().await
    };
    let orders = |column: &str| format!(r#""my.shop".or`der's.{column}"#);
    assert_eq!(look("columns_empty.id").await.unwrap(), Largest::new(None, "int unsigned", 4_294_967_295));
    let found = look(&orders("ID")).await.unwrap();
    assert_eq!(found, Largest::new(i128::from(u64::MAX), "bigint unsigned", u64::MAX));
    assert_eq!(look(&orders("whole")).await.unwrap(), Largest::new(8, "int", 2_147_483_647).negative(-7));
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
    // Column names are case-insensitive, as in MySQL.
    assert_eq!(look(&orders("id")).await.unwrap().id, Some(i128::from(u64::MAX)));
}

#[tokio::test]
async fn column_reports_its_limit_and_default() {
    let Some(engine) = server().await else { return };
    let mut root = root(engine.address()).await;
    let made = "CREATE TABLE columns_kept (id INT AUTO_INCREMENT PRIMARY KEY, few DECIMAL(5,0), part DECIMAL(12,2), low BIGINT)";
    let row = "INSERT INTO columns_kept VALUES (4, 7, 8, -3), (2, 1, 1, -9)";
    run(&mut root, &[made, row, "CREATE VIEW columns_seen AS SELECT id FROM columns_kept"]).await;
    let look = async |column: &str| {
        let url = url(engine.address(), "t", &format!("&column={column}"));
        ColumnUrl::parse(&schemes(), &url).unwrap().largest().await.unwrap()
    };
    assert_eq!(look("columns_kept.few").await, Largest::new(7, "decimal", 99_999));
    assert_eq!(look("columns_kept.id").await.default.as_deref(), Some("auto_increment"));
    let low = look("columns_kept.low").await;
    assert_eq!((low.id, low.negative, low.hidden_by), (Some(-3), Some(-3), None));
    assert!(look("columns_seen.id").await.hidden_by.is_some_and(|why| why.contains("view")));
}

/// The server ends the read after its time limit, since the client no longer waits.
#[tokio::test]
async fn a_slow_look_ends_on_the_server_too() {
    let Some(engine) = server().await else { return };
    let mut root = root(engine.address()).await;
    run(&mut root, &["CREATE VIEW columns_slow AS SELECT CAST(SLEEP(60) AS SIGNED) AS id"]).await;
    let url = url(engine.address(), "t", "&timeout=1s&column=columns_slow.id");
    for _ in 0..3 {
        ColumnUrl::parse(&schemes(), &url).unwrap().largest().await.unwrap_err();
    }
    let running = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE INFO LIKE '%columns_slow%' AND ID <> CONNECTION_ID()";
    let mut left: u64 = 0;
    for _ in 0..50 {
        left = one(&mut root, running).await;
        if left == 0 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert_eq!(left, 0, "abandoned queries still run");
}
