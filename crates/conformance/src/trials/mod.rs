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
            disjoint_among_tasks [] "Tasks and clients of one process that reserve at once never share an id."
            growing [] "Whoever asks after another was answered gets larger ids."
            nothing_lost [] "Without a fault, the sequence moves by exactly what was granted."
        }
        processes {
            disjoint_among_processes [Processes] "Processes that reserve at once never share an id, and lose none."
        }
        creation {
            creation_race [] "Clients that reserve first, all at once, have one sequence of one incarnation."
            create_race [] "Of clients that create a sequence at once, one does; the others hear that it exists."
            created_only_if_asked [] "A reserve of a sequence that has to exist creates none, whoever knew it: a store that lost it is not begun anew."
        }
        processes {
            creation_race_of_processes [Processes] "Processes that reserve first, all at once, have one sequence of one incarnation."
        }
        bounds {
            first_to_last [] "From the first id to the last, each is granted once; then the sequence is exhausted, for good."
            end_of_i32 [] "A sequence of 32-bit ids ends with the last of them."
            end_of_the_store [] "A sequence ends with the largest id that the store can keep; beyond it, none is created."
            ceiling [] "Nothing above the caller's ceiling is granted; others go on where it ends."
            creation_below_the_ceiling [] "A reserve that can grant nothing loses nothing."
            stored_bounds_win [] "The bounds of a sequence that exists are kept, whatever a reserve would have created."
            large_counts [] "Counts up to the largest number are granted in full, or up to the end, without an overflow."
        }
        names {
            names_are_kept [] "Names that differ are different sequences, whatever they are made of, and listed as they are."
        }
        administration {
            create_once [] "What is created is stored as it was asked for, once."
            looking_consumes_nothing [] "Looking at a sequence neither creates nor moves it."
            list_is_sorted_and_complete [] "Every sequence is listed, as it is, by name."
            list_comes_in_pages [] "Pages of a list have every sequence of a prefix, as it is, and no other."
            set_does_what_it_says [] "A change is applied as the crate's arithmetic says, or refused with the kind that it says."
            set_moves_reserves [Exact] "After a change the next reserve begins there; backwards, with the next epoch."
            set_compares [Exact] "Of changes that expect the same identity, one wins; the others hear of a conflict."
            set_among_reserves [] "A step forwards among reserves is neither undone nor overtaken."
            resets_among_reserves [] "Resets and removals among reserves: within one identity, no id twice."
            revoke_raises_the_epoch [Exact] "A revocation makes another epoch of the sequence, and changes nothing else."
            remove_makes_another [Exact] "What is removed is gone; under its name, there is another incarnation."
        }
        rests {
            rests_are_granted_again [GivesBack] "What is given back of the last range is what the next reserve is granted."
            rests_of_others_stay [GivesBack] "Nothing is taken back that others reserved after, or of another time of the sequence."
            rests_at_once [GivesBack] "Among clients that reserve and give back at once, no id that was kept is granted again."
            rests_through_cuts [GivesBack Connection] "A connection cut while a rest is given back: what the store says of it is true."
        }
        records {
            records_compare [Records] "A record is written over what was seen of it and over nothing else; a sequence of its name is another thing."
            records_at_once [Records] "Of clients that add to a record at once, none undoes what another has written."
            record_names_are_kept [Records] "Names that differ are different records, whatever they are made of, and listed as they are."
            records_come_in_pages [Records] "Pages of records have every record of a prefix, as it is, and no other."
            records_over_kills [Records Kill] "What was written of a record before the engine was killed is kept."
            records_through_cuts [Records Connection] "A connection cut while a record is written: what the store says of it is true."
        }
        guard {
            is_guarded [Exact] "A guarded store that went back or was reset repeats no id, unless it was reset through the guard; an emptied one is refused; a removed name starts above its ids."
            guards_another [Records Durable] "As the witness of a store that goes back at any moment, it lets no id be used twice."
        }
        callers {
            as_the_reference [Exact] "Random calls have the answers that the store in memory gives."
            cancelled_reserves [] "A reserve that is dropped at any point is granted to nobody else, and disturbs nothing."
            batches [Batches] "A batch is answered in its order, and each failure is its own."
            batches_at_once [Batches] "Batches in different orders at once neither share an id nor wait for each other."
            capabilities_are_coherent [] "What the store declares is what it does."
        }
        processes {
            killed_clients [Processes] "Clients killed at any moment lose what they had under way, and nothing else."
            paused_clients [Processes ShortTimeout] "A client that is paused past every timeout, and goes on, repeats no id."
        }
        engines {
            killed_engine [Kill] "What was granted before the engine was killed stays granted; clients recover by themselves."
            paused_engine [Pause] "While the engine is paused, errors pass; afterwards clients recover by themselves."
        }
        connections {
            unreachable [Connection] "While nobody answers, errors pass and are true; afterwards the client recovers by itself."
            cut_before_arrival [Connection] "A connection cut before a request arrived: what the store says of it is true."
            cut_after_arrival [Connection] "A connection cut after a request arrived: what the store says of it is true."
            cut_before_the_reply [Connection] "A connection cut instead of a reply: what the store says of it is true."
            reply_withheld [Connection] "A reply that comes after the caller gave up, or never, is taken for no other."
            garbled_replies [Connection] "Nonsense instead of a reply is an error, which is true; never a panic, a wait or an id."
        }
        allocators {
            nonsense_is_refused [] "Repeated, foreign, empty and oversized grants are refused by the allocator."
            drawn_by_allocators [] "Allocators over clients of their own never draw the same id."
            drawn_by_processes [Processes ShortTimeout] "Allocators of several processes never draw the same id, through every fault that the store can meet."
        }
    };
    TRIALS
}
