//! Explores the models, and plants one known bug after the other: each must break a promise.

mod cache;
mod checks;
mod datacenter;
mod era;
mod explore;
mod fenced;
mod guard;
mod paxos;
mod promises;
mod shelf;
mod specimen;

use std::collections::VecDeque;
use std::process::ExitCode;
use std::thread;

use checks::Check;
use explore::Verdict;
use parking_lot::Mutex;

fn main() -> ExitCode {
    let only: Vec<String> = std::env::args().skip(1).collect();
    let chosen =
        |check: &Check| only.is_empty() || only.iter().any(|part| check.name.contains(part.as_str()));
    let (models, bugs): (Vec<_>, Vec<_>) =
        checks::all().into_iter().filter(chosen).partition(|check| check.word == checks::HOLDS);
    if models.is_empty() && bugs.is_empty() {
        println!("BROKEN: no such model");
        return ExitCode::FAILURE;
    }
    // A model uses all cores. The check of a bug uses one core, to find the shortest trace.
    let failed = models.into_iter().filter(|check| !passes(check)).count() + failures(bugs.into());
    if failed > 0 {
        println!("{failed} failed");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn failures(bugs: VecDeque<Check>) -> usize {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let bugs = Mutex::new(bugs);
    let next = || bugs.lock().pop_front();
    let work = || std::iter::from_fn(next).filter(|check| !passes(check)).count();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().map(|worker| worker.join().expect("a check does not panic")).sum()
    })
}

fn passes(check: &Check) -> bool {
    let verdict: Verdict = (check.run)();
    match &verdict {
        Ok(found) => println!("{} {}: {found}", check.word, check.name),
        Err(fault) => println!("FAILED {}: {fault}", check.name),
    }
    verdict.is_ok()
}
