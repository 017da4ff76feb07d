//! Runs suites: the command line, one trial after the other, the report.

use std::path::PathBuf;
use std::process::exit;
use std::sync::Arc;
use std::time::{Duration, Instant};

use idmill::store::{Bounds, Capabilities, Reserve};
use idmill::{ErrorKind, SequenceName};
use tokio::time::timeout;

use super::client::Client;
use super::context::Context;
use super::dir::Dir;
use super::ledger::Ledger;
use super::order;
use super::outcome::{Outcome, Stop, panicked};
use super::report::{Report, Verdict};
use super::setup::Setup;
use super::suite::Suite;
use super::trials::{Trial, trials};
use super::worker;

const SEED: &str = "IDMILL_CONFORMANCE_SEED";

const USAGE: &str = "\
[STORE…] [WORD…] [--list]

  STORE   run the suites of these stores; `all` for every store
  WORD    run only trials whose names contain one of these words
  --list  list the stores, and the trials with what each proves

IDMILL_CONFORMANCE_SEED repeats a random run; IDMILL_CI_REPORT names a file to which results are appended.
";

/// [`Suite::main`] for several suites in one executable. Arguments select suites by name, and `all` selects
/// all of them. Without a name, a single suite runs; if there are several, none runs and their names are
/// printed.
pub fn main(suites: impl IntoIterator<Item = Suite>) -> ! {
    let mut suites: Vec<_> = suites.into_iter().collect();
    if let Some(order) = order::of_this_process() {
        let Some(suite) = suites.into_iter().find(|suite| suite.name() == order.suite) else {
            panic!("this program has no suite {:?}", order.suite)
        };
        worker::serve(&suite.setup, &order)
    }
    let (mut chosen, mut words) = (Vec::new(), Vec::new());
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--list" => {
                list(&suites);
                exit(0)
            }
            "--help" | "-h" => {
                println!("{USAGE}");
                exit(0)
            }
            // `cargo test -- …` passes these options to every test of a workspace.
            "--nocapture" | "--exact" | "-q" | "--quiet" | "--show-output" => {}
            other if other.starts_with("--test-threads") => {}
            other if other.starts_with('-') => {
                eprintln!("unknown option {other}\n{USAGE}");
                exit(2)
            }
            "all" => chosen.extend(suites.iter().map(|suite| suite.name().to_owned())),
            name if suites.iter().any(|suite| suite.name() == name) => chosen.push(argument),
            _ => words.push(argument),
        }
    }
    // A single suite always runs. Several suites run only if named, because most need an engine.
    if chosen.is_empty() && suites.len() > 1 {
        let names: Vec<_> = suites.iter().map(Suite::name).collect();
        println!("skipped: no suite was named; name one or more of {}, or `all`", names.join(", "));
        exit(0)
    }
    suites.retain(|suite| chosen.is_empty() || chosen.iter().any(|name| name == suite.name()));
    exit(i32::from(!run_all(suites, &words)))
}

/// Whether at least one trial was selected, and none failed.
fn run_all(suites: Vec<Suite>, words: &[String]) -> bool {
    let mut reports = Vec::new();
    for mut suite in suites {
        suite.filters.extend(words.iter().cloned());
        let report = suite.run();
        report.hand_in();
        reports.push(report);
    }
    println!();
    for report in &reports {
        println!("{report}");
    }
    if reports.iter().all(|report| report.trials.is_empty()) {
        println!("FAILED: no trial's name contains any of the words {words:?}; see --list");
        return false;
    }
    reports.iter().all(|report| report.failed().is_empty())
}

fn list(suites: &[Suite]) {
    let names: Vec<_> = suites.iter().map(Suite::name).collect();
    println!("stores: {}\n", names.join(" "));
    for trial in trials() {
        println!("{:<28} {}", trial.name(), trial.promise());
    }
}

impl Suite {
    /// Runs the suite, and prints a line for each trial.
    ///
    /// If this process was started as a worker of a suite with this name, does the work instead and never
    /// returns.
    ///
    /// # Panics
    /// If called from within an async runtime.
    pub fn run(self) -> Report {
        run(self)
    }

    /// A complete `main` for a test with `harness = false`: reads the command line, [runs](Self::run), and
    /// exits with status 1 if a trial failed.
    pub fn main(self) -> ! {
        main([self])
    }
}

fn run(suite: Suite) -> Report {
    if let Some(order) = order::of_this_process().filter(|order| order.suite == suite.setup.name) {
        worker::serve(&suite.setup, &order)
    }
    let seed = suite.seed.or_else(seed_from_environment).unwrap_or_else(|| fastrand::u64(..));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build();
    let runtime = runtime.expect("threads for the suite");
    println!("\n{}: {SEED}={seed}", suite.setup.name);
    let report = runtime.block_on(async {
        let dir = Dir::new();
        let report = Run { setup: Arc::new(suite.setup), dir: dir.0.clone(), filters: suite.filters, seed };
        report.run().await
    });
    // Do not wait long for a task that hangs: its trial has already failed.
    runtime.shutdown_timeout(Duration::from_secs(1));
    report
}

