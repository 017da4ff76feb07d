//! Which store a command works on, and how it is opened.

use std::path::absolute;
use std::sync::Arc;

use idmill::store::sqlite::SqliteOptions;
use idmill::store::{Durability, Store, StoreUrl};
use tempfile::TempDir;

use crate::args::Global;
use crate::failure::{Failure, Outcome};
use crate::output;

const VARIABLE: &str = "IDMILL_STORE";
const DEFAULT: &str = "sqlite:idmill.db";

/// Opens the store for a command that hands out ids or makes a sequence: what is missing is created, and said to be.
pub(crate) async fn create(global: &Global) -> Outcome<Arc<dyn Store>> {
    let url = url(global)?;
    let missing = url.file().filter(|file| !file.exists()).map(ToOwned::to_owned);
    let store = lasting(&url).await?;
    if let Some(file) = missing {
        let place = absolute(&file).unwrap_or(file);
        output::note(global.json, &format!("created the store {url} ({})", place.display()));
    }
    Ok(store)
}

/// Opens the store for a command that looks at or changes what is there: creates nothing.
pub(crate) async fn existing(global: &Global) -> Outcome<Arc<dyn Store>> {
    lasting(&url(global)?.existing()).await
}

/// A store to measure in.
pub(crate) struct Measured {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) url: StoreUrl,
    /// The URL with what it hides.
    #[cfg_attr(not(feature = "postgres"), expect(dead_code))]
    pub(crate) given: String,
    pub(crate) description: String,
    /// Deleted when dropped.
    _directory: Option<TempDir>,
}

impl Measured {
    /// The environment is not looked at: a store that others use is measured, and written to, by explicit wish only.
    pub(crate) async fn open(global: &Global, sequence: &str) -> Outcome<Self> {
        if let Some(given) = &global.store {
            let (url, given) = (StoreUrl::parse(given)?, given.clone());
            let description = format!("measuring the sequence `{sequence}` of {url}, which is left there");
            return Ok(Self { store: url.connect().await?, url, given, description, _directory: None });
        }
        let failed = |error| Failure::io("no directory for a temporary store", &error);
        let directory = tempfile::Builder::new().prefix("idmill-bench-").tempdir().map_err(failed)?;
        let file = SqliteOptions::new(directory.path().join("bench.db"));
        let url = StoreUrl::parse(&file.to_string())?;
        let description = format!("measuring in {url}, a temporary store; --store names another");
        let given = url.to_string();
        Ok(Self { store: url.connect().await?, url, given, description, _directory: Some(directory) })
    }
}

/// `--store`, else the environment, else a file in the working directory.
pub(crate) fn url(global: &Global) -> Outcome<StoreUrl> {
    if let Some(url) = &global.store {
        return Ok(StoreUrl::parse(url)?);
    }
    let Some(value) = std::env::var_os(VARIABLE).filter(|value| !value.is_empty()) else {
        return Ok(StoreUrl::parse(DEFAULT)?);
    };
    let not_text =
        |value: std::ffi::OsString| Failure::usage(format!("{VARIABLE} is not UTF-8: {}", value.display()));
    let url = value.into_string().map_err(not_text)?;
    let parsed = StoreUrl::parse(&url).map_err(Failure::from);
    parsed.map_err(|failure| failure.hint(format!("the URL comes from the environment variable {VARIABLE}")))
}

async fn lasting(url: &StoreUrl) -> Outcome<Arc<dyn Store>> {
    let store = url.connect().await?;
    if store.capabilities().durability == Durability::Process {
        let message =
            format!("{url} forgets its sequences with this process: the next one would repeat every id");
        return Err(Failure::usage(message).hint(format!("name a store that lasts, such as {DEFAULT}")));
    }
    Ok(store)
}
