//! The conformance suite finds bugs: each store has one bug, and the trials listed for the bug fail.

#![cfg(unix)]

mod bugs;
mod toy;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use idmill::ErrorKind;
use idmill::store::{MemoryStore, Store};
use idmill_conformance::{Report, Suite, Timeouts, Verdict, trials};

/// Most bugs cause wrong answers. Bugs that cause waits have their own, shorter timeouts.
fn patient() -> Timeouts {
    Timeouts::default().pause(Duration::from_millis(300))
}

/// Runs these trials, and checks that each fails, with these words in its reason.
fn caught(suite: Suite, trials: &[(&str, &str)]) {
    let suite = trials.iter().fold(suite, |suite, (trial, _)| suite.only(*trial));
    let report = suite.run();
    for (trial, words) in trials {
        match report.verdict(trial) {
            Some(Verdict::Failed(reason)) => assert!(reason.contains(words), "{trial}: {reason}"),
            other => panic!("{trial}: expected that it fails, got {other:?}"),
        }
    }
}

fn all_pass(report: &Report) {
    assert!(report.failed().is_empty(), "{report}");
    assert!(report.passed().len() > 20, "{report}");
}

macro_rules! finds {
    ($($test:ident: $bug:ident => $($trial:ident $words:literal),+;)*) => {$(
        #[test]
        fn $test() {
            caught(bugs::suite(bugs::Bug::$bug), &[$((stringify!($trial), $words)),+]);
        }
    )*};
}

finds! {
    a_range_repeated_after_an_error: RepeatsAfterAnError => disjoint_among_tasks "duplicate grants";
    a_counter_read_and_then_written: ReadsThenWrites => disjoint_among_tasks "duplicate grants";
    a_failure_that_was_none: LiesAboutFailures => nothing_lost "ids were lost";
    a_hidden_block: HoardsABlock => growing "had been granted before the request began", nothing_lost "ids were lost";
    lost_ranges: LosesRanges => nothing_lost "ids were lost";
    two_incarnations: CreatesTwice => creation_race "identities";
    a_lost_sequence_begun_anew: CreatesUnasked => created_only_if_asked "expected not_found";
    create_that_replaces: CreateReplaces => create_once "expected already_exists", create_race "of 8 concurrent creates";
    the_last_id_lost: LosesTheLastId => first_to_last "were granted, but the last id is", end_of_i32 "2147483647";
    one_id_too_many: GoesBeyondMax => first_to_last "goes beyond the last id";
    an_ignored_ceiling: IgnoresTheCeiling => ceiling "ceiling";
    bounds_of_the_caller: IgnoresStoredBounds => stored_bounds_win "the first id is";
    a_sequence_that_wraps: Wraps => first_to_last "ids were granted";
    signed_numbers: KeepsI64 => end_of_the_store "created with start";
    counts_of_32_bits: KeepsU32Counts => large_counts "were requested, but only";
    names_cut_off: CutsNames => names_are_kept "";
    names_in_one_case: FoldsCase => names_are_kept "";
    names_without_their_dots: TrimsDots => names_are_kept "";
    looking_that_consumes: LooksConsume => looking_consumes_nothing "list or inspect changed";
    looking_that_creates: LooksCreate => looking_consumes_nothing "created the sequence";
    a_list_of_one_page: ListOmits => list_is_sorted_and_complete "listed", names_are_kept "listed 0 times";
    a_list_in_any_order: ListIsUnsorted => list_is_sorted_and_complete "listed", names_are_kept "not sorted",
        list_comes_in_pages "not sorted";
    pages_that_omit: PagesOmit => list_comes_in_pages "is on no page";
    pages_without_an_end: PagesStand => list_comes_in_pages "ends with the same cursor";
    a_prefix_ignored: PrefixIsIgnored => list_comes_in_pages "does not begin with";
    an_epoch_that_stays: EpochStays => set_moves_reserves "which is not the next epoch", set_does_what_it_says "instead of";
    an_incarnation_that_stays: IncarnationStays => remove_makes_another "has the same incarnation";
    a_change_read_and_then_written: SetIsNotAtomic => set_compares "conditional changes succeeded";
    a_removal_of_whatever_is_there: RemovesAnother => remove_compares "expected conflict";
    a_removal_compared_and_then_done: RemoveIsNotAtomic => remove_compares "conditional removals succeeded";
    an_expectation_ignored: IgnoresExpect => set_does_what_it_says "expected conflict", set_compares "6 of 6";
    a_revocation_ignored: IgnoresRevoke => revoke_raises_the_epoch "revoking";
    a_batch_in_the_wrong_order: BatchInWrongOrder => batches "instead of";
    a_batch_that_fails_together: BatchFailsTogether => batches "instead of";
    a_batch_that_locks_in_its_order: BatchLocksInOrder => batches_at_once "no answer";
    a_lock_kept_when_dropped: KeepsTheLockWhenDropped => cancelled_reserves "was not answered";
    capabilities_by_chance: DeclaresByChance => capabilities_are_coherent "capabilities of two clients differ";
    rests_that_are_refused: NeverTakesBack => rests_are_granted_again "was not taken back";
    rests_before_those_of_others: TakesBackWhateverItIs => rests_of_others_stay "although";
    rests_of_another_time: TakesBackAtAnyTime => rests_of_others_stay "has been reset since";
    rests_taken_in_two_steps: TakesBackInTwoSteps => rests_at_once "duplicate grants";
    a_record_written_blindly: SwapsRecordsBlindly => records_compare "was replaced", records_at_once "an update was lost";
    a_record_compared_and_then_written: SwapsRecordsInTwoSteps => records_at_once "an update was lost";
    a_record_always_said_to_be_written: ClaimsToHaveSwapped =>
        records_compare "was replaced", records_at_once "an update was lost";
    records_among_the_sequences: ListsRecordsAsSequences => records_compare "returned a record as a sequence";
    record_names_in_one_case: FoldsRecords => record_names_are_kept "conflicted, although no other client";
    records_cut_off: CutsRecords => records_compare "is stored";
    pages_of_records_that_omit: RecordPagesOmit => records_come_in_pages "the prefix \"";
    all_or_nothing_at_the_end: ExpectsMoreThanItSays => first_to_last "were granted, but the last id is", as_the_reference "instead of";
}

