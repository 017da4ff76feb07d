//! Rights of tokens, and hidden sequences.

use idmill::store::{Bounds, Change, GiveBack, MemoryStore, Page, Reserve, Store};
use idmill::{ErrorKind, Result};
use idmill_remote::{RemoteOptions, RemoteStore};
use idmill_server::{Access, Right};

use crate::common::{Running, access, name, next, request, reserve, token};

async fn with_token(server: &Running, token: &str) -> Result<RemoteStore> {
    RemoteStore::open(&format!("idmill://:{token}@{}?timeout=60s", server.address)).await
}

#[tokio::test]
async fn reserve_token_cannot_administer() {
    let memory = MemoryStore::new();
    let (secret, reserves) = token(&[Right::Reserve], &["shop.*"]);
    let (ruling, administers) = token(&[Right::Administer], &["*"]);
    let server = Running::with(memory.clone(), access([reserves, administers])).await;
    let shop = with_token(&server, secret.reveal()).await.unwrap();
    let (orders, other, bounds) = (name("shop.orders"), name("other"), Bounds::new(1, 99).unwrap());
    let grant = reserve(&shop, &orders, 5).await.unwrap();
    assert!(shop.give_back(&GiveBack::new(orders.clone(), grant.identity, grant.range)).await.unwrap());
    assert_eq!(next(&shop, &orders).await, Some(1));
    memory.create(&other, bounds).await.unwrap();
    let denied = |error: idmill::Error, says: &str| {
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert!(error.to_string().contains(says), "{error}");
    };
    denied(shop.create(&name("shop.x"), bounds).await.unwrap_err(), "right `administer`");
    denied(shop.set(&orders, Change::new().next(9)).await.unwrap_err(), "right `administer`");
    denied(shop.remove(&orders, None).await.unwrap_err(), "right `administer`");
    denied(reserve(&shop, "other", 1).await.unwrap_err(), "not for this sequence");
    denied(shop.inspect(&other).await.unwrap_err(), "not for this sequence");
    denied(
        shop.give_back(&GiveBack::new(other.clone(), grant.identity, grant.range)).await.unwrap_err(),
        "not for this sequence",
    );
    denied(shop.swap_record(&other, None, "x").await.unwrap_err(), "not for this sequence");
    denied(shop.record(&other).await.unwrap_err(), "not for this sequence");
    assert_eq!(next(&memory, "other").await, Some(1));
    // A forbidden request must not fail the others.
    let many = shop.reserve_many(&[request(&orders, 2), request("other", 2), request(&orders, 3)]).await;
    let lens: Vec<_> = many.iter().map(|one| one.as_ref().map_or(0, |grant| grant.range.len())).collect();
    assert_eq!(lens, [2, 0, 3], "{many:?}");
    let found = shop.inspect_many(&[other.clone(), orders.clone()]).await;
    assert!(found[0].is_err() && found[1].as_ref().unwrap().is_some(), "{found:?}");
    let listed = shop.list_all().await.unwrap();
    assert_eq!(listed.iter().map(|info| &*info.name).collect::<Vec<_>>(), ["shop.orders"]);
    let root = with_token(&server, ruling.reveal()).await.unwrap();
    assert_eq!(root.list(&Page::default()).await.unwrap().sequences.len(), 2);
    denied(reserve(&root, "other", 1).await.unwrap_err(), "right `reserve`");
    assert_eq!(root.set(&other, Change::new().next(9)).await.unwrap().next, Some(9));
    assert!(root.create(&name("shop.x"), bounds).await.is_ok() && root.remove(&other, None).await.unwrap());
}

#[tokio::test]
async fn reserve_above_max_ids_is_denied() {
    let (secret, mut token) = token(&[Right::Reserve], &["*"]);
    token.max_ids = Some(100);
    let memory = MemoryStore::new();
    let server = Running::with(memory.clone(), access([token])).await;
    let shop = with_token(&server, secret.reveal()).await.unwrap();
    let error = reserve(&shop, "s", 101).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Denied && error.to_string().contains("100 ids"), "{error}");
    assert_eq!(reserve(&shop, "s", 100).await.unwrap().range.len(), 100);
}

/// The limit counts only sequences that the token has created.
#[tokio::test]
async fn token_cannot_exceed_its_new_sequences() {
    let (secret, mut token) = token(&[Right::Reserve], &["*"]);
    token.new_sequences = Some(2);
    let memory = MemoryStore::new();
    memory.create(&name("old"), Bounds::new(1, 9).unwrap()).await.unwrap();
    let server = Running::with(memory.clone(), access([token])).await;
    let shop = with_token(&server, secret.reveal()).await.unwrap();
    // A failed create does not count towards the limit.
    let never = Reserve::new(name("never"), 1).ceiling(4).create(Bounds::new(5, 9).unwrap());
    for _ in 0..3 {
        assert_eq!(shop.reserve(&never).await.unwrap_err().kind(), ErrorKind::Exhausted);
    }
    assert_eq!(memory.inspect(&never.name).await.unwrap(), None);
    for known in ["old", "a", "a", "old", "b", "b"] {
        reserve(&shop, known, 1).await.unwrap();
    }
    let error = reserve(&shop, "c", 1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Overloaded, "{error}");
    let many = shop.reserve_many(&[request("c", 1), request("a", 1)]).await;
    assert!(many[0].is_err() && many[1].is_ok(), "{many:?}");
    assert_eq!(memory.inspect(&name("c")).await.unwrap(), None);
}

