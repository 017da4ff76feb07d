//! The trials, each with the promise that it proves.

mod administration;
mod allocators;
mod bounds;
mod callers;
mod connections;
mod creation;
mod cuts;
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
    /// Reserves that begin at the stored `next`.
    Exact,
    /// A store that takes unused ids back.
    GivesBack,
    /// A store that keeps records.
    Records,
    /// A store whose grants survive a crash of its machine.
    Durable,
    /// The trial checks that the store gives up before a pause ends. This need never skips a trial.
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
    /// Returns the name of the trial.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the promise that the trial proves.
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

    /// Returns why the trial cannot run on this store.
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
                Some("the engine loses its data when it is killed".to_owned())
            }
            Self::Kill | Self::Pause | Self::Connection if engine.is_none() => {
                Some("the store is embedded: there is no engine and no connection".to_owned())
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
                Some("the store has a window, so reserves do not start at the stored `next`".to_owned())
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

const TRIALS: &[Trial] = table! {
    ranges {
        disjoint_among_tasks [] "Tasks and clients of one process that reserve concurrently never share an id."
        growing [] "A request that starts after another was answered gets larger ids."
        nothing_lost [] "Without a fault, the sequence moves by exactly the granted ids."
    }
    processes {
        disjoint_among_processes [Processes] "Processes that reserve concurrently never share an id, and lose none."
    }
    creation {
        creation_race [] "Concurrent first reserves of several clients create one sequence."
        create_race [] "When clients create a sequence concurrently, one succeeds; the others get `already_exists`."
        created_only_if_asked [] "A reserve that requires an existing sequence creates none, so a \
                                  sequence that the store lost does not restart."
    }
    processes {
        creation_race_of_processes [Processes] "Concurrent first reserves of several processes create one sequence."
    }
    bounds {
        first_to_last [] "Each id from the first to the last is granted once; then the sequence stays exhausted."
        end_of_i32 [] "A sequence that ends at 2^31 - 1 grants this id, and none after it."
        end_of_the_store [] "A sequence ends with the largest id that the store can keep; a larger last id is rejected."
        ceiling [] "Nothing above the caller's ceiling (the largest id it accepts) is granted; a higher ceiling gets the ids above it."
        creation_below_the_ceiling [] "A first reserve with a ceiling below the first id is rejected, and loses no ids."
        stored_bounds_win [] "The bounds of an existing sequence are kept, even if a reserve specifies other bounds."
        large_counts [] "A reserve of any count, up to the largest, is granted in full or up to the end of the sequence, without overflow."
    }
    names {
        names_are_kept [] "Each name identifies its own sequence, whatever its characters, and is listed unchanged."
    }
    administration {
        create_once [] "A sequence is created once, and stored as requested."
        looking_consumes_nothing [] "Inspecting a sequence neither creates nor moves it."
        list_is_sorted_and_complete [] "The list has every sequence, sorted by name, in its current state."
        list_comes_in_pages [] "Listing a prefix in pages returns all its sequences, in their current state, and no others."
        set_does_what_it_says [] "A change has the same result as `SequenceInfo::apply`, or the same error kind."
        set_moves_reserves [Exact] "After `next` is set, the next reserve starts there. Setting it backwards begins the next epoch."
        set_compares [Exact] "When concurrent changes expect the same identity, one succeeds; the others get a conflict."
        set_among_reserves [] "When `next` is raised during reserves, later reserves start at or above it."
        resets_among_reserves [] "Resets and removals during reserves cause no duplicate within one identity."
        revoke_raises_the_epoch [Exact] "A revocation starts the next epoch of the sequence, and changes nothing else."
        remove_makes_another [Exact] "A removed sequence is gone; a new sequence with its name has another incarnation."
        remove_compares [] "A removal that expects another identity gets a conflict and removes nothing, \
                            even if the sequence is replaced meanwhile."
    }
    rests {
        rests_are_granted_again [GivesBack] "Ids that are given back from the last range are granted to the next reserve."
        rests_of_others_stay [GivesBack] "Ids are not taken back if others reserved after them, or if they belong to another identity."
        rests_at_once [GivesBack] "When clients reserve and give back concurrently, only ids that were \
                                   given back are granted again."
        rests_through_cuts [GivesBack Connection] "When a connection is cut during a give-back, the store reports the outcome correctly."
    }
    records {
        records_compare [Records] "A record is replaced only if it is unchanged since it was read; a \
                                   sequence of the same name is unaffected."
        records_at_once [Records] "When clients add to a record concurrently, no update is lost."
        record_names_are_kept [Records] "Each name identifies its own record, whatever its characters, and is listed unchanged."
        records_come_in_pages [Records] "Listing a prefix in pages returns all its records, in their current state, and no others."
        records_over_kills [Records Kill] "A record that was written before the engine was killed is kept."
        records_through_cuts [Records Connection] "When a connection is cut during the write of a record, the store reports the outcome correctly."
    }
    guard {
        is_guarded [Exact] "Ids repeat only after a reset through the guard; an emptied store is \
                            rejected; removed sequences start above old ids."
        guards_another [Records Durable] "As a witness, the store prevents duplicates when the guarded store is restored, at any moment."
    }
    callers {
        as_the_reference [Exact] "Random calls get the same answers from the store as from the memory store."
        cancelled_reserves [] "When a reserve is dropped at any point, no other caller gets its ids, \
                               and other reserves succeed."
        batches [Batches] "A batch is answered in order, and its entries fail separately."
        batches_at_once [Batches] "Concurrent batches in different orders neither share an id nor deadlock."
        capabilities_are_coherent [] "The store behaves as its capabilities declare."
    }
    processes {
        killed_clients [Processes] "Clients that are killed at any moment lose only their pending requests."
        paused_clients [Processes ShortTimeout] "A client that is paused past every timeout, and resumes, repeats no id."
    }
    engines {
        killed_engine [Kill] "After the engine is killed, earlier grants are kept, and clients recover without a restart."
        paused_engine [Pause] "While the engine is paused, no error is permanent; then clients recover without a restart."
    }
    connections {
        unreachable [Connection] "While the engine is unreachable, no error is permanent or wrong; then the client recovers."
        cut_before_arrival [Connection] "When a connection is cut before a request arrives, the store reports the outcome correctly."
        cut_after_arrival [Connection] "When a connection is cut after a request arrives, the store reports the outcome correctly."
        cut_before_the_reply [Connection] "When a connection is cut as the reply arrives, the store reports the outcome correctly."
        reply_withheld [Connection] "A late or lost reply is never taken for the reply to another request."
        garbled_replies [Connection] "A garbled reply causes a correct error, and never a panic, a hang or an id."
    }
    cuts {
        rival_in_a_cut [Connection] "When another client reserves the same number of ids between two attempts, no id is granted twice."
        removal_in_a_cut [Exact Connection] "When a sequence is removed between two attempts to create it, it does not return with the same identity."
        creation_through_cuts [Exact Connection] "When a connection is cut during a creation or a first reserve, the store reports the outcome correctly."
        administration_through_cuts [Exact Connection] "When a connection is cut during a change or a removal, the store reports the outcome correctly."
    }
    allocators {
        nonsense_is_refused [] "Repeated, foreign, empty and oversized grants are rejected by the allocator."
        drawn_by_allocators [] "Allocators with separate clients never draw the same id."
        drawn_by_processes [Processes ShortTimeout] "Allocators of several processes draw no id twice, even if processes, connections or the engine fail."
    }
};

/// Returns every trial, in the order in which they run.
pub fn trials() -> &'static [Trial] {
    TRIALS
}
