//! The trials, each with the promise that it proves.

mod administration;
mod allocators;
mod bounds;
mod callers;
mod connections;
mod creation;
mod engines;
mod guard;
mod names;
mod processes;
mod ranges;
mod records;
mod rests;

use std::fmt;
use std::sync::Arc;

use idmill::store::{Capabilities, Durability, StoreFuture};

use super::context::Context;
use super::outcome::Outcome;
use super::setup::Setup;

/// A requirement of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// Several processes may use the store.
    Processes,
    /// An engine whose grants survive a crash.
    Kill,
    /// An engine to pause.
    Pause,
    /// A connection to interfere with.
    Connection,
    /// Several reserves in one round trip.
    Batches,
    /// Reserves that begin where the stored sequence is.
    Exact,
    /// A store that takes rests back.
    GivesBack,
    /// A store that keeps records.
    Records,
    /// A store whose grants survive a crash of its machine.
    Durable,
    /// A store that gives up before a pause ends, which the trial checks. Every store meets it.
    ShortTimeout,
}

type Body = fn(Arc<Context>) -> StoreFuture<'static, Outcome>;

/// One promise, and its proof.
pub struct Trial {
    name: &'static str,
    promise: &'static str,
    needs: &'static [Need],
    body: Body,
}

impl Trial {
    /// Returns its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the promise that it proves.
    pub fn promise(&self) -> &'static str {
        self.promise
    }

    pub(super) fn run(&self, context: Arc<Context>) -> StoreFuture<'static, Outcome> {
        (self.body)(context)
    }

    /// Whether the store must give up while a process is paused, a connection cut, or a reply withheld.
    pub(super) fn needs_a_short_timeout(&self) -> bool {
        let short = [Need::ShortTimeout, Need::Kill, Need::Pause, Need::Connection];
        self.needs.iter().any(|need| short.contains(need))
    }

    /// Returns why it cannot run on this store.
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
            Self::GivesBack if !capabilities.gives_back => {
                Some("the store declares `gives_back: false`".to_owned())
            }
            Self::Records if !capabilities.records => Some("the store declares `records: false`".to_owned()),
            Self::Durable if capabilities.durability < Durability::Disk => {
                Some("the store declares `durability: process`".to_owned())
            }
            Self::Exact if setup.window.is_some() => {
                Some("its window is ahead of what is stored, which is what this changes".to_owned())
            }
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

