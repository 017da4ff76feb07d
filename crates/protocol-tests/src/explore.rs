//! Runs a protocol through every order of its steps, and fails if these orders had too few states.

use std::fmt::Debug;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};
use std::thread;
use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model, Path, Property};

/// Sorts processes for a canonical state. Any order will do, if it is the same for the same processes.
pub(crate) fn sort_by_hash<T: Hash>(processes: &mut [T]) {
    processes.sort_by_cached_key(|process| BuildHasherDefault::<DefaultHasher>::default().hash_one(process));
}

/// A protocol at a small size, with the events that may happen.
pub(crate) trait Protocol: Send + Sync + 'static {
    /// The whole state: stored rows, the memory of each process, and messages in flight.
    type State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static;
    /// One possible next event.
    type Step: Copy + Debug + PartialEq;

    fn start(&self) -> Self::State;

    /// Lists all possible next events.
    fn steps(&self, state: &Self::State, steps: &mut Vec<Self::Step>);

    /// The state after a step.
    fn after(&self, state: &Self::State, step: Self::Step) -> Self::State;

    /// One representative for all states that differ only in the order of processes, tasks or flights.
    fn canonical(&self, state: Self::State) -> Self::State {
        state
    }

    /// The name of the most important promise that this state breaks.
    fn broken(&self, state: &Self::State) -> Option<&'static str>;
}

/// The fate of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The message is executed immediately, if possible, and the answer arrives.
    Answered,
    /// The message is executed immediately, if possible, and the answer is lost.
    ReplyLost,
    /// There is no answer, and the message may still be executed at any later time.
    OnItsWay,
}

/// The result of a check: a line for the log, or an error.
pub(crate) type Verdict = Result<String, String>;

/// Explores all states. Fails if any breaks a promise, or if there are fewer than `at_least`: a model whose
/// processes never interact proves nothing.
pub(crate) fn holds<P: Protocol>(protocol: P, at_least: usize) -> Verdict {
    let began = Instant::now();
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let explored = Explored { protocol, expected: None };
    let checker = explored.checker().threads(threads).finish_when(HasDiscoveries::Any).spawn_bfs().join();
    if let Some(path) = checker.discovery(PROMISES) {
        let promise = checker.model().protocol.broken(path.last_state()).unwrap_or_default();
        return Err(format!("broken: {promise}; a trace, not always the shortest:\n{}", told(path)));
    }
    let (states, depth) = (checker.unique_state_count(), checker.max_depth());
    if states < at_least {
        return Err(format!("{states} states explored; expected at least {at_least}"));
    }
    Ok(format!("{states} states, depth {depth}, {:.1} s", began.elapsed().as_secs_f64()))
}

/// Explores until `promise` is broken, and reports the shortest trace to it.
pub(crate) fn breaks<P: Protocol>(protocol: P, promise: &'static str) -> Verdict {
    let began = Instant::now();
    let explored = Explored { protocol, expected: Some(promise) };
    // Use one thread: several threads may find a longer trace first.
    let checker = explored.checker().threads(1).finish_when(HasDiscoveries::Any).spawn_bfs().join();
    let states = checker.unique_state_count();
    let Some(path) = checker.discovery(PROMISES) else {
        return Err(format!("`{promise}` should break, but holds in all {states} states"));
    };
    let steps = path.clone().into_actions().len();
    let seconds = began.elapsed().as_secs_f64();
    Ok(format!(
        "\"{promise}\" is broken after {steps} steps ({states} states, {seconds:.1} s)\n{}",
        told(path)
    ))
}

fn told<State, Step: Debug>(path: Path<State, Step>) -> String {
    let steps = path.into_actions().into_iter().enumerate();
    steps.fold(String::new(), |told, (n, step)| format!("{told}      {:>2} {step:?}\n", n + 1))
}

const PROMISES: &str = "every promise is kept";

/// A protocol for stateright. All promises are one property, because several would hide the shortest trace:
/// a later find for one property replaces an earlier one while the search for another continues.
struct Explored<P> {
    protocol: P,
    /// The only promise that is checked; `None` for all of them.
    expected: Option<&'static str>,
}

impl<P: Protocol> Model for Explored<P> {
    type State = P::State;
    type Action = P::Step;

    fn init_states(&self) -> Vec<P::State> {
        vec![self.protocol.start()]
    }

    fn actions(&self, state: &P::State, steps: &mut Vec<P::Step>) {
        self.protocol.steps(state, steps);
    }

    fn next_state(&self, state: &P::State, step: P::Step) -> Option<P::State> {
        let next = self.protocol.after(state, step);
        // In `breaks`, do not reorder the processes: their numbers would change within the reported trace.
        Some(if self.expected.is_none() { self.protocol.canonical(next) } else { next })
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always(PROMISES, |model: &Self, state| {
            let broken = model.protocol.broken(state);
            broken.is_none() || model.expected.is_some_and(|expected| broken != Some(expected))
        })]
    }
}
