//! The location of a table or a sequence along the search path, including later changes of the
//! path.

use idmill::ErrorKind;
use idmill::store::Page;
use idmill_postgres::PostgresStore;
use idmill_testing::engines::Engine;

use crate::{client, ids, name, reserve, schemes, server, url};

/// Creates a user `shop` that may create objects in `public`, and returns the URL for `shop`. A test may
/// create a schema of that name.
async fn shop(engine: &Engine) -> String {
    let admin = client(engine).await;
    admin.batch_execute("CREATE ROLE shop LOGIN; GRANT ALL ON SCHEMA public TO shop").await.unwrap();
    url(engine, "").replace("//postgres@", "//shop@")
}

/// A schema with the user's name is first in the search path as soon as it exists.
#[tokio::test]
async fn schema_created_later_restarts_no_sequence() {
    let Some(engine) = server().await else { return };
    let (admin, url) = (client(&engine).await, shop(&engine).await);
    let both = [url.clone(), format!("{url}&sequences=native")];
    for url in &both {
        assert_eq!(
            ids(reserve(&*schemes().open(url).await.unwrap(), "s", 3).await.unwrap().range).0,
            1,
            "{url}"
        );
    }
    admin.batch_execute("CREATE SCHEMA shop AUTHORIZATION shop").await.unwrap();
    for url in &both {
        let store = schemes().open(url).await.unwrap();
        let first = reserve(&*store, "s", 1).await.unwrap().range.start();
        assert!(first > 1, "{url}: {first} is a duplicate");
        assert_eq!(store.list_all().await.unwrap().len(), 1, "{url}");
        // A sequence that does not exist is created in the first schema of the path.
        reserve(&*store, "new", 1).await.unwrap();
    }
    let sql = "SELECT nspname || '.' || relname FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace \
               WHERE relname IN ('s', 'new', 'idmill_sequences') ORDER BY 1";
    let places: Vec<String> = admin.query(sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
    assert_eq!(places, ["public.idmill_sequences", "public.s", "shop.new"]);
    // `set` and `remove` change the sequence in the schema in which it was found.
    let native = schemes().open(&both[1]).await.unwrap();
    assert!(native.remove(&name("s"), None).await.unwrap());
    assert!(native.remove(&name("new"), None).await.unwrap());
    assert_eq!(native.list_all().await.unwrap(), []);
}

#[tokio::test]
async fn ambiguous_tables_are_rejected_until_one_is_named() {
    let Some(engine) = server().await else { return };
    let (admin, url) = (client(&engine).await, shop(&engine).await);
    let native = format!("{url}&sequences=native");
    reserve(&*schemes().open(&url).await.unwrap(), "s", 3).await.unwrap();
    reserve(&*schemes().open(&native).await.unwrap(), "s", 3).await.unwrap();
    admin.batch_execute("CREATE SCHEMA shop AUTHORIZATION shop").await.unwrap();
    for both in [&url, &native] {
        let inner = format!("{both}&schema=shop");
        let first = reserve(&*schemes().open(&inner).await.unwrap(), "s", 3).await.unwrap().range.start();
        assert_eq!(first, 1, "a schema that is named is the only one");
    }
    let told = [
        PostgresStore::open(&url).await.unwrap_err(),
        reserve(&*schemes().open(&native).await.unwrap(), "s", 1).await.unwrap_err(),
    ];
    for error in told {
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        let text = error.to_string();
        assert!(text.contains("\"shop\" and \"public\"") && text.contains("schema=NAME"), "{error}");
    }
    let listing = schemes().open(&native).await.unwrap();
    let listing = listing.list(&Page::default()).await.unwrap();
    assert_eq!((listing.sequences.len(), listing.unreadable.len()), (0, 1), "{listing:?}");
    for both in [&url, &native] {
        let named = schemes().open(&format!("{both}&schema=public")).await.unwrap();
        assert!(reserve(&*named, "s", 1).await.unwrap().range.start() > 3);
    }
}
