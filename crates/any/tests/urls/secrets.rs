//! No URL reveals a password, with any of the compiled-in stores.

use idmill_any::parse;
use idmill_kit::secrets::redacted;
use proptest::prelude::*;

#[test]
fn quotes_and_white_space_around_a_url_are_stripped() {
    for url in [
        "memory:",
        " memory:",
        "memory:\n",
        "\tmemory: \r\n",
        "\"memory:\"",
        " ' memory: ' \n",
        "\u{feff}memory:",
    ] {
        assert_eq!(parse(url).unwrap().to_string(), "memory:", "{url:?}");
    }
    for (url, says) in [
        ("\"memory:", "an unmatched quote"),
        ("'\"memory:\"'", "an unmatched quote"),
        ("memory\n:", "control character"),
        ("\"\"", "is empty"),
        ("  \n", "is empty"),
    ] {
        let error = parse(url).unwrap_err().to_string();
        assert!(error.contains(says), "{url:?}: {error}");
    }
}

/// Returns all texts that a program could print for a URL, accepted or not.
fn printed(url: &str) -> String {
    match parse(url) {
        Ok(url) => format!("{url} {url:?}"),
        Err(error) => format!("{error} {error:?}"),
    }
}

#[test]
fn no_way_to_write_a_url_wrongly_shows_the_password() {
    for url in [
        "postgres//app:hunter2@db/shop",
        "postgres:app:hunter2@db/shop",
        "postgres:/app:hunter2@db/shop",
        "app:hunter2@db/shop",
        "//app:hunter2@db/shop",
        "postgres ://app:hunter2@db/shop",
        "DATABASE_URL=postgres://app:hunter2@db/shop",
        "host=db user=app password=hunter2 dbname=shop",
        "user=app password = 'hunter2'",
        "jdbc:postgresql://app:hunter2@db/shop",
        "\"postgres://app:hunter2@db/shop",
    ] {
        assert!(!printed(url).contains("hunter2"), "{url}: {}", printed(url));
    }
}

#[test]
fn malformed_store_urls_never_print_the_password() {
    let schemes = [
        "postgres",
        "postgresql",
        "mysql",
        "mariadb",
        "mongodb",
        "cassandra",
        "redis",
        "rediss",
        "etcd",
        "idmill",
    ];
    for scheme in schemes {
        for rest in [
            "//app:hunter2@db/shop",
            "//app:hunter2",
            "//:hunter2",
            "//app:hunter2/shop",
            "//app:hun@hunter2@db/shop",
            "//app:hun/hunter2@db/shop",
            "//app:hun?hunter2@db/shop",
            "//app:hun?hunter2=1@db/shop",
            "//app:hun#hunter2@db/shop",
            "//app:hun%ZZhunter2@db/shop",
            "//app:hunter2@db:port/shop",
            "//app:hunter2@/shop",
            "//app:hunter2@db/shop?nonsense=1",
            "//db/shop?password=hunter2",
            "///app:hunter2@db",
            "app:hunter2@db/shop",
        ] {
            for quote in ["", "\"", " "] {
                let url = format!("{quote}{scheme}:{rest}{quote}\n");
                assert!(!printed(&url).contains("hunter2"), "{url}: {}", printed(&url));
            }
        }
    }
}

proptest! {
    #[test]
    fn password_before_the_last_at_is_never_printed(
        before in "[a-z:/?&= \"']{0,12}", junk in "[@:/?#&=% ]{0,3}", after in "[a-z/?:=]{0,8}",
    ) {
        let url = format!("{before}:{junk}hunter2{junk}@{after}");
        // The path of an SQLite file is not a secret, whatever it contains.
        prop_assume!(!url.trim().to_ascii_lowercase().contains("sqlite:"));
        prop_assert!(!printed(&url).contains("hunter2"), "{}: {}", url, printed(&url));
        prop_assert!(!redacted(&url).contains("hunter2"));
    }
}
