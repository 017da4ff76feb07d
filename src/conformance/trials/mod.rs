//! The trials, each with the promise that it proves.

mod processes;
mod ranges;

use std::fmt;

use super::context::Context;
use super::outcome::Outcome;
use super::suite::Setup;
use crate::store::{Capabilities, StoreFuture};
use crate::sync::Arc;

/// What a trial cannot do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// Several processes may use the store.
    Processes,
    /// An engine that keeps what it granted over a crash.
    Kill,
    /// An engine to pause.
    Pause,
    /// A connection to interfere with.
    Connection,
    /// Several reserves in one round trip.
    Batches,
}

type Body = fn(Arc<Context>) -> StoreFuture<'static, Outcome>;

/// One promise, and what proves it.
pub struct Trial {
    name: &'static str,
    promise: &'static str,
    needs: &'static [Need],
    body: Body,
}

impl Trial {
    /// What it is called.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// What holds if it passes.
    pub fn promise(&self) -> &'static str {
        self.promise
    }

    pub(super) fn run(&self, context: Arc<Context>) -> StoreFuture<'static, Outcome> {
        (self.body)(context)
    }

    /// Why it cannot run on this store.
    pub(super) fn obstacle(&self, setup: &Setup, capabilities: Capabilities) -> Option<String> {
        self.needs.iter().find_map(|need| need.obstacle(setup, capabilities))
    }
}

impl fmt::Debug for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trial")
            .field("name", &self.name)
            .field("promise", &self.promise)
            .finish_non_exhaustive()
    }
}

impl Need {
    fn obstacle(self, setup: &Setup, capabilities: Capabilities) -> Option<String> {
        let engine = setup.engine.as_ref();
        match self {
            Self::Processes if !capabilities.shared => Some("the store declares `shared: false`".to_owned()),
            Self::Processes => setup.one_process.clone(),
            Self::Kill if engine.is_some_and(|engine| !engine.survives_kill()) => {
                Some("its engine keeps nothing over a kill".to_owned())
            }
            Self::Kill | Self::Pause | Self::Connection if engine.is_none() => {
                Some("it is embedded: there is no engine and no connection".to_owned())
            }
            Self::Batches if !capabilities.batches => Some("the store declares `batches: false`".to_owned()),
            _ => None,
        }
    }
}

/// A table of trials: name, promise, needs and the function, which has the trial's name.
macro_rules! table {
    ($($module:ident { $($name:ident [$($need:ident)*] $promise:literal)* })*) => {
        &[$($(Trial {
            name: stringify!($name),
            promise: $promise,
            needs: &[$(Need::$need),*],
            body: |context| Box::pin($module::$name(context)),
        },)*)*]
    };
}

/// Every trial, in the order in which they run.
pub fn trials() -> &'static [Trial] {
    const TRIALS: &[Trial] = table! {
        ranges {
            disjoint_among_tasks [] "Tasks and clients of one process that reserve at once never share an id."
            growing [] "Whoever asks after another was answered gets larger ids."
            nothing_lost [] "Without a fault, the sequence moved by exactly what was granted."
        }
        processes {
            disjoint_among_processes [Processes] "Processes that reserve at once never share an id, and lose none."
        }
    };
    TRIALS
}
