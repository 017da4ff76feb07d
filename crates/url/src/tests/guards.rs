//! `guard=URL`: when the witness is opened, created or rejected.

use super::toy::opened;
use super::{draw, expect, orders, parse, schemes};
use crate::WitnessUrl;
use idmill::store::Page;
use idmill::{Error, ErrorKind};
use idmill_guard::Witness as _;

const IS_ITSELF: &str = "the witness is the store itself, so one restore reverts both; use another server, or a file on \
                         another disk";

fn witness(url: &str) -> WitnessUrl {
    schemes().witness(url).unwrap()
}

/// Returns the message of the error's cause.
fn cause(error: &Error) -> String {
    std::error::Error::source(error).unwrap().to_string()
}

#[tokio::test]
async fn guarded_store_is_claimed_at_a_witness_in_a_store() {
    let url = parse("toy:claimed?table=t&guard=toy:claims");
    assert_eq!(draw(&*url.connect().await.unwrap()).await.unwrap(), 1);
    assert_eq!(opened("claims").await, 1, "the first claim uses the open witness");
    let open = witness("toy:claims").open_existing().await.unwrap();
    let ledger = open.read(&orders()).await.unwrap().unwrap();
    assert_eq!(ledger.top(), 2);
    assert_eq!(ledger.store.as_deref(), Some("toy:claimed?table=t"));
    assert_eq!(open.list(&Page::default()).await.unwrap().ledgers.len(), 1);
    // The witness was used before, so it is accepted again, also for a store with ids.
    assert_eq!(draw(&*url.connect().await.unwrap()).await.unwrap(), 2);
}

#[tokio::test]
async fn missing_witness_of_a_used_store_is_not_created() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ids.witness");
    draw(&*parse("toy:used").connect().await.unwrap()).await.unwrap();
    parse("toy:unmarked").connect().await.unwrap();
    for guard in ["toy:unmade".to_owned(), "toy:unmarked".to_owned(), format!("file:{}", file.display())] {
        let refused = parse(&format!("toy:used?guard={guard}")).connect().await.unwrap_err();
        let message = format!(
            "connect: the witness {guard} does not exist, but ids of \"orders\" were reserved; restore it, or for a new \
             guard use `{guard}?new=true`"
        );
        expect(&refused, ErrorKind::Witness, &message);
        assert!(!file.exists());
        let new = parse(&format!("toy:used?guard={guard}?new=true"));
        draw(&*new.connect().await.unwrap()).await.unwrap();
        assert!(witness(&guard).open_existing().await.unwrap().read(&orders()).await.unwrap().is_some());
        // The witness now exists, so the option makes no difference.
        new.connect().await.unwrap();
        draw(&*parse(&format!("toy:used?guard={guard}")).connect().await.unwrap()).await.unwrap();
    }
}

#[tokio::test]
async fn looking_at_a_store_opens_its_witness_on_first_use() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ids.witness");
    let url = parse(&format!("toy:looked?guard=file:{}", file.display()));
    parse("toy:looked").connect().await.unwrap();
    for looking in [url.clone().existing(), url.clone().existing_sequences()] {
        let store = looking.connect().await.unwrap();
        assert_eq!(store.inspect(&orders()).await.unwrap(), None);
        assert!(!file.exists(), "{looking}");
    }
    assert_eq!(draw(&*url.clone().existing().connect().await.unwrap()).await.unwrap(), 1);
    assert!(file.exists());
    std::fs::remove_file(&file).unwrap();
    url.clone().existing().connect().await.unwrap();
    assert!(!file.exists());
    assert_eq!(url.connect().await.unwrap_err().kind(), ErrorKind::Witness);
    assert!(!file.exists());
}

#[tokio::test]
async fn opening_a_new_store_creates_its_witness() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ids.witness");
    parse(&format!("toy:brand-new?guard=file:{}", file.display())).connect().await.unwrap();
    assert!(file.exists());
}

