//! Tests store URLs with each single feature and with all features.

mod secrets;

use idmill_any::idmill::{ErrorKind, Operation};
use idmill_any::parse;

fn refused(url: &str, kind: ErrorKind, remedy: &str) {
    let error = parse(url).unwrap_err();
    assert_eq!((error.kind(), error.operation()), (kind, Some(Operation::Connect)), "{url}: {error}");
    assert!(error.to_string().contains(remedy), "{url}: {error}");
}

#[test]
#[cfg(not(feature = "sqlite"))]
fn a_store_that_is_not_compiled_in_names_its_feature() {
    refused("sqlite:ids.db", ErrorKind::Unsupported, "cargo feature `sqlite`");
    refused("http:", ErrorKind::InvalidInput, "use one of: `sqlite:PATH`");
}

#[test]
#[cfg(feature = "sqlite")]
fn schemes_are_read_without_regard_to_case() {
    let url = parse("SQLite:ids.db?mode=rw").unwrap();
    assert_eq!((url.scheme(), url.to_string().as_str()), ("sqlite", "sqlite:ids.db?mode=rw"));
    assert_eq!(parse("memory://").unwrap().to_string(), "memory:");
}

#[tokio::test]
#[cfg(feature = "sqlite")]
async fn an_existing_store_is_never_created() {
    let dir = tempfile::tempdir().unwrap();
    let url = parse(&format!("sqlite:{}", dir.path().join("ids.db").display())).unwrap();
    let file = url.file().unwrap().to_owned();
    let error = url.clone().existing().connect().await.unwrap_err();
    assert_eq!((error.kind(), file.exists()), (ErrorKind::NotFound, false));
    url.connect().await.unwrap();
    assert!(url.existing().connect().await.is_ok());
    let read_only = parse("sqlite:ids.db?mode=ro").unwrap();
    assert_eq!(read_only.clone().existing(), read_only);
    assert_eq!(parse("memory:").unwrap().existing().file(), None);
}

#[test]
#[cfg(not(feature = "memcached"))]
fn a_window_that_is_not_compiled_in_names_its_feature() {
    refused("memory:?window=memcached://h", ErrorKind::Unsupported, "cargo feature `memcached`");
}

#[test]
#[cfg(feature = "memcached")]
fn a_store_with_a_window_prints_as_it_reads() {
    let printed = "memory:?window=memcached://h:11211%3Fblock%3D5";
    for url in ["MEMORY:?window=memcached://h%3Fblock=5", "memory:?window=memcached://h?block=5", printed] {
        assert_eq!(parse(url).unwrap().to_string(), printed, "{url}");
    }
    for (url, remedy) in [
        ("memory:?window=http://h", "memcached://HOST:PORT"),
        ("memory:?window=h:11211", "redis://HOST:PORT"),
        ("memory:?window=memcached://h&x=1", "takes no path and no options"),
        ("memory:?window=memcached://a:b@h", "does not support"),
    ] {
        refused(url, ErrorKind::InvalidInput, remedy);
    }
}

#[test]
#[cfg(feature = "redis")]
fn redis_window_password_is_redacted_in_the_url() {
    let url = parse("memory:?window=rediss://app:secret@h/2%3Fblock=5").unwrap();
    let printed = "memory:?window=rediss://app:***%40h:6379/2%3Fblock%3D5";
    assert_eq!(url.to_string(), printed);
    assert!(!format!("{url:?}").contains("secret"));
    let error = parse("memory:?window=redis://app:sec@ret@h").unwrap_err();
    assert!(!error.to_string().contains("sec@"), "{error}");
}

#[tokio::test]
#[cfg(all(feature = "memcached", feature = "sqlite"))]
async fn a_window_hides_nothing_of_the_store_behind_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ids.db");
    let url = format!("sqlite:{}?table=t&window=memcached://127.0.0.1:1", file.display());
    let url = parse(&url).unwrap();
    assert_eq!((url.scheme(), url.file()), ("sqlite", Some(file.as_path())));
    assert_eq!(parse(&url.to_string()).unwrap(), url);
    let error = url.clone().existing().connect().await.unwrap_err();
    assert_eq!((error.kind(), file.exists()), (ErrorKind::NotFound, false));
    assert!(url.clone().existing().to_string().contains("window="));
    // Nothing listens at that address: listing needs no connection to the cache.
    assert_eq!(url.connect().await.unwrap().list_all().await.unwrap(), []);
}

#[tokio::test]
#[cfg(feature = "sqlite")]
async fn every_store_url_takes_existing_and_prints_it() {
    let dir = tempfile::tempdir().unwrap();
    let place = format!("sqlite:{}", dir.path().join("ids.db").display());
    let url = parse(&format!("{place}?existing=true&table=t")).unwrap();
    assert_eq!(url.to_string(), format!("{place}?table=t&mode=rw&existing=true"));
    assert_eq!(parse(&url.to_string()).unwrap(), url);
    assert_eq!(url.connect().await.unwrap_err().kind(), ErrorKind::NotFound);
    let usual = parse(&format!("{place}?existing=false")).unwrap();
    assert_eq!(usual.to_string(), place);
    usual.connect().await.unwrap();
    let wrong = parse(&format!("{place}?existing=maybe")).unwrap_err();
    assert!(wrong.to_string().contains("use one of: true, false"), "{wrong}");
}

#[tokio::test]
async fn a_program_has_all_at_once_and_adds_others() {
    #[cfg(feature = "sqlite")]
    assert_eq!(parse("sqlite:ids.db").unwrap().scheme(), "sqlite");
    assert_eq!(idmill_any::schemes().clone().with(&[]).unwrap().parse("memory:").unwrap().scheme(), "memory");
    let ids = idmill_any::connect("memory:").await.unwrap();
    assert_eq!(ids.sequence::<u64>("s").await.unwrap().next().await.unwrap(), 1);
}
