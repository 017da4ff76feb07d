//! Starts an emulator, and accesses its database directly.

use std::process::Command;

use gcloud_gax::conn::Environment;
use gcloud_googleapis::spanner::admin::database::v1::UpdateDatabaseDdlRequest;
use gcloud_googleapis::spanner::v1::Mutation;
use idmill::store::{Bounds, Reserve, Store as _};
use idmill::{IdRange, SequenceName};
use idmill_conformance::{Daemon, free_port};
use idmill_spanner::gcloud_spanner::admin::AdminClientConfig;
use idmill_spanner::gcloud_spanner::admin::client::Client as AdminClient;
use idmill_spanner::gcloud_spanner::client::{Client, ClientConfig};
use idmill_spanner::gcloud_spanner::statement::Statement;
use idmill_spanner::{SpannerOptions, SpannerStore};
use idmill_testing::engines::Engine;

pub(crate) const DATABASE: &str = "projects/test/instances/test/databases/test";

/// An emulator with a database in which `idmill_sequences` is missing.
pub(crate) struct Emulator {
    daemon: Daemon,
}

impl Emulator {
    pub(crate) async fn start() -> Option<Self> {
        Self::with(&[]).await
    }

    /// Starts the emulator with these flags.
    pub(crate) async fn with(flags: &'static [&'static str]) -> Option<Self> {
        // `Engine::down` only installs the emulator, or reports why that failed.
        Engine::down("spanner")?;
        let port = free_port();
        let daemon = Daemon::new(([127, 0, 0, 1], port).into(), move || {
            let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../ci/engines/spanner"));
            command.arg("serve").arg(std::env::temp_dir()).arg(port.to_string()).args(flags);
            command
        });
        daemon.start().await.unwrap();
        let emulator = Self { daemon };
        // Opening creates the database, and a table that the tests do not use.
        SpannerStore::open_with(emulator.options().table("made_by_opening")).await.unwrap();
        Some(emulator)
    }

    pub(crate) fn daemon(&self) -> &Daemon {
        &self.daemon
    }

    pub(crate) fn address(&self) -> String {
        self.daemon.address().to_string()
    }

    pub(crate) fn options(&self) -> SpannerOptions {
        SpannerOptions::new(DATABASE).emulator(self.address())
    }

    pub(crate) async fn store(&self) -> SpannerStore {
        let store = SpannerStore::open_with(self.options()).await.unwrap();
        // Checked by the trial `rests_are_granted_again`, which a store without give-backs would skip.
        assert!(store.capabilities().gives_back);
        store
    }

    /// Creates a client as a user would.
    pub(crate) async fn client(&self) -> Client {
        client(&self.address(), |_| ()).await
    }

    pub(crate) async fn ddl(&self, statements: &[&str]) {
        let environment = Environment::Emulator(self.address());
        let config = AdminClientConfig { environment, ..AdminClientConfig::default() };
        let admin = AdminClient::new(config).await.unwrap();
        let request = UpdateDatabaseDdlRequest {
            database: DATABASE.to_owned(),
            statements: statements.iter().map(ToString::to_string).collect(),
            ..UpdateDatabaseDdlRequest::default()
        };
        let mut operation = admin.database().update_database_ddl(request, None).await.unwrap();
        operation.wait(None).await.unwrap();
    }

    pub(crate) async fn write(&self, mutations: Vec<Mutation>) {
        self.client().await.apply(mutations).await.unwrap();
    }

    /// Returns the numbers that a query returns.
    pub(crate) async fn numbers(&self, sql: &str) -> Vec<i64> {
        let client = self.client().await;
        let mut tx = client.single().await.unwrap();
        let mut rows = tx.query(Statement::new(sql)).await.unwrap();
        let mut numbers = Vec::new();
        while let Some(row) = rows.next().await.unwrap() {
            numbers.push(row.column(0).unwrap());
        }
        numbers
    }
}

pub(crate) async fn client(address: &str, configure: impl FnOnce(&mut ClientConfig)) -> Client {
    let environment = Environment::Emulator(address.to_owned());
    let mut config = ClientConfig { environment, ..ClientConfig::default() };
    configure(&mut config);
    Client::new(DATABASE, config).await.unwrap()
}

pub(crate) fn name(name: &str) -> SequenceName {
    SequenceName::new(name).unwrap()
}

pub(crate) fn request(sequence: &str, count: u64) -> Reserve {
    Reserve::new(name(sequence), count).create(Bounds::of::<u64>())
}

/// Asserts that the ranges contain each id from `first` on exactly once, in any order.
pub(crate) fn assert_tile(mut ranges: Vec<IdRange>, first: u64) {
    ranges.sort_by_key(IdRange::start);
    let mut expected = u128::from(first);
    for range in ranges {
        assert_eq!(u128::from(range.start()), expected, "a gap or a duplicate id");
        expected = range.end();
    }
}
