use std::fs::File;
#[cfg(unix)]
use std::fs::Permissions;
#[cfg(unix)]
use std::os::unix::fs::PermissionsExt as _;
use std::thread;
use std::time::{Duration, Instant};

use super::*;
use idmill::IdRange;
use idmill::store::Identity;

const ORDERS: Identity = Identity { incarnation: 7, epoch: 0 };

fn name(name: &str) -> SequenceName {
    SequenceName::new(name).unwrap()
}

fn ledger(seen: Option<&Ledger>, start: u64) -> Ledger {
    Ledger::claim(seen, ORDERS, IdRange::new(start, 10).unwrap()).unwrap()
}

#[tokio::test]
async fn claims_are_visible_to_the_next_process() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ids.witness");
    let witness = FileWitness::open(&file).unwrap();
    let first = ledger(None, 1);
    assert_eq!(witness.read(&name("orders")).await.unwrap(), None);
    assert!(witness.swap(&name("orders"), None, &first).await.unwrap());
    assert!(!witness.swap(&name("orders"), None, &first).await.unwrap());
    let second = ledger(Some(&first), 31);
    assert!(witness.swap(&name("orders"), Some(&first), &second).await.unwrap());
    assert!(witness.swap(&name("a b%\u{e9}"), None, &first).await.unwrap());

    let another = FileWitness::open(&file).unwrap();
    assert_eq!(another.read(&name("orders")).await.unwrap(), Some(second));
    assert_eq!(another.read(&name("a b%\u{e9}")).await.unwrap(), Some(first));
}

#[tokio::test]
async fn many_at_once_lose_no_claim() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ids.witness");
    let claim = |witness: FileWitness, start: u64| async move {
        loop {
            let seen = witness.read(&name("orders")).await.unwrap();
            let wanted = ledger(seen.as_ref(), start);
            if witness.swap(&name("orders"), seen.as_ref(), &wanted).await.unwrap() {
                return;
            }
        }
    };
    FileWitness::open(&file).unwrap();
    claim(FileWitness::open(&file).unwrap(), 1).await;
    let claims = (0..6).map(|n| tokio::spawn(claim(FileWitness::open(&file).unwrap(), 11 + n * 10)));
    for claimed in claims.collect::<Vec<_>>() {
        claimed.await.unwrap();
    }
    let whole = FileWitness::open(&file).unwrap().read(&name("orders")).await.unwrap().unwrap();
    assert_eq!((whole.floor, whole.claims.len(), whole.version), (71, 0, 6));
}

#[tokio::test]
async fn damaged_or_missing_file_is_rejected_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ids.witness");
    let witness = FileWitness::open(&file).unwrap();
    assert!(witness.swap(&name("orders"), None, &ledger(None, 1)).await.unwrap());
    let whole = std::fs::read_to_string(&file).unwrap();
    for damaged in [whole.replace("orders", "ordres"), whole[..whole.len() / 2].to_owned(), String::new()] {
        std::fs::write(&file, &damaged).unwrap();
        for error in [FileWitness::open(&file).unwrap_err(), witness.read(&name("orders")).await.unwrap_err()]
        {
            assert_eq!(error.kind(), ErrorKind::StoreViolation, "{damaged:?}: {error}");
            assert!(error.to_string().contains("ids.witness"), "{error}");
        }
    }
    std::fs::remove_file(&file).unwrap();
    assert!(FileWitness::find(&file).unwrap().is_none());
    let gone = witness.swap(&name("orders"), None, &ledger(None, 1)).await.unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NotFound, "{gone}");
    let nowhere = FileWitness::open(directory.path().join("no/ids.witness")).unwrap_err();
    assert_eq!(nowhere.kind(), ErrorKind::NotFound, "{nowhere}");
}

#[cfg(unix)]
#[tokio::test]
async fn reading_needs_no_right_to_write() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ids.witness");
    let first = ledger(None, 1);
    let witness = FileWitness::open(&file).unwrap();
    assert!(witness.swap(&name("orders"), None, &first).await.unwrap());
    let writable = |writable: bool| {
        for (path, mode) in [(&*file, 0o444), (directory.path(), 0o555)] {
            let mode = if writable { mode | 0o200 } else { mode };
            std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        }
    };
    writable(false);
    let looking = FileWitness::open_existing(&file).unwrap();
    assert_eq!(looking.read(&name("orders")).await.unwrap(), Some(first.clone()));
    assert_eq!(looking.list(&Page::default()).await.unwrap().ledgers.len(), 1);
    assert_eq!(looking.read_many(&[name("orders")]).await[0].as_ref().unwrap(), &Some(first.clone()));
    // Root may write to any file.
    if std::fs::OpenOptions::new().write(true).open(&file).is_err() {
        let denied =
            looking.swap(&name("orders"), Some(&first), &ledger(Some(&first), 31)).await.unwrap_err();
        assert_eq!(denied.kind(), ErrorKind::Denied, "{denied}");
        assert_eq!(FileWitness::find(&file).unwrap_err().kind(), ErrorKind::Denied);
    }
    writable(true);
}