/// Returns every trial, in the order in which they run.
pub fn trials() -> &'static [Trial] {
    const TRIALS: &[Trial] = table! {
        ranges {
            disjoint_among_tasks [] "Tasks and clients of one process that reserve concurrently never share an id."
            growing [] "A reserve that starts after another one was answered gets larger ids."
            nothing_lost [] "Without faults, the sequence moves by exactly the granted ids."
        }
        processes {
            disjoint_among_processes [Processes] "Processes that reserve concurrently never share an id, and lose none."
        }
        creation {
            creation_race [] "Concurrent first reserves of several clients create one sequence with one incarnation."
            create_race [] "If several clients create a sequence concurrently, one succeeds; the others get the error that it exists."
            created_only_if_asked [] "A reserve that requires an existing sequence creates none, even if the client has seen the sequence: a store that lost it does not start it again."
        }
        processes {
            creation_race_of_processes [Processes] "Concurrent first reserves of several processes create one sequence with one incarnation."
        }
        bounds {
            first_to_last [] "Each id from the first to the last is granted once; then the sequence stays exhausted."
            end_of_i32 [] "A sequence of 32-bit ids ends with the last of them."
            end_of_the_store [] "A sequence ends with the largest id that the store can keep; no sequence can be created beyond it."
            ceiling [] "No id above the caller's ceiling is granted; other callers continue after the last granted id."
            creation_below_the_ceiling [] "A reserve that can grant nothing loses no ids."
            stored_bounds_win [] "An existing sequence keeps its bounds, even if a reserve would create it with others."
            large_counts [] "Counts up to the largest number are granted in full, or up to the end, without an overflow."
        }
        names {
            names_are_kept [] "Different names are different sequences, with any characters, and are listed unchanged."
        }
        administration {
            create_once [] "A created sequence is stored as requested; a second creation fails."
            looking_consumes_nothing [] "Reading a sequence neither creates nor moves it."
            list_is_sorted_and_complete [] "The list has every sequence with its stored values, sorted by name."
            list_comes_in_pages [] "The pages of a list have every sequence with the prefix, with its stored values, and no other."
            set_does_what_it_says [] "A change gives the result of the crate's own arithmetic, or fails with the same kind of error."
            set_moves_reserves [Exact] "After a change the next reserve starts at the new position; if that is backwards, with the next epoch."
            set_compares [Exact] "If several changes expect the same identity, one succeeds; the others get a conflict."
            set_among_reserves [] "A step forwards during reserves is neither undone nor overtaken."
            resets_among_reserves [] "Resets and removals during reserves: no duplicate id within one identity."
            revoke_raises_the_epoch [Exact] "A revocation raises the sequence's epoch, and changes nothing else."
            remove_makes_another [Exact] "A removed sequence is gone; a new one under its name has another incarnation."
        }
        rests {
            rests_are_granted_again [GivesBack] "Ids of the last range that are given back are granted by the next reserve."
            rests_of_others_stay [GivesBack] "Ids are not taken back if others reserved after them, or if they belong to another epoch or incarnation."
            rests_at_once [GivesBack] "Among clients that reserve and give back concurrently, no kept id is granted again."
            rests_through_cuts [GivesBack Connection] "If the connection is cut while ids are given back, the store's result is true."
        }
        records {
            records_compare [Records] "A record is only written over the value that the caller saw; a sequence of the same name is separate."
            records_at_once [Records] "If several clients add to a record concurrently, none undoes the writes of another."
            record_names_are_kept [Records] "Different names are different records, with any characters, and are listed unchanged."
            records_come_in_pages [Records] "The pages of records have every record with the prefix, with its stored value, and no other."
            records_over_kills [Records Kill] "Acknowledged writes of a record survive a SIGKILL of the engine."
            records_through_cuts [Records Connection] "If the connection is cut while a record is written, the store's result is true."
        }
        guard {
            is_guarded [Exact] "A guarded store that went back or was reset repeats no id, unless it was reset through the guard; an emptied one is rejected; a removed name starts above its ids."
            guards_another [Records Durable] "As the witness of a store that goes back at any moment, it prevents duplicate ids."
        }
        callers {
            as_the_reference [Exact] "Random calls have the same results as with the store in memory."
            cancelled_reserves [] "A reserve that is dropped at any point grants its ids to no other caller, and disturbs nothing."
            batches [Batches] "A batch is answered in its order, and each error belongs to its own entry."
            batches_at_once [Batches] "Concurrent batches in different orders neither share an id nor block each other."
            capabilities_are_coherent [] "The store behaves as its declared capabilities."
        }
        processes {
            killed_clients [Processes] "Clients killed at any moment lose only their running reserves."
            paused_clients [Processes ShortTimeout] "A client that is paused past every timeout, and resumes, repeats no id."
        }
        engines {
            killed_engine [Kill] "Ids granted before the engine was killed stay granted; clients recover without help."
            paused_engine [Pause] "While the engine is paused, errors are transient; afterwards clients recover without help."
        }
        connections {
            unreachable [Connection] "While the engine is unreachable, errors are transient and true; afterwards the client recovers without help."
            cut_before_arrival [Connection] "If the connection is cut before a request arrives, the store's result is true."
            cut_after_arrival [Connection] "If the connection is cut after a request arrived, the store's result is true."
            cut_before_the_reply [Connection] "If the connection is cut in place of a reply, the store's result is true."
            reply_withheld [Connection] "A reply that arrives after the caller's timeout, or never, is not taken for another reply."
            garbled_replies [Connection] "An invalid reply leads to a true error; never to a panic, a hang or an id."
        }
        allocators {
            nonsense_is_refused [] "The allocator rejects repeated, foreign, empty and oversized grants."
            drawn_by_allocators [] "Allocators with separate clients never draw the same id."
            drawn_by_processes [Processes ShortTimeout] "Allocators of several processes never draw the same id, through every fault that the store can meet."
        }
    };
    TRIALS
}
