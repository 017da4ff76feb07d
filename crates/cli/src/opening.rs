//! Which store a command works on, and how it is opened.

use std::path::absolute;
use std::sync::Arc;
use std::time::Duration;

use idmill::store::{Durability, Store};
use idmill_guard::Witness;
use idmill_kit::CONNECT_TIMEOUT;
use idmill_sqlite::SqliteOptions;
use idmill_url::StoreUrl;
use tempfile::TempDir;

use crate::args::Global;
use crate::failure::{Failure, Outcome, quoted};
use crate::output;

const VARIABLE: &str = "IDMILL_STORE";
const GUARD: &str = "IDMILL_GUARD";
const EXISTING: &str = "IDMILL_EXISTING";
const DEFAULT: &str = "sqlite:idmill.db";

/// Opens the store for a command that hands out ids or makes a sequence: what is
/// missing is created, and said to be.
pub(crate) async fn create(global: &Global, within: Duration) -> Outcome<Arc<dyn Store>> {
    let url = url(global)?;
    let missing = url.file().filter(|file| !file.exists()).map(ToOwned::to_owned);
    let store = lasting(&url, within).await?;
    if let Some(file) = missing {
        let place = absolute(&file).unwrap_or(file);
        output::note(global.json, &format!("created the store {url} ({})", place.display()));
    }
    Ok(store)
}

/// Opens the store for a command that looks at or changes what is there: creates nothing.
pub(crate) async fn existing(global: &Global) -> Outcome<Arc<dyn Store>> {
    lasting(&url(global)?.existing(), CONNECT_TIMEOUT).await
}

/// Opens the store for a command that hands out ids of what there is: nothing is
/// created, neither now nor by a draw.
pub(crate) async fn existing_sequences(global: &Global, within: Duration) -> Outcome<Arc<dyn Store>> {
    lasting(&url(global)?.existing_sequences(), within).await
}

/// Whether ids are to come from sequences that exist only: by the flag, or else the environment.
pub(crate) fn requires_existing(flag: bool) -> Outcome<bool> {
    let value = std::env::var_os(EXISTING).unwrap_or_default();
    match value.to_str().map(str::trim) {
        _ if flag => Ok(true),
        Some("" | "0" | "no" | "false") => Ok(false),
        Some("1" | "yes" | "true") => Ok(true),
        _ => Err(Failure::usage(format!("{EXISTING}={} is unknown; there are true, false", value.display()))),
    }
}

/// A store to measure in.
pub(crate) struct Measured {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) url: StoreUrl,
    /// The URL with any password in it: never to be shown.
    pub(crate) given: String,
    pub(crate) description: String,
    /// Deleted when dropped.
    _directory: Option<TempDir>,
}

impl Measured {
    /// The environment is not looked at: a store that others use is measured, and
    /// written to, by explicit wish only.
    pub(crate) async fn open(global: &Global, sequence: &str) -> Outcome<Self> {
        if let Some(given) = &global.store {
            let (url, given) = (global.schemes.parse(given)?, given.clone());
            let description = format!("measuring the sequence `{sequence}` of {url}, which is left there");
            return Ok(Self { store: url.connect().await?, url, given, description, _directory: None });
        }
        let failed = |error| Failure::io("no directory for a temporary store", &error);
        let directory = tempfile::Builder::new().prefix("idmill-bench-").tempdir().map_err(failed)?;
        let file = SqliteOptions::new(directory.path().join("bench.db"));
        let given = file.to_string();
        let url = global.schemes.parse(&given)?;
        let description = format!("measuring in {url}, a temporary store; --store names another");
        Ok(Self { store: url.connect().await?, url, given, description, _directory: Some(directory) })
    }
}

/// The store, and the witness that guards it, each by its flag, else the environment; else it is a file in
/// the working directory, without a witness.
pub(crate) fn url(global: &Global) -> Outcome<StoreUrl> {
    let parse = |url: &str| global.schemes.parse(url);
    let store = match &global.store {
        Some(url) => parse(url)?,
        None => by_environment(VARIABLE, parse)?.map_or_else(|| parse(DEFAULT), Ok)?,
    };
    let witness = match &global.guard {
        Some(url) => Some(global.schemes.witness(url)?),
        // What the URL itself says goes before.
        None if store.guard().is_some() => None,
        None => by_environment(GUARD, |url| global.schemes.witness(url))?,
    };
    Ok(match witness {
        Some(witness) => store.guarded(witness)?,
        None => store,
    })
}

/// The same, and a store and a witness that a file names, where neither a flag nor the environment does.
#[cfg(feature = "serve")]
pub(crate) fn with(global: &Global, store: Option<String>, guard: Option<String>) -> Global {
    let unset = |variable| std::env::var_os(variable).is_none_or(|value| value.is_empty());
    let mut global = global.clone();
    global.store = global.store.or_else(|| store.filter(|_| unset(VARIABLE)));
    global.guard = global.guard.or_else(|| guard.filter(|_| unset(GUARD)));
    global
}

/// What an environment variable says; `None` if it is not set, or empty.
fn by_environment<T>(variable: &str, parse: impl FnOnce(&str) -> idmill::Result<T>) -> Outcome<Option<T>> {
    let Some(value) = std::env::var_os(variable).filter(|value| !value.is_empty()) else { return Ok(None) };
    // Not echoed: it may hold a password.
    let url = value.into_string().map_err(|_| Failure::usage(format!("{variable} is not UTF-8")))?;
    let parsed = parse(&url).map_err(Failure::from);
    let parsed = parsed
        .map_err(|failure| failure.hint(format!("the URL comes from the environment variable {variable}")));
    parsed.map(Some)
}

async fn lasting(url: &StoreUrl, within: Duration) -> Outcome<Arc<dyn Store>> {
    let store = url.connect_within(within).await?;
    // Of a server, `durability=process` in its URL says that this is known and meant.
    if url.scheme() == "memory" && store.capabilities().durability == Durability::Process {
        let message =
            format!("{url} forgets its sequences with this process: the next one would repeat every id");
        return Err(Failure::usage(message).hint(format!("name a store that lasts, such as {DEFAULT}")));
    }
    Ok(store)
}

/// The witness that guards the store, opened to be looked at; `None` if there is none.
pub(crate) async fn witness(url: &StoreUrl) -> idmill::Result<Option<Arc<dyn Witness>>> {
    match url.guard() {
        Some(witness) => witness.open_existing().await.map(Some),
        None => Ok(None),
    }
}

/// What follows a command for it to be about the same store, guarded by the same witness: nothing where the
/// environment says so.
pub(crate) fn flags(global: &Global) -> String {
    // As they print, without a password: whoever copies the command has to know that.
    let store = global.store.as_deref().and_then(|url| Some(global.schemes.parse(url).ok()?.to_string()));
    let guard = global.guard.as_deref().and_then(|url| Some(global.schemes.witness(url).ok()?.to_string()));
    let flag = |name: &str, url: Option<String>| {
        url.map(|url| format!(" --{name} {}", quoted(&url))).unwrap_or_default()
    };
    flag("store", store) + &flag("guard", guard)
}
