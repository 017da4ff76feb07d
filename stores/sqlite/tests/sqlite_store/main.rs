//! The SQLite store with real files: guarantees, rejections, and ids in transactions of the caller.

mod files;
mod processes;
mod records;
mod reserves;
mod restores;
mod rows;
mod tails;
mod transaction;

use std::path::PathBuf;

use idmill::store::{Bounds, Reserve, SequenceInfo, Store};
use idmill::{Error, ErrorKind, Operation, Result, SequenceName};
use idmill_sqlite::rusqlite::Connection;
use idmill_sqlite::{SqliteOptions, SqliteStore};
use idmill_url::Schemes;

fn schemes() -> Schemes {
    Schemes::default().with(idmill_sqlite::SCHEMES).unwrap()
}

fn name(text: &str) -> SequenceName {
    SequenceName::new(text).unwrap()
}

fn request(text: &str, count: u64) -> Reserve {
    Reserve::new(name(text), count).create(Bounds::of::<u64>())
}

async fn reserve(store: &SqliteStore, text: &str, count: u64) -> Result<(u64, u64)> {
    store.reserve(&request(text, count)).await.map(|grant| (grant.range.start(), grant.range.len()))
}

async fn inspect(store: &SqliteStore, text: &str) -> SequenceInfo {
    store.inspect(&name(text)).await.unwrap().expect("it exists")
}

struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("ids.db")
    }

    async fn open(&self) -> SqliteStore {
        SqliteStore::open(self.file()).await.unwrap()
    }

    fn raw(&self) -> Connection {
        Connection::open(self.file()).unwrap()
    }
}

async fn refused(options: SqliteOptions, kind: ErrorKind, hint: &str) -> Error {
    let error = SqliteStore::open_with(options).await.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(hint), "{error}");
    assert_eq!(error.operation(), Some(Operation::Connect));
    error
}
