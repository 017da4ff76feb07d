//! Restored copies of a file, complete or without their log, and missing or replaced files: without
//! a guard ids are duplicated, with a guard they are not.

use std::path::{Path, PathBuf};

use idmill_testing::restores::Drawn;
use idmill_testing::{eventually, holds};

use crate::{Place, schemes};

/// The ids drawn from the file of this place.
fn drawn(place: &Place) -> Drawn {
    Drawn::from(schemes(), url(&place.file()))
}

fn url(file: &Path) -> String {
    format!("sqlite:{}", file.display())
}

impl Place {
    fn copy(&self) -> PathBuf {
        self.dir.path().join("copy.db")
    }

    /// Waits until no connection is open: the last one to close removes the log.
    async fn closed(&self) {
        eventually("the log is removed", async || {
            holds(!self.dir.path().join("ids.db-wal").exists(), "ids.db-wal")
        })
        .await;
    }

    /// Removes the database.
    async fn empty(&self) {
        self.closed().await;
        std::fs::remove_file(self.file()).unwrap();
    }

    /// Restores the copy.
    async fn put_back(&self) {
        self.closed().await;
        std::fs::copy(self.copy(), self.file()).unwrap();
    }
}

#[tokio::test]
async fn a_file_that_is_put_back() {
    let place = Place::new();
    let mut ids = drawn(&place);
    ids.draw(30).await;
    place.closed().await;
    std::fs::copy(place.file(), place.copy()).unwrap();
    ids.draw(50).await;
    place.put_back().await;
    ids.went_back().await;
}

#[tokio::test]
async fn a_copy_that_is_made_while_others_draw() {
    let place = Place::new();
    let mut ids = drawn(&place);
    let process = ids.process().await.unwrap();
    ids.draw_with(&process, 30).await.unwrap();
    place.raw().execute("VACUUM INTO ?1", [place.copy().to_str().unwrap()]).unwrap();
    ids.draw_with(&process, 50).await.unwrap();
    drop(process);
    place.put_back().await;
    ids.went_back().await;
}

/// Only the log has the last reserves.
#[tokio::test]
async fn a_file_without_its_log() {
    let place = Place::new();
    let mut ids = drawn(&place);
    ids.draw(30).await;
    place.closed().await;
    let process = ids.process().await.unwrap();
    ids.draw_with(&process, 50).await.unwrap();
    assert!(place.dir.path().join("ids.db-wal").exists());
    std::fs::copy(place.file(), place.copy()).unwrap();
    drop(process);
    place.put_back().await;
    ids.went_back().await;
}

#[tokio::test]
async fn a_file_that_is_gone() {
    let place = Place::new();
    let mut ids = drawn(&place);
    ids.draw(50).await;
    place.empty().await;
    assert_eq!(ids.repeated(20).await, 20);
    place.empty().await;
    ids.another().await;
    place.raw().execute_batch("DELETE FROM idmill_sequences").unwrap();
    ids.another().await;
}

#[tokio::test]
async fn another_file() {
    let place = Place::new();
    let mut ids = drawn(&place);
    ids.draw(50).await;
    ids.moves_to(url(&place.dir.path().join("another.db")));
    assert_eq!(ids.repeated(20).await, 20);
    ids.refused().await;
    ids.moves_to(url(&place.file()));
    assert_eq!(ids.draw(50).await, 0);
}

/// A case that no guard detects, and one that does no harm.
#[tokio::test]
async fn a_witness_that_is_put_back() {
    let place = Place::new();
    let mut ids = drawn(&place);
    ids.draw(30).await;
    place.closed().await;
    std::fs::copy(place.file(), place.copy()).unwrap();
    let forgetful = std::fs::read(ids.witness()).unwrap();
    ids.draw(50).await;
    std::fs::write(ids.witness(), &forgetful).unwrap();
    assert_eq!(ids.draw(50).await, 0, "the store still has the ids that the witness lost");
    std::fs::write(ids.witness(), &forgetful).unwrap();
    place.put_back().await;
    assert_eq!(ids.repeated_behind_the_guard(20).await, 20, "store and witness lost the same ids");
}
