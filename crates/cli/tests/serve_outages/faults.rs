//! Eight faults of PostgreSQL, and a server for each.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;

use idmill_conformance::Proxy;
use idmill_postgres::PostgresOptions;
use idmill_postgres::driver::Client;
use idmill_testing::engines::Engine;
use idmill_testing::fleet::Server;
use tokio::task::block_in_place;

use crate::common::Place;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Stopped,
    Refused,
    Hanging,
    ReadOnly,
    Revoked,
    DiskFull,
    RowLocked,
    Exhausted,
}

impl Fault {
    pub(crate) const ALL: [Self; 8] = [
        Self::Stopped,
        Self::Refused,
        Self::Hanging,
        Self::ReadOnly,
        Self::Revoked,
        Self::DiskFull,
        Self::RowLocked,
        Self::Exhausted,
    ];

    /// The name, which is also the database.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Refused => "refused",
            Self::Hanging => "hanging",
            Self::ReadOnly => "read_only",
            Self::Revoked => "revoked",
            Self::DiskFull => "disk_full",
            Self::RowLocked => "row_locked",
            Self::Exhausted => "exhausted",
        }
    }

    /// Whether the fault concerns the sequence `busy` only.
    pub(crate) fn is_of_one_sequence(self) -> bool {
        matches!(self, Self::RowLocked | Self::Exhausted)
    }

    /// Whether PostgreSQL still answers reads of every sequence.
    pub(crate) fn leaves_reads(self) -> bool {
        !matches!(self, Self::Stopped | Self::Refused | Self::Hanging)
    }

    /// Whether the fault affects the whole engine, so that no other server may use this engine.
    fn needs_an_engine(self) -> bool {
        matches!(self, Self::Stopped | Self::Hanging)
    }
}

/// A server with two sequences in its own database, and the fault of this database.
pub(crate) struct Case {
    pub(crate) fault: Fault,
    pub(crate) server: Server,
    engine: Arc<Engine>,
    proxy: Proxy,
    /// The session that has locked a row.
    lock: Option<Client>,
    _place: Place,
}

impl Case {
    /// Starts a server for each fault. Returns `None` if PostgreSQL is not available.
    pub(crate) async fn all() -> Option<Vec<Self>> {
        let (shared, mut cases) = (Arc::new(engine().await?), Vec::new());
        for fault in Fault::ALL {
            let own = fault.needs_an_engine();
            let engine = if own { Arc::new(engine().await?) } else { shared.clone() };
            cases.push(Self::new(fault, engine).await);
        }
        Some(cases)
    }

    async fn new(fault: Fault, engine: Arc<Engine>) -> Self {
        let (place, proxy) = (Place::new(), Proxy::start(engine.address()).await.unwrap());
        let database = fault.name();
        admin(&engine, "postgres").await.batch_execute(&format!("CREATE DATABASE {database}")).await.unwrap();
        let store = format!("postgres://postgres@{}/{database}", engine.address());
        let made = |name: &str| {
            let made = place.run(&["create", &format!("{database}.{name}"), "--store", &store]);
            assert_eq!(made.code, 0, "{made:?}");
        };
        block_in_place(|| ["busy", "calm"].map(made));
        let grant = "GRANT SELECT, INSERT, UPDATE ON idmill_sequences TO app";
        admin(&engine, database).await.batch_execute(grant).await.unwrap();
        let store = format!("postgres://app@{}/{database}", proxy.address());
        let mut command = place.serve(&[]);
        let server = Server::start(command.args(["--timeout=1s", "--store", &store]));
        Self { fault, server, engine, proxy, lock: None, _place: place }
    }

    /// The name of a sequence, which is unique among all servers: alerts have no other label.
    pub(crate) fn sequence(&self, which: usize) -> String {
        format!("{}.{}", self.fault.name(), ["busy", "calm"][which])
    }

    pub(crate) async fn begin(&mut self) {
        match self.fault {
            Fault::Stopped => self.engine.kill(),
            Fault::Refused => self.proxy.refuse(true),
            Fault::Hanging => self.engine.pause(),
            Fault::ReadOnly => self.set_read_only("on").await,
            Fault::Revoked => self.sql("REVOKE UPDATE ON idmill_sequences FROM app").await,
            Fault::DiskFull => self.fill_disk().await,
            Fault::RowLocked => {
                let session = admin(&self.engine, self.fault.name()).await;
                let lock = "BEGIN; SELECT FROM idmill_sequences WHERE name LIKE '%busy' FOR UPDATE";
                session.batch_execute(lock).await.unwrap();
                self.lock = Some(session);
            }
            Fault::Exhausted => self.set_max("next - 1").await,
        }
    }

    pub(crate) async fn end(&mut self) {
        match self.fault {
            Fault::Stopped => self.engine.restart().await,
            Fault::Refused => self.proxy.refuse(false),
            Fault::Hanging => self.engine.resume(),
            Fault::ReadOnly => self.set_read_only("off").await,
            Fault::Revoked => self.sql("GRANT UPDATE ON idmill_sequences TO app").await,
            Fault::DiskFull => self.sql("DROP TRIGGER audit ON idmill_sequences").await,
            Fault::RowLocked => drop(self.lock.take()),
            Fault::Exhausted => self.set_max("9223372036854775807").await,
        }
    }

    async fn sql(&self, statements: &str) {
        admin(&self.engine, self.fault.name()).await.batch_execute(statements).await.unwrap();
    }

    /// The setting is for new sessions, so the server's sessions are ended.
    async fn set_read_only(&self, to: &str) {
        let database = self.fault.name();
        self.sql(&format!(
            "ALTER ROLE app IN DATABASE {database} SET default_transaction_read_only = {to};
             SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app' AND datname = '{database}'"
        ))
        .await;
    }

    async fn set_max(&self, max: &str) {
        self.sql(&format!("UPDATE idmill_sequences SET max = {max} WHERE name LIKE '%busy'")).await;
    }

    /// Makes each update write to a table whose file is `/dev/full`: the kernel rejects each write as on a
    /// full disk, and PostgreSQL reports error 53100. This needs no root, in contrast to a small file system.
    async fn fill_disk(&self) {
        let session = admin(&self.engine, self.fault.name()).await;
        let audit = "CREATE TABLE audit (name text);
            CREATE FUNCTION audit() RETURNS trigger SECURITY DEFINER LANGUAGE plpgsql
            AS $$ BEGIN INSERT INTO audit VALUES (new.name); RETURN NULL; END $$";
        session.batch_execute(audit).await.unwrap();
        let path = session.query_one("SELECT pg_relation_filepath('audit')", &[]).await.unwrap();
        let file = self.engine.dir().join("data").join(path.get::<_, &str>(0));
        fs::remove_file(&file).unwrap();
        symlink("/dev/full", &file).unwrap();
        let trigger =
            "CREATE TRIGGER audit AFTER UPDATE ON idmill_sequences FOR EACH ROW EXECUTE FUNCTION audit()";
        session.batch_execute(trigger).await.unwrap();
    }
}

async fn engine() -> Option<Engine> {
    let engine = Engine::start("postgres").await?;
    admin(&engine, "postgres").await.batch_execute("CREATE ROLE app LOGIN").await.unwrap();
    Some(engine)
}

/// Connects as the superuser, past the proxy.
async fn admin(engine: &Engine, database: &str) -> Client {
    let url = format!("postgres://postgres@{}/{database}", engine.address());
    PostgresOptions::parse(&url).unwrap().client().await.unwrap()
}
