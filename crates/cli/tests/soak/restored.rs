//! A store with backups that can be restored.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use idmill_sqlite::rusqlite::Connection;
use idmill_testing::engines::Engine;
use idmill_testing::restores::ran;
use idmill_testing::{eventually, holds};

pub(crate) struct Restored {
    pub(crate) name: &'static str,
    pub(crate) url: String,
    pub(crate) guard: String,
    /// `None` for SQLite.
    engine: Option<Engine>,
    /// The data to copy.
    data: PathBuf,
}

impl Restored {
    /// Creates a SQLite database in this directory, with a file as its witness.
    pub(crate) fn sqlite(dir: &Path) -> Self {
        let data = dir.join("ids.db");
        let url = format!("sqlite:{}?busy_timeout=5s", data.display());
        let guard = format!("file:{}", dir.join("sqlite.witness").display());
        Self { name: "sqlite", url, guard, engine: None, data }
    }

    /// Uses the data of this engine. For some engines, the witness is a database.
    pub(crate) fn engine(name: &'static str, engine: Engine, dir: &Path) -> Self {
        let address = engine.address();
        let (url, data) = match name {
            "postgres" => {
                (format!("postgres://postgres@{address}/postgres?timeout=5s&failover=allow"), "data")
            }
            "native" => {
                (format!("postgres://postgres@{address}/postgres?timeout=5s&sequences=native"), "data")
            }
            "mariadb" => (format!("mysql://root@{address}/ids?timeout=5s&failover=allow"), "data"),
            "redis" => (format!("redis://{address}?timeout=5s&failover=allow"), "appendonlydir"),
            _ => (format!("etcd://{address}?timeout=5s"), "data"),
        };
        let witness = dir.join(format!("{name}.witness"));
        let scheme = if matches!(name, "postgres" | "redis") { "sqlite" } else { "file" };
        let guard = format!("{scheme}:{}", witness.display());
        let data = engine.dir().join(data);
        Self { name, url, guard, engine: Some(engine), data }
    }

    pub(crate) fn guarded(&self) -> String {
        format!("{}&guard={}", self.url, self.guard)
    }

    /// Returns the read-only URL, if this store has one.
    pub(crate) fn read_only(&self) -> Option<String> {
        let has_modes = matches!(self.name, "sqlite" | "postgres" | "native" | "mariadb");
        has_modes.then(|| format!("{}&mode=ro", self.url))
    }

    /// Returns whether all processes must end before a restore.
    pub(crate) fn needs_an_end(&self) -> bool {
        self.engine.is_none()
    }

    fn is_postgres(&self) -> bool {
        matches!(self.name, "postgres" | "native")
    }

    /// Returns the path of the witness, if it is a file.
    pub(crate) fn witness(&self) -> Option<&Path> {
        self.guard.strip_prefix("file:").map(Path::new)
    }

    /// Removes what a cleaner of temporary files may remove next to a witness in a file: a lock, and files
    /// that look left over.
    pub(crate) fn clean(&self) {
        let Some(witness) = self.witness() else { return };
        let whole = witness.file_name().and_then(|name| name.to_str()).expect("UTF-8");
        for entry in fs::read_dir(witness.parent().expect("a directory")).unwrap().flatten() {
            let name = entry.file_name().into_string().expect("UTF-8");
            if name.starts_with(whole) && name != whole {
                // Another process may have removed it.
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    pub(crate) async fn down(&self) {
        let Some(engine) = &self.engine else { return };
        if self.is_postgres() {
            // Send SIGINT: after SIGKILL, child processes would still write while the files are copied.
            let pid = engine.pid().expect("it runs").to_string();
            ran(Command::new("kill").args(["-INT", &pid]));
            eventually("the server has stopped", async || {
                holds(!self.data.join("postmaster.pid").exists(), "postmaster.pid")
            })
            .await;
        }
        engine.kill();
    }

    pub(crate) async fn up(&self) {
        if let Some(engine) = &self.engine {
            engine.restart().await;
        }
    }

    /// Crashes the engine and starts it again.
    pub(crate) async fn restart(&self) {
        if let Some(engine) = &self.engine {
            engine.kill();
        }
        self.up().await;
    }

    /// Copies the data in its current state.
    pub(crate) async fn copy(&self, copy: &str) {
        let copy = self.data.with_extension(copy);
        if self.engine.is_none() {
            let _ = fs::remove_file(&copy);
            let database = Connection::open(&self.data).unwrap();
            database.busy_timeout(Duration::from_secs(60)).unwrap();
            database.execute("VACUUM INTO ?1", [copy.to_str().unwrap()]).unwrap();
            return;
        }
        self.down().await;
        let _ = fs::remove_dir_all(&copy);
        ran(Command::new("cp").arg("-a").arg(&self.data).arg(&copy));
        self.up().await;
    }

    /// Restores a copy.
    pub(crate) async fn put_back(&self, copy: &str) {
        let copy = self.data.with_extension(copy);
        self.down().await;
        if self.engine.is_none() {
            for ending in ["", "-wal", "-shm", "-journal"] {
                let _ = fs::remove_file(format!("{}{ending}", self.data.display()));
            }
        } else {
            fs::remove_dir_all(&self.data).unwrap();
        }
        ran(Command::new("cp").arg("-a").arg(&copy).arg(&self.data));
        self.up().await;
    }

    /// Starts a new timeline in PostgreSQL, as a promoted replica does.
    pub(crate) async fn promote(&self) {
        if !self.is_postgres() {
            return;
        }
        self.down().await;
        let signal = self.data.join("standby.signal");
        fs::write(&signal, "").unwrap();
        ran(Command::new("chown").arg("--reference").arg(&self.data).arg(&signal));
        self.up().await;
        let options = idmill_postgres::PostgresOptions::parse(&self.url).unwrap();
        options.client().await.unwrap().batch_execute("SELECT pg_promote()").await.unwrap();
    }
}