#[cfg(unix)]
#[test]
fn open_of_a_link_leads_to_its_file() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    std::fs::create_dir(at("other")).unwrap();
    std::os::unix::fs::symlink("other/w", at("link")).unwrap();
    let nowhere = FileWitness::open(at("link")).unwrap_err();
    assert_eq!(nowhere.kind(), ErrorKind::NotFound, "its disk may not be mounted: {nowhere}");
    let file = FileWitness::open(at("other/w")).unwrap();
    assert_eq!(FileWitness::open(at("link")).unwrap().path(), file.path());
    std::fs::hard_link(at("other/w"), at("w")).unwrap();
    for name in ["w", "link", "other/w"] {
        assert_eq!(FileWitness::open(at(name)).unwrap_err().kind(), ErrorKind::Conflict, "{name}");
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().unwrap()
}

/// Runs `work` while another thread removes all files with this ending but the witness, again and again.
fn while_removed<R>(witness: &Path, ending: &str, work: impl FnOnce() -> R) -> R {
    let directory = witness.parent().unwrap();
    let running = Arc::new(());
    thread::scope(|scope| {
        let ended = Arc::downgrade(&running);
        scope.spawn(move || {
            for pause in (0..).map(|round| Duration::from_micros(round * 7919 % 30_000)) {
                if ended.strong_count() == 0 {
                    break;
                }
                let entries = std::fs::read_dir(directory).unwrap().flatten().map(|entry| entry.path());
                let removed =
                    entries.filter(|path| path != witness && path.to_str().unwrap().ends_with(ending));
                removed.for_each(|path| drop(std::fs::remove_file(path)));
                thread::sleep(pause);
            }
        });
        let result = work();
        drop(running);
        result
    })
}

/// Claims a range of its own sequence `rounds` times. Returns the name and the last confirmed ledger.
fn claims_of_one(file: &Path, number: usize, rounds: u64) -> (SequenceName, Option<Ledger>) {
    let (witness, name, runtime) = (FileWitness::open(file).unwrap(), name(&format!("s{number}")), runtime());
    let mut confirmed = None;
    for round in 0..rounds {
        // Some ranges are skipped, so that no claim contains an earlier one.
        let wanted = ledger(confirmed.as_ref(), 1 + round * 10);
        loop {
            match runtime.block_on(witness.swap(&name, confirmed.as_ref(), &wanted)) {
                Ok(true) => break,
                Ok(false) => panic!("a confirmed claim was lost, or a claim that failed was written"),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}"),
            }
        }
        confirmed = Some(wanted);
    }
    (name, confirmed)
}

/// Six threads claim while files with this ending are removed. Confirmed claims must be in the file.
fn no_claim_is_lost_while_removed(ending: &str) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ids.witness");
    FileWitness::open(&file).unwrap();
    let confirmed = while_removed(&file, ending, || {
        thread::scope(|scope| {
            let file = &file;
            let claiming: Vec<_> = (0..6).map(|n| scope.spawn(move || claims_of_one(file, n, 60))).collect();
            claiming.into_iter().map(|claimed| claimed.join().unwrap()).collect::<Vec<_>>()
        })
    });
    let witness = FileWitness::open_existing(&file).unwrap();
    for (name, confirmed) in confirmed {
        assert_eq!(runtime().block_on(witness.read(&name)).unwrap(), confirmed, "{name}");
    }
}

#[test]
fn removed_locks_lose_no_claim() {
    no_claim_is_lost_while_removed(".lock");
}

#[test]
fn removed_temporary_files_lose_no_claim() {
    no_claim_is_lost_while_removed("");
}

#[test]
fn rename_that_did_not_happen_is_no_unknown_outcome() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ids.witness");
    let (witness, runtime, begun) = (FileWitness::open(&file).unwrap(), runtime(), Instant::now());
    let failed = while_removed(&file, "", || {
        while begun.elapsed() < Duration::from_secs(60) {
            let seen = runtime.block_on(witness.read(&name("orders"))).unwrap();
            let wanted =
                ledger(seen.as_ref(), seen.as_ref().map_or(1, |seen| u64::try_from(seen.top()).unwrap()));
            if let Err(error) = runtime.block_on(witness.swap(&name("orders"), seen.as_ref(), &wanted)) {
                return Some((error, seen));
            }
        }
        None
    });
    let (error, seen) = failed.expect("a temporary file is removed");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert_eq!(runtime.block_on(witness.read(&name("orders"))).unwrap(), seen);
}

