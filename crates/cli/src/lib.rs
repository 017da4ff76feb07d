//! The `idmill` command: ids from the store you already run.
//!
//! The crate is a library, so that you can build the command with a store of your own:
//!
//! ```ignore
//! fn main() -> std::process::ExitCode {
//!     idmill_cli::main(toy_store::SCHEMES)
//! }
//! ```

#![warn(clippy::print_stdout, clippy::print_stderr)] // they panic if the stream cannot be written

mod args;
mod commands;
mod error;
mod exported;
mod formatted;
mod input;
mod logging;
mod measuring;
mod opening;
mod output;
mod planning;
mod retrying;
mod suggest;

use std::future::pending;
use std::process::ExitCode;
use std::time::Duration;

use idmill_kit::Scheme;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Mutex;

use crate::args::Cli;
use crate::error::{CliError, Outcome};

/// How long a command may take to end after a signal. A write to a stalled pipe never ends.
const GRACE: Duration = Duration::from_millis(250);

/// How long an uninterruptible change may take after a signal.
const UNBROKEN: Duration = Duration::from_secs(5);
/// Held during an uninterruptible change.
static WRITING: Mutex<()> = Mutex::const_new(());

/// Runs `work`. A signal during `work` takes effect when `work` ends, or after [`UNBROKEN`].
pub(crate) async fn unbroken<T>(work: impl Future<Output = T>) -> T {
    let _held = WRITING.lock().await;
    work.await
}

/// Runs the command with the arguments of this process. Supports the compiled-in stores and `stores`.
pub fn main(stores: &[Scheme]) -> ExitCode {
    let schemes = idmill_any::schemes().clone().with(stores);
    let mut cli = match Cli::read(schemes.as_ref().unwrap_or(idmill_any::schemes())) {
        Ok(cli) => cli,
        Err(error) => return error::usage(error),
    };
    let json = cli.global.json;
    output::set_quiet(cli.global.quiet);
    if !cli.command.serves() {
        logging::start(&cli.global);
    }
    let outcome = schemes.map_err(CliError::from).and_then(|schemes| {
        cli.global.schemes = schemes;
        error::set_place(opening::flags(&cli.global));
        // The main thread handles signals in a runtime of its own, so that the command may block its workers,
        // as in a read of stdin or a write to a stalled pipe.
        let main = built(&mut Builder::new_current_thread())?;
        let workers = workers(cli.command.serves())?;
        let outcome = main.block_on(until_done_or_told(cli, workers.handle()));
        // Do not wait for a busy database, because its answer is no longer needed.
        workers.shutdown_background();
        outcome
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.report(json),
    }
}

/// Creates the runtime of the command. A command that is not a server needs only one worker.
fn workers(serves: bool) -> Outcome<Runtime> {
    let mut workers = Builder::new_multi_thread();
    if !serves {
        workers.worker_threads(1);
    }
    built(&mut workers)
}

fn built(runtime: &mut Builder) -> Outcome<Runtime> {
    runtime.enable_all().build().map_err(|error| CliError::io("threads cannot be started", &error))
}

async fn until_done_or_told(cli: Cli, workers: &Handle) -> Outcome {
    let (handles_signals, so) = (cli.command.serves(), cli.command.when_stopped());
    let mut command = workers.spawn(commands::run(cli));
    let stopped = tokio::select! {
        outcome = &mut command => {
            return outcome.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
        }
        // Do not use `, if !handles_signals`: `select!` would still call `signalled`, whose handlers would
        // swallow the signals.
        stopped = async { if handles_signals { pending().await } else { signalled().await } } => stopped,
    };
    let _unbroken = tokio::time::timeout(UNBROKEN, WRITING.lock()).await;
    command.abort();
    // The process then ends, even if the command has not ended.
    let _ = tokio::time::timeout(GRACE, command).await;
    commands::last_verdict().unwrap_or_else(|| Err(stopped.so(so)))
}

/// Waits for a signal to end the process. The handler is installed by this call, not by the first poll.
#[cfg(unix)]
fn signalled() -> impl Future<Output = CliError> {
    use tokio::signal::unix::{SignalKind, signal};

    let heard = signal(SignalKind::interrupt())
        .and_then(|interrupt| signal(SignalKind::terminate()).map(|terminate| (interrupt, terminate)));
    async {
        let Ok((mut interrupt, mut terminate)) = heard else {
            // Without a handler, signals end the process immediately.
            return pending().await;
        };
        tokio::select! {
            _ = interrupt.recv() => CliError::signal("interrupted", 130),
            _ = terminate.recv() => CliError::signal("terminated", 143),
        }
    }
}

#[cfg(not(unix))]
async fn signalled() -> CliError {
    match tokio::signal::ctrl_c().await {
        Ok(()) => CliError::signal("interrupted", 130),
        Err(_) => std::future::pending().await,
    }
}
