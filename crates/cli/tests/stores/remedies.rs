//! Common errors and their remedies: each row has a cause, the error, and the hint that helps. Errors of an
//! engine are tested with the real one.

use std::path::Path;
use std::process::Command;

use idmill_conformance::free_port;
use idmill_postgres::PostgresOptions;
use idmill_testing::engines::Engine;
use idmill_testing::skip;

use crate::ONE;
use crate::common::{Place, Ran};

/// A command that fails, and the expected error.
struct Row<'a> {
    cause: &'static str,
    store: String,
    args: &'a [&'a str],
    code: i32,
    says: &'a [&'a str],
    never: &'a [&'a str],
}

/// The timeout is above the timeouts in the URLs, so that the store's own error is reported.
const NEXT: &[&str] = &["next", "orders", "--timeout", "12s"];
const LATER: &str = "retry later";
/// Parts of Rust's `Debug` output.
const DEBUG: [&str; 4] = ["{ ", "Some(", "source:", "Kind:"];

impl Row<'_> {
    fn check(&self, place: &Place) {
        let ran = place.run(&[self.args, &["--store", &self.store]].concat());
        self.judge(&ran);
    }

    fn judge(&self, ran: &Ran) {
        let cause = self.cause;
        assert_eq!((ran.code, ran.out.as_str()), (self.code, ""), "{cause}: {ran:?}");
        for text in self.says {
            assert!(ran.err.contains(text), "{cause}: does not say {text:?}: {}", ran.err);
        }
        for text in self.never.iter().chain(&DEBUG) {
            assert!(!ran.err.contains(text), "{cause}: says {text:?}: {}", ran.err);
        }
    }
}

#[test]
fn sqlite() {
    let place = Place::new();
    assert_eq!(place.run(&["next", "orders", "--store", "sqlite:other.db?table=other"]).code, 0);
    // Not even root can create files under this path. `/sys` does not exist on every system.
    let closed = if Path::new("/sys/kernel").is_dir() { "/sys" } else { "/dev/null" };
    for row in [
        Row {
            cause: "a file that is missing, with mode=rwc",
            store: "sqlite:gone.db?mode=rwc".to_owned(),
            args: &["list"],
            code: 4,
            says: &[
                "there is no such file; correct the path, or restore the file",
                "begins every sequence at its start",
            ],
            never: &["mode=rwc to create", LATER],
        },
        Row {
            cause: "a file that is missing, with mode=rw",
            store: "sqlite:gone.db?mode=rw".to_owned(),
            args: NEXT,
            code: 4,
            says: &["correct the path", "unless `mode=rw` is set"],
            never: &["mode=rwc to create", LATER],
        },
        Row {
            cause: "a table that is missing",
            store: "sqlite:other.db?mode=rw".to_owned(),
            args: NEXT,
            code: 4,
            says: &["a store with `mode=rwc` (`Mode::Create`) creates it", "correct its name or restore it"],
            never: &[LATER],
        },
        Row {
            cause: "a directory that cannot be written",
            store: format!("sqlite:{closed}/ids.db"),
            args: NEXT,
            code: if closed == "/sys" { 1 } else { 2 },
            says: if closed == "/sys" { &["readable and writable for this user"] } else { &["directory"] },
            never: &[LATER],
        },
    ] {
        row.check(&place);
    }
}

/// Uses a database without its WAL on a read-only file system, if this user may mount one.
#[test]
#[cfg(target_os = "linux")]
fn sqlite_on_a_read_only_mount() {
    let place = Place::new();
    let disk = place.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    let mount = |options: &str| {
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(&disk).output();
        mount.is_ok_and(|output| output.status.success())
    };
    if !mount("size=1m") {
        return skip("this user may not mount a disk of its own");
    }
    let made = place.run(&["next", "orders", "--store", "sqlite:disk/ids.db"]);
    let closed = mount("remount,ro");
    let ran = place.run(&["list", "--store", "sqlite:disk/ids.db?mode=ro"]);
    assert!(Command::new("umount").arg(&disk).status().unwrap().success());
    assert_eq!((made.code, closed), (0, true), "{made:?}");
    let row = Row {
        cause: "a read-only directory",
        store: String::new(),
        args: &[],
        code: 1,
        says: &["the file, -wal and -shm readable and writable"],
        never: &[LATER],
    };
    row.judge(&ran);
}

/// Uses a file system of 64 KiB, if this user may mount one.
#[test]
#[cfg(target_os = "linux")]
fn sqlite_on_a_full_disk() {
    let place = Place::new();
    let disk = place.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"]).arg(&disk).output();
    if !mounted.is_ok_and(|output| output.status.success()) {
        return skip("this user may not mount a disk of its own");
    }
    let made = place.run(&["next", "orders", "--store", "sqlite:disk/ids.db"]);
    let fill = std::fs::write(disk.join("rest"), vec![0; 64 * 1024]);
    let ran = place.run(&[NEXT, &["--store", "sqlite:disk/ids.db"]].concat());
    assert!(Command::new("umount").arg(&disk).status().unwrap().success());
    assert_eq!((made.code, fill.is_err()), (0, true), "{made:?}");
    let row = Row {
        cause: "a full disk",
        store: String::new(),
        args: NEXT,
        code: 75,
        says: &["free space on the disk"],
        never: &[],
    };
    row.judge(&ran);
}

