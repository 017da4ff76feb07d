//! The suite on MariaDB.

use std::sync::Arc;

use idmill::store::Store;
use idmill_conformance::{Endpoint, Suite};
use idmill_mysql::MysqlStore;
use idmill_testing::engines::OnDemand;

fn suite() -> Suite {
    Suite::new("mysql", |endpoint: Endpoint| async move {
        let url =
            format!("mysql://root@{}/ids?timeout={}ms", endpoint.address(), endpoint.timeout().as_millis());
        let store: Arc<dyn Store> = Arc::new(MysqlStore::open(&url).await?);
        Ok(store)
    })
    .engine(OnDemand::new("mariadb"))
}

fn main() {
    idmill_conformance::main([suite()])
}
