//! MySQL: MariaDB.

use std::sync::Arc;

use idmill::conformance::{Endpoint, Suite};
use idmill::store::Store;
use idmill::store::mysql::MysqlStore;

use crate::engines::OnDemand;

pub(crate) fn suite() -> Suite {
    Suite::new("mysql", |endpoint: Endpoint| async move {
        let url =
            format!("mysql://root@{}/ids?timeout={}ms", endpoint.address(), endpoint.timeout().as_millis());
        let store: Arc<dyn Store> = Arc::new(MysqlStore::open(&url).await?);
        Ok(store)
    })
    .engine(OnDemand::new("mariadb"))
}