#[tokio::test(flavor = "multi_thread")]
async fn redis() {
    let _one = ONE.lock().await;
    let Some(engine) = Engine::start("redis").await else { return };
    let place = Place::new();
    let at = engine.address();
    for row in [
        Row {
            cause: "a database that is not there",
            store: format!("redis://{at}/99"),
            args: NEXT,
            code: 2,
            says: &["DB index is out of range", "below the server's setting `databases` (default 16)"],
            never: &[LATER],
        },
        Row {
            cause: "etcd's URL at a Redis port",
            store: format!("etcd://{at}?timeout=2s"),
            args: NEXT,
            code: 1,
            says: &["the server is not etcd, or it uses TLS"],
            never: &[LATER],
        },
    ] {
        row.check(&place);
    }
    engine.kill();
    let Some(engine) = Engine::set("redis", free_port(), &["--requirepass", "hunter2"]) else { return };
    engine.restart().await;
    let row = Row {
        cause: "a password that is missing",
        store: format!("redis://{}", engine.address()),
        args: NEXT,
        code: 1,
        says: &["the password is missing; write `redis://USER:PASSWORD@HOST`"],
        never: &[LATER],
    };
    row.check(&place);
    engine.kill();
    let Some(engine) = Engine::set("redis", free_port(), &["--appendfsync", "everysec"]) else { return };
    engine.restart().await;
    let at = engine.address();
    let row = Row {
        cause: "a server that loses writes in a crash",
        store: format!("redis://{at}"),
        args: NEXT,
        code: 1,
        says: &["CONFIG SET appendfsync always", "or set `?durability=process`"],
        never: &[LATER],
    };
    row.check(&place);
    // With `durability=process`, the store is accepted.
    let accepted = place.run(&[NEXT, &["--store", &format!("redis://{at}?durability=process")]].concat());
    assert_eq!((accepted.code, accepted.ids()), (0, vec![1]), "{accepted:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd() {
    let _one = ONE.lock().await;
    let Some(engine) = Engine::start("etcd").await else { return };
    let (place, at) = (Place::new(), engine.address());
    for row in [
        Row {
            cause: "TLS to a plain port",
            store: format!("etcd://{at}?tls=true&timeout=10s"),
            args: NEXT,
            code: 75,
            says: &["cannot reach etcd", "if the server does not use TLS"],
            never: &[],
        },
        Row {
            cause: "Redis's URL at etcd's port",
            store: format!("redis://{at}?timeout=10s"),
            args: NEXT,
            code: 75,
            says: &["check that this is the address of a Redis server"],
            never: &[],
        },
    ] {
        row.check(&place);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn mongodb() {
    let _one = ONE.lock().await;
    let Some(engine) = Engine::start("ferretdb").await else { return };
    let (place, at) = (Place::new(), engine.address());
    let row = Row {
        cause: "TLS to a plain port",
        store: format!("mongodb://{at}/ids?tls=true&timeout=2s&directConnection=true"),
        args: NEXT,
        code: 75,
        says: &[&at.to_string(), "`tls=true` only if the servers use TLS"],
        never: &["Topology"],
    };
    row.check(&place);
    engine.kill();
    let row = Row {
        cause: "no server listens",
        store: format!("mongodb://{at}/ids?timeout=2s&directConnection=true"),
        args: NEXT,
        code: 75,
        says: &[&format!("{at} (I/O error: Connection refused")],
        never: &["Topology", "labels"],
    };
    row.check(&place);
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres() {
    let _one = ONE.lock().await;
    let Some(engine) = Engine::start("postgres").await else { return };
    let (place, at) = (Place::new(), engine.address());
    let root = format!("postgres://postgres@{at}/postgres");
    assert_eq!(place.run(&["next", "orders", "--store", &root]).ids(), [1]);
    let client = root.parse::<PostgresOptions>().unwrap().client().await.unwrap();
    let setup = "CREATE ROLE reader LOGIN; ALTER ROLE reader SET default_transaction_read_only = on;
                 CREATE ROLE app LOGIN; GRANT ALL ON idmill_sequences TO app, reader;
                 ALTER TABLE idmill_sequences ENABLE ROW LEVEL SECURITY;
                 CREATE POLICY adds ON idmill_sequences FOR INSERT WITH CHECK (true);
                 CREATE POLICY reads ON idmill_sequences TO reader USING (true) WITH CHECK (true)";
    client.batch_execute(setup).await.unwrap();
    for row in [
        Row {
            cause: "transactions that are read-only",
            store: format!("postgres://reader@{at}/postgres?mode=rw"),
            args: NEXT,
            code: 1,
            says: &["25006", "`default_transaction_read_only` is on for this user", "turn it off"],
            never: &["the server is a standby or read-only", LATER],
        },
        Row {
            cause: "row-level security that refuses the row",
            store: format!("postgres://app@{at}/postgres?mode=rw"),
            args: NEXT,
            code: 1,
            says: &["row-level security may hide rows", "BYPASSRLS"],
            never: &["grant the user USAGE", LATER],
        },
    ] {
        row.check(&place);
    }
    client.batch_execute("CREATE POLICY sees ON idmill_sequences FOR SELECT USING (true)").await.unwrap();
    let row = Row {
        cause: "row-level security that allows reading the row, not changing it",
        store: format!("postgres://app@{at}/postgres?mode=rw"),
        args: NEXT,
        code: 1,
        says: &["row-level security or a rule hides the row from UPDATE"],
        never: &[LATER, "other processes changed the sequence"],
    };
    row.check(&place);
    client.batch_execute("DROP TABLE idmill_sequences").await.unwrap();
    let row = Row {
        cause: "a table that is missing",
        store: format!("{root}?mode=rw"),
        args: NEXT,
        code: 4,
        says: &["correct its name or restore it"],
        never: &[LATER],
    };
    row.check(&place);
}
