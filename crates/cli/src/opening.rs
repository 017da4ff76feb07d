//! Selects and opens the store of a command.

use std::path::absolute;
use std::sync::Arc;
use std::time::Duration;

use idmill::store::{Durability, Store};
use idmill::{Error, SequenceName};
use idmill_sqlite::SqliteOptions;
use idmill_url::StoreUrl;
use tempfile::TempDir;

use crate::args::{Global, boolean, of_sequence};
use crate::error::{CliError, Outcome, quoted};
use crate::retrying::{Effect, Retrying, after, retry, until};
use crate::{output, suggest};

const VARIABLE: &str = "IDMILL_STORE";
const GUARD: &str = "IDMILL_GUARD";
const EXISTING: &str = "IDMILL_EXISTING";
const CHECK: &str = "IDMILL_CHECK";
const DEFAULT: &str = "sqlite:idmill.db";

/// Opens the store for a command that draws ids or creates a sequence. A missing store is created, and a note
/// on stderr reports a new file. This and the calls of the store are retried.
pub(crate) async fn create(global: &Global, within: Duration) -> Outcome<Arc<dyn Store>> {
    creating(global, async |url| retried(global, url, within).await).await
}

/// Opens the store for a server, which is created if it is missing. Only this is retried.
#[cfg(feature = "serve")]
pub(crate) async fn to_serve(global: &Global, within: Duration) -> Outcome<Arc<dyn Store>> {
    let report = |error: &Error| tracing::warn!("the store is unreachable; retrying for {within:?}: {error}");
    creating(global, async |url| lasting(url, within, report).await).await
}

/// Opens the store for a command that reads or changes it. Does not create the store. This and the calls of
/// the store are retried.
pub(crate) async fn existing(global: &Global, within: Duration) -> Outcome<Arc<dyn Store>> {
    retried(global, &url(global)?.existing(), within).await
}

/// Opens the store for draws from existing sequences. Neither the store nor a sequence is created.
pub(crate) async fn existing_sequences(global: &Global, within: Duration) -> Outcome<Arc<dyn Store>> {
    retried(global, &url(global)?.existing_sequences(), within).await
}

/// Opens the store for a command that checks it, and reports each error.
pub(crate) async fn unretried(global: &Global, within: Duration) -> Outcome<Arc<dyn Store>> {
    let url = url(global)?.existing();
    must_last(&url, url.connect_within(within).await?)
}

/// Returns whether sequences must exist: from the flag, or else from the environment.
pub(crate) fn requires_existing(flag: bool) -> Outcome<bool> {
    let Some(value) = std::env::var_os(EXISTING).filter(|_| !flag) else { return Ok(flag) };
    let read = value.to_str().ok_or_else(String::new).and_then(boolean);
    read.map_err(|_| {
        CliError::usage(format!("`{EXISTING}={}` is unknown; use `true` or `false`", value.display()))
    })
}

/// A store for measurements.
pub(crate) struct Measured {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) url: StoreUrl,
    /// The URL with its password, which must not be shown.
    pub(crate) given: String,
    pub(crate) description: String,
    /// The directory of a temporary store, which is deleted on drop.
    _directory: Option<TempDir>,
}

impl Measured {
    /// Opens the store to measure. `--guard` is ignored. The environment is ignored too, so that a shared
    /// store is written to only if it is given explicitly.
    pub(crate) async fn open(global: &Global, sequence: &str) -> Outcome<Self> {
        if let Some(given) = &global.store {
            let (url, given) = (global.schemes.parse(given)?, given.clone());
            let description =
                format!("measuring with the sequence `{sequence}` of {url}; the sequence is not removed");
            return Ok(Self { store: url.connect().await?, url, given, description, _directory: None });
        }
        let failed = |error| CliError::io("a directory for the temporary store cannot be created", &error);
        let directory = tempfile::Builder::new().prefix("idmill-bench-").tempdir().map_err(failed)?;
        let file = SqliteOptions::new(directory.path().join("bench.db"));
        let given = file.to_string();
        let url = global.schemes.parse(&given)?;
        let description = format!("measuring in {url}, a temporary store; `--store` selects another");
        Ok(Self { store: url.connect().await?, url, given, description, _directory: Some(directory) })
    }
}