#[tokio::test]
async fn held_lock_fails_claims_certainly_and_soon() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ids.witness");
    let witness = FileWitness::open(&file).unwrap();
    // A stopped process keeps its lock.
    let held = File::open(&file).unwrap();
    held.lock().unwrap();
    let beside = File::create(directory.path().join("ids.witness.lock")).unwrap();
    beside.lock().unwrap();
    let begun = Instant::now();
    let error = witness.swap(&name("orders"), None, &ledger(None, 1)).await.unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(6), "the store's timeout is 10 s: {:?}", begun.elapsed());
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    for word in ["ids.witness", "lock"] {
        assert!(error.to_string().contains(word), "{error}");
    }
    assert_eq!(witness.read(&name("orders")).await.unwrap(), None);
    drop((held, beside));
    assert!(witness.swap(&name("orders"), None, &ledger(None, 1)).await.unwrap());
}

#[test]
fn read_that_cannot_run_is_no_unknown_outcome() {
    let directory = tempfile::tempdir().unwrap();
    let witness = FileWitness::open(directory.path().join("ids.witness")).unwrap();
    let ended = runtime();
    let handle = ended.handle().clone();
    ended.shutdown_background();
    let error = handle.block_on(witness.read(&name("orders"))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

#[test]
fn leftover_files_deny_nothing_and_are_removed() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let file = at("ids.witness");
    FileWitness::open(&file).unwrap();
    let others =
        ["ids.witness.new", "ids.witness.lock", "ids.witness.0123456789abcde.new", "s.0123456789abcdef.new"];
    let leftover = at("ids.witness.0123456789abcdef.new");
    for name in others {
        // Another user's file cannot be opened. Nor can a directory, even by root.
        std::fs::remove_file(at(name)).ok();
        std::fs::create_dir(at(name)).unwrap();
    }
    std::fs::write(&leftover, "idmill-wit").unwrap();
    let witness = FileWitness::find(&file).unwrap().unwrap();
    assert!(!leftover.exists());
    assert!(runtime().block_on(witness.swap(&name("orders"), None, &ledger(None, 1))).unwrap());
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1 + others.len());
}

#[cfg(unix)]
#[test]
fn mode_of_the_file_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ids.witness");
    let witness = FileWitness::open(&file).unwrap();
    std::fs::set_permissions(&file, Permissions::from_mode(0o664)).unwrap();
    assert!(runtime().block_on(witness.swap(&name("orders"), None, &ledger(None, 1))).unwrap());
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o664);
}

#[test]
fn only_a_regular_file_of_limited_size_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let check = |path: &Path, kind, words: &str| {
        for opened in [FileWitness::open(path), FileWitness::open_existing(path)] {
            let error = opened.unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains(words), "{error}");
        }
    };
    check(directory.path(), ErrorKind::InvalidInput, "is a directory");
    #[cfg(unix)]
    check(Path::new("/dev/null"), ErrorKind::InvalidInput, "is not a regular file");
    let large = directory.path().join("large");
    File::create(&large).unwrap().set_len((64 << 20) + 1).unwrap();
    check(&large, ErrorKind::StoreViolation, "over 64 MiB");
    File::create(&large).unwrap().set_len(64 << 20).unwrap();
    check(&large, ErrorKind::StoreViolation, "is not an idmill witness, or was written by a later version");
}

#[tokio::test]
async fn each_request_of_a_failed_batch_gets_the_error() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ids.witness");
    let witness = FileWitness::open(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    let names = ["a", "b"].map(name);
    let writes = names.clone().map(|name| Write::new(name, None, ledger(None, 1)));
    let read = witness.read_many(&names).await.into_iter().map(|read| read.map(drop));
    let written = witness.swap_many(&writes).await.into_iter().map(|written| written.map(drop));
    let failed: Vec<_> = read.chain(written).map(Result::unwrap_err).collect();
    assert_eq!(failed.len(), 4);
    for error in failed {
        assert_eq!(error.kind(), ErrorKind::NotFound);
        let text = idmill_kit::chain(&error);
        let starts = "the batch of requests to the witness file failed: ";
        assert!(text.starts_with(starts) && text.contains("ids.witness"), "{text}");
    }
}
