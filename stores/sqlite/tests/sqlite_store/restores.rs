//! Copies of a file that are put back, whole or without their log, and files that are gone or others: without
//! a guard ids come again, and with one they do not.

use std::path::{Path, PathBuf};
use std::time::Duration;

use idmill_testing::restores::Drawn;

use crate::{Place, schemes};

/// What was drawn from the file of this place.
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

    /// Waits until nobody has it open any more: the last to close it removes its log.
    async fn closed(&self) {
        while self.dir.path().join("ids.db-wal").exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// The database is gone.
    async fn empty(&self) {
        self.closed().await;
        std::fs::remove_file(self.file()).unwrap();
    }

    /// Puts the copy in its place.
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

/// The last reserves are in the log alone.
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

/// What no guard sees, and what does no harm.
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
    assert_eq!(ids.draw(50).await, 0, "the store knows the rest");
    std::fs::write(ids.witness(), &forgetful).unwrap();
    place.put_back().await;
    assert_eq!(ids.repeated_behind_the_guard(20).await, 20, "both forgot the same");
}
