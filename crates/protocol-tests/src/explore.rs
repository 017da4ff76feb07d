//! Runs a protocol through every order of its steps, and makes sure that this were some.

use std::fmt::Debug;
use std::hash::Hash;
use std::thread;
use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model, Path, Property};

/// A protocol at a small size, and what may befall it.
pub(crate) trait Protocol: Send + Sync + 'static {
    /// Everything: what is stored, what each process knows, what is under way.
    type State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static;
    /// One thing that can happen next.
    type Step: Copy + Debug + PartialEq;

    fn start(&self) -> Self::State;

    /// Everything that can happen next.
    fn steps(&self, state: &Self::State, steps: &mut Vec<Self::Step>);

    /// What comes of it.
    fn after(&self, state: &Self::State, step: Self::Step) -> Self::State;

    /// One for all the states that differ in nothing but which process is which.
    fn canonical(&self, state: Self::State) -> Self::State {
        state
    }

    /// The name of a promise that this state breaks, the worst first.
    fn broken(&self, state: &Self::State) -> Option<&'static str>;
}

/// What becomes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is done at once, if it can be, and the answer arrives.
    Answered,
    /// It is done at once, if it can be, and nobody hears.
    ReplyLost,
    /// Nobody hears, and it may still be done at any later time.
    OnItsWay,
}

/// What a check came to: a line for the log, or what is wrong.
pub(crate) type Verdict = Result<String, String>;

/// Explores all states and demands that no promise is broken in any, and that they are `at_least` so many: a
/// model whose processes never meet proves nothing.
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
        return Err(format!("{states} states explored, at least {at_least} were expected"));
    }
    Ok(format!("{states} states, depth {depth}, {:.1} s", began.elapsed().as_secs_f64()))
}

/// Explores until `promise` is broken, and tells the shortest trace to that.
pub(crate) fn breaks<P: Protocol>(protocol: P, promise: &'static str) -> Verdict {
    let began = Instant::now();
    let explored = Explored { protocol, expected: Some(promise) };
    // Only one thread finds the shortest trace first.
    let checker = explored.checker().threads(1).finish_when(HasDiscoveries::Any).spawn_bfs().join();
    let states = checker.unique_state_count();
    let Some(path) = checker.discovery(PROMISES) else {
        return Err(format!("`{promise}` is kept in all of {states} states"));
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

/// A protocol for stateright. One property for all promises, because several hinder it from finding the
/// shortest trace: a later find of one replaces an earlier one as long as another is still looked for.
struct Explored<P> {
    protocol: P,
    /// Only this promise matters.
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
        // Not where a trace is to be told, in which a process would change its number.
        Some(if self.expected.is_none() { self.protocol.canonical(next) } else { next })
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always(PROMISES, |model: &Self, state| {
            let broken = model.protocol.broken(state);
            broken.is_none() || model.expected.is_some_and(|expected| broken != Some(expected))
        })]
    }
}