macro_rules! finds_in_clients {
    ($($test:ident: $bug:ident => $($trial:ident $words:literal),+;)*) => {$(
        #[test]
        fn $test() {
            let suite = toy::suite(toy::Bug::$bug, toy::Forgets::Nothing, stringify!($test));
            caught(suite, &[$((stringify!($trial), $words)),+]);
        }
    )*};
}

finds_in_clients! {
    unavailable_though_applied: ClaimsUnavailable =>
        cut_after_arrival "reported no effect", cut_before_the_reply "reported no effect",
        records_through_cuts "after the write";
    a_request_sent_again: AsksAgain => cut_before_the_reply "sent a reserve twice";
    a_write_recognised_by_its_value: RecognisesByValue => rival_in_a_cut "only the own claim shows";
    a_creation_sent_again: CreatesAgain => creation_through_cuts "create took effect";
    a_creation_sent_again_with_its_claim: SendsItsClaimAgain => removal_in_a_cut "with its identity";
    a_removal_sent_again: RemovesAgain => administration_through_cuts "remove returned false";
    unavailable_though_changed: ClaimsUnchanged =>
        creation_through_cuts "create took effect", administration_through_cuts "took effect";
    a_server_error_taken_for_no_effect: TrustsServerErrors => garbled_replies "reported no effect";
    a_late_reply_for_another: TakesLateReplies => reply_withheld "";
    a_panic_at_nonsense: Panics => garbled_replies "an answer has to be text";
    a_connection_never_made_again: NeverReconnects => cut_before_arrival "has not recovered";
    giving_up_at_a_broken_connection: GivesUp => cut_before_arrival "caused a permanent error";
    a_way_around_the_proxy: GoesAround => cut_before_arrival "do not go through the proxy";
    waiting_on_a_dead_connection: Waits => cut_before_arrival "did not detect";
    a_rest_given_back_again: GivesBackAgain => rests_through_cuts "giving back";
    a_record_written_again: SwapsAgain => records_through_cuts "after the write";
    a_lock_that_others_do_not_have: LocksItselfOnly => disjoint_among_processes "duplicate grants";
}

#[test]
fn an_engine_that_forgets_the_last() {
    let suite = toy::suite(toy::Bug::None, toy::Forgets::TheLast, "an_engine_that_forgets_the_last");
    caught(suite.timeouts(patient()), &[("killed_engine", "duplicate grants")]);
}

#[test]
fn an_engine_that_forgets_everything() {
    let suite = toy::suite(toy::Bug::None, toy::Forgets::Everything, "an_engine_that_forgets_everything");
    caught(suite.timeouts(patient()), &[("killed_engine", "identities")]);
}

#[test]
fn an_engine_that_forgets_records() {
    let suite = toy::suite(toy::Bug::None, toy::Forgets::Records, "an_engine_that_forgets_records");
    caught(
        suite.timeouts(patient()),
        &[("records_over_kills", "before the engine was killed, but None is stored")],
    );
}

/// The store refuses two of three connections, like an engine that was restarted; trials restart engines
/// themselves.
#[test]
fn engine_that_rejects_first_connections_is_retried() {
    let (store, asked) = (MemoryStore::new(), AtomicU32::new(0));
    let suite = Suite::new("late", move |_| {
        let in_time = asked.fetch_add(1, Ordering::Relaxed) % 3 == 2;
        let store: Arc<dyn Store> = Arc::new(store.clone());
        async move { if in_time { Ok(store) } else { Err(ErrorKind::Unavailable.into()) } }
    });
    let report = suite.only("create_once").only("growing").run();
    assert_eq!(report.passed(), ["growing", "create_once"], "{report}");
    let never = Suite::new("never", |_| async { Err(ErrorKind::Denied.into()) });
    let report = never.only("create_once").run();
    assert!(report.passed().is_empty(), "{report}");
}

#[test]
fn an_honest_store_passes() {
    let suite = toy::suite(toy::Bug::None, toy::Forgets::Nothing, "an_honest_store_passes");
    let report = suite.run();
    all_pass(&report);
    assert_eq!(report.skipped(), ["batches", "batches_at_once"]);
}

#[test]
fn the_guide_has_every_trial_and_no_other() {
    let guide = include_str!("../../../../docs/conformance.md");
    let listed: Vec<_> = guide.lines().filter(|line| line.starts_with("| `")).collect();
    assert_eq!(listed.len(), trials().len());
    for (line, trial) in listed.iter().zip(trials()) {
        let begin = format!("| `{}` | {} |", trial.name(), trial.promise());
        assert!(line.starts_with(&begin), "{line}\nshould begin with\n{begin}");
    }
}