#[test]
fn witness_with_the_url_of_the_store_is_rejected() {
    for (url, shown) in [
        ("toy:same?guard=toy:same", "toy:same"),
        ("toy:same?table=t&guard=toy:same%3Ftable=u", "toy:same?table=u"),
        ("toy:/same/file?guard=file:/same/file", "file:/same/file"),
    ] {
        let refused = schemes().parse(url).unwrap_err();
        expect(&refused, ErrorKind::InvalidInput, &format!("connect: cannot open the witness {shown}"));
        assert_eq!(cause(&refused), IS_ITSELF, "{url}");
    }
}

#[tokio::test]
async fn witness_that_is_the_store_is_detected_on_opening() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("sub")).unwrap();
    let (one, other) = (directory.path().join("ids"), directory.path().join("sub/../ids"));
    let (one, other) = (one.display(), other.display());
    witness(&format!("file:{one}")).open().await.unwrap();
    for (store, guard) in [
        (format!("toy:{one}"), format!("file:{other}")),
        (format!("toy:{one}"), format!("toy:{other}")),
        // Two names of one store without a file. Its mark shows that they are the same.
        ("toy:itself;x".to_owned(), "toy:itself;y".to_owned()),
    ] {
        let url = parse(&format!("{store}?guard={guard}"));
        for _ in 0..2 {
            let refused = url.connect().await.unwrap_err();
            expect(&refused, ErrorKind::InvalidInput, &format!("connect: cannot open the witness {guard}"));
            assert_eq!(cause(&refused), IS_ITSELF, "{guard}");
        }
    }
}

#[tokio::test]
async fn witness_on_the_server_of_the_store_is_rejected() {
    let url = parse("toy:one?server=s&guard=toy:two%3Fserver%3Ds");
    let on_the_server = "the witness is on the store's server, s, so one restore reverts both; use another server, or a \
                         file elsewhere";
    for _ in 0..2 {
        let refused = url.connect().await.unwrap_err();
        expect(&refused, ErrorKind::InvalidInput, "connect: cannot open the witness toy:two?server=s");
        assert_eq!(cause(&refused), on_the_server);
    }
    parse("toy:one?server=s&guard=toy:three%3Fserver%3Dt").connect().await.unwrap();
}

#[tokio::test]
async fn inspected_witness_must_exist_and_be_separate() {
    let store = parse("toy:inspected").connect().await.unwrap();
    assert!(parse("toy:inspected").witness(&*store).await.unwrap().is_none());
    let url = parse("toy:inspected?guard=toy:inspector");
    let missing = url.witness(&*store).await.unwrap_err();
    expect(&missing, ErrorKind::NotFound, "connect: cannot open the witness toy:inspector");
    draw(&*url.connect().await.unwrap()).await.unwrap();
    let open = url.witness(&*store).await.unwrap().unwrap();
    assert_eq!(open.read(&orders()).await.unwrap().unwrap().top(), 2);
    let keeper = parse("toy:inspector").connect().await.unwrap();
    let itself = url.witness(&*keeper).await.unwrap_err();
    assert_eq!((itself.kind(), cause(&itself).as_str()), (ErrorKind::InvalidInput, IS_ITSELF));
}

#[tokio::test]
async fn inspected_witness_file_must_not_be_the_stores() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("sub")).unwrap();
    let (file, other) = (directory.path().join("w"), directory.path().join("sub/../w"));
    witness(&format!("file:{}", file.display())).open().await.unwrap();
    let url = parse(&format!("toy:{}?guard=file:{}", other.display(), file.display()));
    let store = parse("memory:").connect().await.unwrap();
    let itself = url.witness(&*store).await.unwrap_err();
    assert_eq!((itself.kind(), cause(&itself).as_str()), (ErrorKind::InvalidInput, IS_ITSELF));
}

#[test]
fn witness_returns_the_statement_of_its_store() {
    assert_eq!(witness("toy:w").ddl().unwrap().as_deref(), Some("CREATE records"));
    assert_eq!(witness("memory:").ddl().unwrap(), None);
    assert_eq!(witness("file:/w").ddl().unwrap(), None);
}