/// The cursor of a page is a name, and must never be a name that the token may not see.
#[tokio::test]
async fn cursor_never_shows_a_hidden_name() {
    let memory = MemoryStore::new();
    for known in ["a.secret", "shop.a", "shop.b", "shop.c", "t.secret"] {
        memory.create(&name(known), Bounds::new(1, 9).unwrap()).await.unwrap();
    }
    let (secret, token) = token(&[Right::Reserve], &["shop.*"]);
    let server = Running::with(memory, access([token])).await;
    let shop = with_token(&server, secret.reveal()).await.unwrap();
    let (mut listed, mut page) = (Vec::new(), Page::default().limit(1));
    loop {
        let rows = shop.list(&page).await.unwrap();
        assert!(!format!("{rows:?}").contains("secret"), "{rows:?}");
        listed.extend(rows.sequences.into_iter().map(|info| info.name.to_string()));
        let Some(next) = rows.next else { break };
        page = Page::default().limit(1).after(next);
    }
    assert_eq!(listed, ["shop.a", "shop.b", "shop.c"]);
    let error = shop.list_records(&Page::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
}

#[tokio::test]
async fn unknown_tokens_are_denied_and_never_printed() {
    let (drawing, draws) = token(&[Right::Draw, Right::Observe], &["*"]);
    let server = Running::with(MemoryStore::new(), access([draws])).await;
    let open = RemoteStore::open(&format!("idmill://{}", server.address)).await.unwrap_err();
    assert!(open.kind() == ErrorKind::Denied && open.to_string().contains("token_file=FILE"), "{open}");
    let wrong = with_token(&server, "idm_hunter2").await.unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::Denied, "{wrong}");
    let drawing = drawing.reveal();
    let lesser = with_token(&server, drawing).await.unwrap_err();
    assert!(lesser.kind() == ErrorKind::Denied && lesser.to_string().contains("`reserve`"), "{lesser}");
    let free = Running::over(MemoryStore::new()).await;
    let needless = with_token(&free, "idm_hunter2").await.unwrap_err();
    assert_eq!(needless.kind(), ErrorKind::Denied, "{needless}");
    for error in [open, wrong, lesser, needless] {
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains("hunter2") && !shown.contains(drawing), "{shown}");
    }
}

#[tokio::test]
async fn open_store_does_not_print_its_token() {
    let (secret, reserves) = token(&[Right::Reserve], &["*"]);
    let server = Running::with(MemoryStore::new(), access([reserves])).await;
    let options = RemoteOptions::new([server.address.to_string()]).unwrap().token(secret.reveal());
    let shown = format!("{options} {options:?} {:?}", RemoteStore::open_with(options.clone()).await.unwrap());
    assert!(!shown.contains(secret.reveal()) && shown.contains("***"), "{shown}");
}

/// The token file is replaced while a process runs, and the server ends the connections of the old token.
#[tokio::test]
async fn token_file_can_be_replaced_at_runtime() {
    let (old, first) = token(&[Right::Reserve], &["*"]);
    let (new, second) = token(&[Right::Reserve], &["*"]);
    let known = Access::by([first]);
    let (memory, tokens) = (MemoryStore::new(), known.clone());
    let server = Running::with(memory, |server| server.access(tokens)).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    std::fs::write(&file, old.reveal()).unwrap();
    let options = RemoteOptions::new([server.address.to_string()]).unwrap().token_file(&file);
    let shop = RemoteStore::open_with(options).await.unwrap();
    reserve(&shop, "s", 1).await.unwrap();
    known.replace([second]);
    let error = reserve(&shop, "s", 1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    std::fs::write(&file, format!("{}\n", new.reveal())).unwrap();
    assert_eq!(reserve(&shop, "s", 1).await.unwrap().range.start(), 2);
}

#[tokio::test]
async fn server_that_creates_nothing_reports_not_found() {
    let memory = MemoryStore::new();
    let server = Running::over_what_exists(memory.clone()).await;
    let remote = server.open().await;
    let error = reserve(&remote, "odrers", 1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    assert!(error.to_string().contains("none is created"), "{error}");
    assert_eq!(memory.list_all().await.unwrap().len(), 0);
    // An administrator creates the sequence.
    remote.create(&name("orders"), Bounds::new(1, 9).unwrap()).await.unwrap();
    assert_eq!(reserve(&remote, "orders", 1).await.unwrap().range.start(), 1);
}