/// Returns the store and its witness: each from its flag, or else from the environment. The default is a file
/// in the working directory, without a witness.
pub(crate) fn url(global: &Global) -> Outcome<StoreUrl> {
    let parse = |url: &str| global.schemes.parse(url).map_err(|error| misspelled(global, url, error));
    let store = match &global.store {
        Some(url) => parse(url)?,
        None => by_environment(VARIABLE, parse)?.map_or_else(|| parse(DEFAULT), Ok)?,
    };
    let witness = match &global.guard {
        Some(url) => Some(global.schemes.witness(url)?),
        // A guard in the store's URL takes precedence over the environment.
        None if store.guard().is_some() => None,
        None => by_environment(GUARD, |url| Ok(global.schemes.witness(url)?))?,
    };
    Ok(match witness {
        Some(witness) => store.guarded(witness)?,
        None => store,
    })
}

/// Returns the columns of `--check`, or else of the environment, which has one on each line.
pub(crate) fn columns(flags: &[(SequenceName, String)]) -> Outcome<Vec<(SequenceName, String)>> {
    if !flags.is_empty() {
        return Ok(flags.to_vec());
    }
    let lines = |text: &str| {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        lines.map(|line| of_sequence(line).map_err(CliError::usage)).collect()
    };
    Ok(by_environment(CHECK, lines)?.unwrap_or_default())
}

/// Returns `global` with the store and the witness of a file, unless a flag or the environment sets them.
#[cfg(feature = "serve")]
pub(crate) fn with(global: &Global, store: Option<String>, guard: Option<String>) -> Global {
    let unset = |variable| std::env::var_os(variable).is_none();
    let mut global = global.clone();
    global.store = global.store.or_else(|| store.filter(|_| unset(VARIABLE)));
    global.guard = global.guard.or_else(|| guard.filter(|_| unset(GUARD)));
    global
}

/// Parses an environment variable; `None` if it is unset. An empty variable is rejected: the value that a
/// deployment should have set is missing, and the process would run without a guard or in another store.
fn by_environment<T>(variable: &str, parse: impl FnOnce(&str) -> Outcome<T>) -> Outcome<Option<T>> {
    let Some(value) = std::env::var_os(variable) else { return Ok(None) };
    if value.is_empty() {
        return Err(CliError::usage(format!("{variable} is empty; set it to a URL, or unset it")));
    }
    // The error omits the value, which may hold a password.
    let url = value.into_string().map_err(|_| CliError::usage(format!("{variable} is not UTF-8")))?;
    let parsed = parse(&url);
    let parsed =
        parsed.map_err(|error| error.hint(format!("the URL comes from the environment variable {variable}")));
    parsed.map(Some)
}

/// Adds a hint with the scheme that an unknown scheme may mean.
fn misspelled(global: &Global, url: &str, error: idmill::Error) -> CliError {
    let error = CliError::from(error);
    let unknown = url.split(':').next().filter(|scheme| global.schemes.names().all(|name| name != *scheme));
    match unknown.and_then(|scheme| suggest::choose(scheme, global.schemes.names())) {
        Some(near) => error.hint(format!("did you mean `{near}:`?")),
        None => error,
    }
}

/// Opens a store with `open`, and reports a new file.
async fn creating(
    global: &Global,
    open: impl AsyncFnOnce(&StoreUrl) -> Outcome<Arc<dyn Store>>,
) -> Outcome<Arc<dyn Store>> {
    let url = url(global)?;
    let missing = url.file().filter(|file| !file.exists()).map(ToOwned::to_owned);
    let store = open(&url).await?;
    if let Some(file) = missing {
        let place = absolute(&file).unwrap_or(file);
        output::note(global.json, &format!("created the store {url} ({})", place.display()));
    }
    Ok(store)
}

/// Opens a store, and returns it with retries of its calls: the first within the time that is left.
async fn retried(global: &Global, url: &StoreUrl, within: Duration) -> Outcome<Arc<dyn Store>> {
    let end = after(within);
    let report = |error: &Error| {
        output::note(global.json, &format!("the store is unreachable; retrying for {within:?}: {error}"));
    };
    let store = lasting(url, within, report).await?;
    Ok(Retrying::of(store, within, end))
}

async fn lasting(url: &StoreUrl, within: Duration, report: impl FnOnce(&Error)) -> Outcome<Arc<dyn Store>> {
    let end = after(within);
    // Each attempt may take the time that is left.
    let store = retry(Effect::Idempotent, end, report, || url.connect_within(until(end))).await?;
    must_last(url, store)
}

