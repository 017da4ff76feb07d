//! Records: when their table is created, and when it is not.

use idmill::ErrorKind;
use idmill::store::{Page, Store};

use crate::{name, open, root, run, schemes, server, url};

#[tokio::test]
async fn their_table_is_made_for_the_first_of_them() {
    let Some(engine) = server().await else { return };
    let address = engine.address();
    let (store, s) = (open(address, "recorded").await, name("s"));
    assert_eq!(store.record(&s).await.unwrap(), None);
    assert_eq!(store.list_records(&Page::default()).await.unwrap().records, []);
    assert!(!store.swap_record(&s, Some("a"), "b").await.unwrap());
    let existing = schemes().open(&url(address, "recorded", "&existing=true")).await.unwrap();
    let error = existing.swap_record(&s, None, "a").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    let ddl = schemes().parse(&url(address, "recorded", "")).unwrap().witness_ddl().unwrap().unwrap();
    run(&mut root(address).await, &[&ddl]).await;
    assert!(existing.swap_record(&s, None, "a").await.unwrap());
    assert!(!store.swap_record(&s, None, "b").await.unwrap());
    assert!(!store.swap_record(&s, Some("A"), "b").await.unwrap());
    assert!(store.swap_record(&s, Some("a"), "a").await.unwrap());
    assert!(!store.swap_record(&s, Some("b"), "b").await.unwrap());
    let look = schemes().open(&url(address, "recorded", "&mode=ro")).await.unwrap();
    assert_eq!(look.record(&s).await.unwrap().as_deref(), Some("a"));
    let error = look.swap_record(&s, Some("a"), "c").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
}

#[tokio::test]
async fn unsafe_or_foreign_witness_table_is_rejected() {
    let Some(engine) = server().await else { return };
    let (store, s) = (open(engine.address(), "refused").await, name("s"));
    let mut root = root(engine.address()).await;
    let bytes = "name VARBINARY(200) PRIMARY KEY, record VARBINARY(1000)";
    for (columns, kind, hint) in [
        (format!("({bytes}) ENGINE = MyISAM"), ErrorKind::Unsupported, "ENGINE = InnoDB"),
        (
            "(name VARCHAR(200) PRIMARY KEY, record TEXT)".to_owned(),
            ErrorKind::Conflict,
            "name varchar, record text",
        ),
    ] {
        run(&mut root, &[&format!("CREATE TABLE refused_witness {columns}")]).await;
        for error in [
            store.record(&s).await.unwrap_err(),
            store.swap_record(&s, None, "a").await.unwrap_err(),
            store.list_records(&Page::default()).await.unwrap_err(),
        ] {
            assert!(error.kind() == kind && error.to_string().contains(hint), "{error}");
        }
        run(&mut root, &["DROP TABLE refused_witness"]).await;
    }
    assert!(store.swap_record(&s, None, "a").await.unwrap());
    run(&mut root, &["CREATE UNIQUE INDEX one ON refused_witness (record)"]).await;
    let error = store.swap_record(&name("s2"), None, "a").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "an index created by a user: {error}");
}
