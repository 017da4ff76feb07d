//! URLs of a toy store: every call reaches the store, its witness or its window.

mod guards;
mod toy;

use std::path::Path;

use crate::{Schemes, StoreUrl};
use idmill::store::{Bounds, Reserve, Store};
use idmill::{Error, ErrorKind, Operation, Result, SequenceName};
use idmill_kit::Scheme;
use toy::{Cache, Toy};

/// Returns the toy scheme, the same scheme under another name, and a window.
fn schemes() -> Schemes {
    let toy = Scheme::store::<Toy>("toy", "toy:NAME");
    let cache = Scheme::window::<Cache>("cache", "cache://HOST");
    Schemes::default().with(&[toy, toy.alias("joy"), cache]).unwrap()
}

fn parse(url: &str) -> StoreUrl {
    schemes().parse(url).unwrap()
}

fn orders() -> SequenceName {
    SequenceName::new("orders").unwrap()
}

/// Draws one id and creates the sequence if it is missing.
async fn draw(store: &dyn Store) -> Result<u64> {
    let request = Reserve::new(orders(), 1).create(Bounds::of::<u64>());
    store.reserve(&request).await.map(|grant| grant.range.start())
}

fn expect(error: &Error, kind: ErrorKind, message: &str) {
    assert_eq!((error.kind(), error.to_string().as_str()), (kind, message), "{error:?}");
    assert_eq!(error.operation(), Some(Operation::Connect), "{error:?}");
}

#[tokio::test]
async fn url_returns_what_its_store_returns() {
    let (url, plain) = (parse("TOY:/a/file?table=t"), parse("memory:"));
    assert_eq!((url.scheme(), plain.scheme()), ("toy", "memory"));
    assert_eq!((url.file(), plain.file()), (Some(Path::new("/a/file")), None));
    assert_eq!((url.ddl().unwrap().as_deref(), plain.ddl().unwrap()), (Some("CREATE sequences"), None));
    assert_eq!(url.witness_ddl().unwrap().as_deref(), Some("CREATE records"));
    assert_eq!(plain.witness_ddl().unwrap(), None);
    assert_eq!(url.target().to_string(), "toy:/a/file?table=t");
    assert_eq!(url.lookalikes().await.unwrap().as_deref(), Some("another table"));
    assert_eq!(plain.lookalikes().await.unwrap(), None);
    let refused = url.refused().await.unwrap();
    assert_eq!(
        refused.iter().map(|(name, error)| (name.as_str(), error.kind())).collect::<Vec<_>>(),
        [("orders", ErrorKind::Conflict)]
    );
}

#[test]
fn only_a_remote_store_or_witness_is_remote() {
    for (url, is_remote) in [
        ("memory:", false),
        ("toy:far", true),
        ("memory:?guard=file:/w", false),
        ("memory:?guard=toy:w", true),
        ("toy:far?guard=file:/w", true),
    ] {
        assert_eq!(parse(url).is_remote(), is_remote, "{url}");
    }
}

#[test]
fn place_has_the_options_that_select_a_store() {
    for (url, place) in [
        ("toy:n", "toy:n"),
        ("toy:n?timeout=5s", "toy:n"),
        ("toy:n?tables=x&table=t&timeout=5s&schema=s", "toy:n?table=t&schema=s"),
        ("toy:n?sequences=native&collection=c&prefix=p", "toy:n?sequences=native&collection=c&prefix=p"),
        ("toy:/no/such/../file?table=t", "/no/such/../file?table=t"),
        ("memory:?guard=file:/w", "memory:"),
    ] {
        assert_eq!(parse(url).place(), place, "{url}");
    }
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap();
    std::fs::create_dir(root.join("sub")).unwrap();
    std::fs::write(root.join("ids"), "").unwrap();
    let (given, real) = (root.join("sub/../ids"), root.join("ids"));
    assert_eq!(parse(&format!("toy:{}", given.display())).place(), real.display().to_string());
}

#[test]
fn urls_are_equal_if_they_print_the_same() {
    assert_eq!(parse("TOY:n"), parse("toy:n"));
    assert_eq!(parse("toy:n?existing=false"), parse("toy:n"));
    for other in ["toy:m", "toy:n?table=t", "toy:n?existing=true", "toy:n?guard=file:/w"] {
        assert_ne!(parse(other), parse("toy:n"), "{other}");
    }
}

#[test]
fn options_are_printed_in_the_order_in_which_they_apply() {
    let url = "toy:n?existing=true&window=cache://h%3Fblock%3D5&table=t&guard=file:/a%26b";
    let printed = "toy:n?table=t&guard=file:/a%2526b&window=cache://h%3Fblock%3D5&existing=true";
    assert_eq!(
        parse(url).to_string(),
        "toy:n?table=t&guard=file:/a%2526b&window=cache://h%3Fblock%3D5&existing=true"
    );
    assert_eq!(parse(printed), parse(url));
}

#[tokio::test]
async fn existing_store_is_not_created() {
    let url = parse("toy:never-made");
    for missing in
        [url.clone().existing(), url.clone().existing_sequences(), parse("toy:never-made?existing=true")]
    {
        expect(
            &missing.connect().await.unwrap_err(),
            ErrorKind::NotFound,
            "connect: there is no store never-made",
        );
    }
    url.connect().await.unwrap();
    let looking = url.clone().existing();
    assert_eq!(looking.to_string(), "toy:never-made", "a mode, and not an option");
    assert_eq!(draw(&*looking.connect().await.unwrap()).await.unwrap(), 1);
}

#[tokio::test]
async fn existing_sequences_are_not_created() {
    let url = parse("toy:no-sequence");
    let store = url.connect().await.unwrap();
    let strict = url.clone().existing_sequences();
    assert_eq!(strict.to_string(), "toy:no-sequence?existing=true");
    // The stricter of the two modes applies.
    assert_eq!(strict.clone().existing(), strict);
    for strict in [strict.clone(), strict.existing(), parse("toy:no-sequence?existing=true")] {
        let refused = draw(&*strict.connect().await.unwrap()).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::NotFound, "{refused}");
    }
    assert_eq!(draw(&*store).await.unwrap(), 1);
    assert_eq!(draw(&*parse("toy:no-sequence?existing=true").connect().await.unwrap()).await.unwrap(), 2);
}

#[tokio::test]
async fn window_is_in_front_of_the_store_and_has_a_view() {
    let url = parse("toy:behind?window=cache://h");
    let store = url.connect().await.unwrap();
    assert_eq!(draw(&*store).await.unwrap(), 1);
    let direct = parse("toy:behind").connect().await.unwrap();
    assert_eq!((store.capabilities().batches, direct.capabilities().batches), (false, true));
    assert_eq!(draw(&*direct).await.unwrap(), 2, "both use the same store");
    let seen = direct.inspect(&orders()).await.unwrap().unwrap();
    let view = url.window().unwrap().unwrap();
    assert_eq!(view.end(&seen).await.unwrap(), Some(77));
    assert!(parse("toy:behind").window().unwrap().is_none());
}

#[tokio::test]
async fn schemes_open_and_connect_the_store_at_a_url() {
    let ids = schemes().connect("toy:opened").await.unwrap();
    assert_eq!(ids.sequence::<u64>("orders").await.unwrap().next().await.unwrap(), 1);
    let store = schemes().open("joy:opened").await.unwrap();
    assert!(store.inspect(&orders()).await.unwrap().is_some());
    expect(
        &schemes().open("").await.unwrap_err(),
        ErrorKind::InvalidInput,
        "connect: the store's URL is empty; examples: `toy:NAME`, `memory:`",
    );
}