fn seed_from_environment() -> Option<u64> {
    let text = std::env::var(SEED).ok()?;
    Some(text.parse().unwrap_or_else(|error| panic!("{SEED}={text:?}: {error}")))
}

struct Run {
    setup: Arc<Setup>,
    dir: PathBuf,
    filters: Vec<String>,
    seed: u64,
}

impl Run {
    async fn run(mut self) -> Report {
        let mut report = Report {
            store: self.setup.name.clone(),
            engine: "embedded".to_owned(),
            trials: Vec::new(),
            seed: self.seed,
        };
        let capabilities = self.begin(&mut report.engine).await;
        for trial in trials() {
            if !self.filters.is_empty()
                && !self.filters.iter().any(|word| trial.name().contains(word.as_str()))
            {
                continue;
            }
            let began = Instant::now();
            let verdict = match &capabilities {
                Ok(capabilities) => self.verdict(trial, *capabilities).await,
                Err(Stop::Failed(reason)) => Verdict::Failed(reason.clone()),
                Err(Stop::Skipped(reason)) => Verdict::Skipped(reason.clone()),
            };
            let took = began.elapsed();
            println!("{:<28} {:>6.1} s  {verdict}", trial.name(), took.as_secs_f64());
            report.trials.push((trial.name(), verdict, took));
        }
        if let Some(engine) = &self.setup.engine {
            engine.kill();
        }
        report
    }

    /// Starts the engine, and returns the capabilities of a client.
    async fn begin(&mut self, version: &mut String) -> Outcome<Capabilities> {
        if let Some(engine) = &self.setup.engine {
            engine.name().clone_into(version);
            engine.start().await.map_err(|error| match error.kind() {
                ErrorKind::Unsupported if !in_ci() => Stop::Skipped(error.to_string()),
                _ => Stop::Failed(format!("the engine did not start: {error}")),
            })?;
            format!("{} {}", engine.name(), engine.version()).trim().clone_into(version);
        }
        let client = self.setup.connect(self.setup.endpoint(self.dir.clone(), false)).await?;
        let slowest = slowest_reserve(&client).await?;
        let setup = Arc::get_mut(&mut self.setup).expect("no trial has begun");
        let scaled = setup.timeouts.scaled(slowest);
        if scaled.pause > setup.timeouts.pause {
            println!("a reserve takes up to {slowest:.1?}, so pauses are extended to {:.1?}", scaled.pause);
        }
        setup.timeouts = scaled;
        Ok(client.capabilities())
    }

    async fn verdict(&self, trial: &'static Trial, capabilities: Capabilities) -> Verdict {
        let skip = self.setup.skips.iter().find(|(name, _)| name == trial.name());
        if let Some(reason) =
            skip.map(|(_, reason)| reason.clone()).or_else(|| trial.obstacle(&self.setup, capabilities))
        {
            return Verdict::Skipped(reason);
        }
        match self.attempt(trial).await {
            Ok(()) => Verdict::Passed,
            Err(Stop::Failed(reason)) => Verdict::Failed(reason),
            Err(Stop::Skipped(reason)) => Verdict::Skipped(reason),
        }
    }

    async fn attempt(&self, trial: &'static Trial) -> Outcome {
        if let Some(engine) = &self.setup.engine {
            // The previous trial may have failed and left the engine in any state.
            engine.resume();
            engine.start().await?;
        }
        let context = Arc::new(Context::new(
            self.setup.clone(),
            self.dir.clone(),
            trial.name(),
            trial.needs_a_short_timeout(),
            self.seed,
        ));
        // Run the trial in a task, so that a panic is reported as a failure.
        let mut running = tokio::spawn(trial.run(context.clone()));
        let limit = self.setup.timeouts.trial;
        let outcome = match timeout(limit, &mut running).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(error)) => Err(Stop::Failed(panicked(error))),
            Err(_) => {
                running.abort();
                Err(Stop::Failed(format!("not done within {limit:?}")))
            }
        };
        context.clean_up().await;
        outcome
    }
}

/// Measures the slowest of a few reserves, after the first one, which creates the sequence.
async fn slowest_reserve(client: &Client) -> Outcome<Duration> {
    const TIMES: u32 = 8;
    let name = SequenceName::new(&format!("machine-{:08x}", fastrand::u32(..))).expect("a legal name");
    let create = Bounds::new(1, 1_000_000).expect("at least one id");
    let request = Reserve::new(name, 1).create(create);
    let (ledger, mut slowest) = (Ledger::default(), Duration::ZERO);
    client.granted(&ledger, &request).await?;
    for _ in 0..TIMES {
        let began = Instant::now();
        client.granted(&ledger, &request).await?;
        slowest = slowest.max(began.elapsed());
    }
    client.remove(&request.name).await??;
    Ok(slowest)
}

fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true")
}