/// Rejects a store whose sequences end with this process.
fn must_last(url: &StoreUrl, store: Arc<dyn Store>) -> Outcome<Arc<dyn Store>> {
    // A store on a server is accepted: `durability=process` in its URL confirms that the loss is intended.
    if url.scheme() == "memory" && store.capabilities().durability == Durability::Process {
        let message = format!(
            "{url} loses its sequences when this process ends: the next process would repeat every id"
        );
        return Err(
            CliError::usage(message).hint(format!("set `--store` to a durable store, such as `{DEFAULT}`"))
        );
    }
    Ok(store)
}

/// Returns the flags that make a command use the same store and witness. The result is empty if both come
/// from the environment.
pub(crate) fn flags(global: &Global) -> String {
    // Passwords are redacted, so you may have to add them to the printed flags.
    let store = global.store.as_deref().and_then(|url| Some(global.schemes.parse(url).ok()?.to_string()));
    let guard = global.guard.as_deref().and_then(|url| Some(global.schemes.witness(url).ok()?.to_string()));
    let flag = |name: &str, url: Option<String>| {
        url.map(|url| format!(" --{name} {}", quoted(&url))).unwrap_or_default()
    };
    flag("store", store) + &flag("guard", guard)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use idmill::store::{Capabilities, MemoryStore};
    use idmill_testing::hooked::{Hooked, Hooks};

    use super::*;
    use crate::args::Cli;

    fn global(flags: &[&str]) -> Global {
        let global = Cli::parse_from([&["idmill", "list"], flags].concat()).global;
        Global { schemes: idmill_any::schemes().clone(), ..global }
    }

    /// A store that claims to keep its sequences.
    #[derive(Debug)]
    struct Lasting(MemoryStore);

    impl Hooks for Lasting {
        fn inner(&self) -> &dyn Store {
            &self.0
        }

        fn capabilities(&self) -> Capabilities {
            Capabilities::new(Durability::Disk)
        }
    }

    #[test]
    fn only_memory_that_ends_with_the_process_is_refused() {
        let schemes = global(&[]).schemes;
        let [memory, server] = ["memory:", "sqlite:ids.db"].map(|url| schemes.parse(url).unwrap());
        let (ends, lasts) = (Arc::new(MemoryStore::new()), Arc::new(Hooked(Lasting(MemoryStore::new()))));
        assert!(must_last(&server, ends.clone()).is_ok());
        assert!(must_last(&memory, lasts.clone()).is_ok() && must_last(&server, lasts).is_ok());
        let refused = must_last(&memory, ends).err().unwrap();
        let message =
            "memory: loses its sequences when this process ends: the next process would repeat every id";
        assert_eq!(refused.message(), message);
    }

    #[test]
    fn flags_of_a_command_are_printed_for_a_shell() {
        let none = global(&[]);
        let store = global(&["--store", "sqlite:a b.db"]);
        let guard = global(&["--guard", "file:it's"]);
        let both = global(&["--store", "sqlite:ids.db?table=t", "--guard", "file:w"]);
        let wrong = global(&["--store", "nonsense", "--guard", "nonsense"]);
        assert_eq!(
            [none, store, guard, both, wrong].map(|global| flags(&global)),
            [
                "",
                " --store sqlite:a%20b.db",
                r" --guard 'file:it'\''s'",
                " --store 'sqlite:ids.db?table=t' --guard file:w",
                "",
            ]
        );
    }

    #[test]
    fn given_columns_are_taken_as_they_are() {
        let given = [("s".parse().unwrap(), "sqlite:a.db?column=t.id".to_owned())];
        assert_eq!(columns(&given).unwrap(), given);
    }

    #[tokio::test]
    async fn description_of_a_measured_store_names_it() {
        let named = Measured::open(&global(&["--store", "memory:"]), "seq").await.unwrap();
        assert_eq!(
            named.description,
            "measuring with the sequence `seq` of memory:; the sequence is not removed"
        );
        assert_eq!((named.given.as_str(), named.url.scheme()), ("memory:", "memory"));
        let temporary = Measured::open(&global(&[]), "seq").await.unwrap();
        let description =
            format!("measuring in {}, a temporary store; `--store` selects another", temporary.url);
        assert_eq!(temporary.description, description);
        let directory = temporary.url.file().unwrap().parent().unwrap().to_owned();
        assert!(temporary.given.contains(directory.to_str().unwrap()) && directory.exists());
        drop(temporary);
        assert!(!directory.exists());
    }
}
