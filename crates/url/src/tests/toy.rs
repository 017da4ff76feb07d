//! A store that keeps its ids in this process: `toy:NAME`. Equal names are the same store, and so are names
//! that differ only after a semicolon.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::{Arc, LazyLock};

use idmill::store::{Capabilities, Durability, MemoryStore, SequenceInfo, Store, StoreFuture};
use idmill::{Error, ErrorKind, Result, SequenceName};
use idmill_kit::{Target, WindowTarget, WindowView};
use tokio::sync::Mutex;

/// Every toy store by its name.
static STORES: LazyLock<Mutex<BTreeMap<String, Opened>>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct Opened {
    store: MemoryStore,
    times: usize,
}

/// Returns how many times a store was opened.
pub(super) async fn opened(name: &str) -> usize {
    STORES.lock().await.get(name).map_or(0, |opened| opened.times)
}

/// The URL of a toy store. `server=NAME` names its server, which `not_the_server_of` compares.
#[derive(Clone, Debug)]
pub(super) struct Toy {
    name: String,
    query: Option<String>,
    must_exist: bool,
}

impl FromStr for Toy {
    type Err = Error;

    fn from_str(url: &str) -> Result<Self> {
        let (_, rest) = url.split_once(':').unwrap();
        let (name, query) =
            rest.split_once('?').map_or((rest, None), |(name, query)| (name, Some(query.to_owned())));
        Ok(Self { name: name.to_owned(), query, must_exist: false })
    }
}

impl fmt::Display for Toy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let query = self.query.as_ref().map(|query| format!("?{query}"));
        write!(f, "toy:{}{}", self.name, query.unwrap_or_default())
    }
}

impl Target for Toy {
    idmill_kit::target!(|toy| "toy" => open, existing toy.must_exist = true);

    fn file(&self) -> Option<&Path> {
        self.name.starts_with('/').then(|| Path::new(&self.name))
    }

    fn ddl(&self) -> Result<Option<String>> {
        Ok(Some("CREATE sequences".to_owned()))
    }

    fn witness_ddl(&self) -> Result<Option<String>> {
        Ok(Some("CREATE records".to_owned()))
    }

    fn lookalikes(&self) -> StoreFuture<'_, Result<Option<String>>> {
        Box::pin(async { Ok(Some("another table".to_owned())) })
    }

    fn refused(&self) -> StoreFuture<'_, Result<Vec<(SequenceName, Error)>>> {
        Box::pin(async { Ok(vec![(super::orders(), ErrorKind::Conflict.into())]) })
    }
}

async fn open(toy: Toy) -> Result<Durable> {
    let mut stores = STORES.lock().await;
    let (key, _) = toy.name.split_once(';').unwrap_or((&toy.name, ""));
    if toy.must_exist && !stores.contains_key(key) {
        return Err(Error::new(ErrorKind::NotFound, format!("there is no store {}", toy.name)));
    }
    let opened = stores.entry(key.to_owned()).or_default();
    opened.times += 1;
    let store = opened.store.clone();
    let server = toy.query.as_deref().and_then(|query| query.strip_prefix("server=")).map(ToOwned::to_owned);
    Ok(Durable { store, server })
}

/// Reports the durability that a witness requires.
#[derive(Clone, Debug)]
struct Durable {
    store: MemoryStore,
    server: Option<String>,
}

impl Store for Durable {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = self.store.capabilities();
        capabilities.durability = Durability::Disk;
        capabilities
    }

    fn server(&self) -> StoreFuture<'_, Result<Option<String>>> {
        Box::pin(async { Ok(self.server.clone()) })
    }

    idmill::store_calls!(|this| this.store =>
        reserve create inspect list set remove record swap_record list_records);
}

/// A window that passes every call on.
#[derive(Debug)]
pub(super) struct Cache(String);

impl FromStr for Cache {
    type Err = Error;

    fn from_str(url: &str) -> Result<Self> {
        Ok(Self(url.to_owned()))
    }
}

impl fmt::Display for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl WindowTarget for Cache {
    fn before(&self, store: Arc<dyn Store>) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(Windowed(store)))
    }

    fn view(&self) -> Result<Option<Arc<dyn WindowView>>> {
        Ok(Some(Arc::new(View)))
    }
}

#[derive(Debug)]
struct Windowed(Arc<dyn Store>);

impl Store for Windowed {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities().batches(false)
    }

    idmill::store_calls!(|this| this.0 => reserve create inspect list set remove);
}

#[derive(Debug)]
struct View;

impl WindowView for View {
    fn end<'a>(&'a self, _: &'a SequenceInfo) -> StoreFuture<'a, Result<Option<u128>>> {
        Box::pin(async { Ok(Some(77)) })
    }
}
