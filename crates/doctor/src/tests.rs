//! Real findings, and cases that only resemble a finding.

mod urls;

use std::sync::Arc;
use std::time::Duration;

use super::FindingKind::{BehindReset, Missing, Replaced, Unguarded, WentBack};
use super::*;
use idmill::Result;
use idmill::SequenceName;
use idmill::store::{
    Bounds, Change, GiveBack, Grant, MemoryStore, Page, Reserve, SequenceInfo, Store, StoreFuture,
};
use idmill_guard::{Guarded, Ledger, Ledgers, MemoryWitness, Witness};
use idmill_kit::WindowView;

fn name(name: &str) -> SequenceName {
    SequenceName::new(name).unwrap()
}

/// A store with its witness.
struct Both {
    store: MemoryStore,
    witness: MemoryWitness,
    guarded: Guarded,
}

impl Both {
    fn new() -> Self {
        let (store, witness) = (MemoryStore::new(), MemoryWitness::new());
        let guarded = Guarded::new(store.clone(), witness.clone());
        Self { store, witness, guarded }
    }

    async fn draw(&self, name: &str, count: u64) -> Grant {
        let request = Reserve::new(self::name(name), count).create(Bounds::of::<i32>());
        self.guarded.reserve(&request).await.unwrap()
    }

    fn doctor(&self) -> Doctor {
        // The memory store is not durable, which is a separate finding.
        Doctor::new(Arc::new(self.store.clone())).witness(Arc::new(self.witness.clone()))
    }

    async fn kinds(&self, doctor: &Doctor) -> Vec<FindingKind> {
        let found = doctor.examine().await.findings;
        found.iter().map(|found| found.kind).filter(|kind| *kind != FindingKind::LosesWrites).collect()
    }
}

/// A witness that lists old ledgers, and reads the current ones.
#[derive(Debug)]
struct Late {
    listed: Vec<(SequenceName, Ledger)>,
    now: MemoryWitness,
}

impl Witness for Late {
    fn read<'a>(&'a self, name: &'a SequenceName) -> StoreFuture<'a, Result<Option<Ledger>>> {
        self.now.read(name)
    }

    fn swap<'a>(
        &'a self,
        name: &'a SequenceName,
        seen: Option<&'a Ledger>,
        wanted: &'a Ledger,
    ) -> StoreFuture<'a, Result<bool>> {
        self.now.swap(name, seen, wanted)
    }

    fn list<'a>(&'a self, _: &'a Page) -> StoreFuture<'a, Result<Ledgers>> {
        Box::pin(async {
            let mut ledgers = Ledgers::default();
            ledgers.ledgers.clone_from(&self.listed);
            Ok(ledgers)
        })
    }
}

/// The memory store loses its grants when its process stops.
#[tokio::test]
async fn store_that_loses_writes_is_an_error_or_a_warning() {
    let both = Both::new();
    let store: Arc<dyn Store> = Arc::new(both.store.clone());
    for (doctor, severity) in [
        (Doctor::new(store.clone()), Severity::Error),
        (Doctor::new(store).witness(Arc::new(both.witness.clone())), Severity::Warning),
    ] {
        let found = doctor.examine().await.findings;
        let found: Vec<_> = found.iter().map(|found| (found.kind, found.severity)).collect();
        assert_eq!(found, [(FindingKind::LosesWrites, severity)]);
    }
}

#[tokio::test]
async fn concurrent_changes_are_not_reported() {
    let both = Both::new();
    let grant = both.draw("orders", 10).await;
    both.draw("reset", 10).await;
    both.draw("removed", 10).await;
    let listed = both.witness.list(&Page::default()).await.unwrap().ledgers;
    // Each change happens after the ledgers are listed and before the store is read.
    let rest = idmill::IdRange::new(5, 6).unwrap();
    assert!(both.guarded.give_back(&GiveBack::new(name("orders"), grant.identity, rest)).await.unwrap());
    both.guarded.set(&name("reset"), Change::new().next(3).backwards(true)).await.unwrap();
    both.guarded.remove(&name("removed"), None).await.unwrap();
    let late = Late { listed, now: both.witness.clone() };
    assert_eq!(both.kinds(&both.doctor().witness(Arc::new(late))).await, []);
}

#[tokio::test]
async fn unchanged_ledger_above_the_store_is_reported() {
    let both = Both::new();
    for sequence in ["a", "b", "c"] {
        both.draw(sequence, 10).await;
    }
    assert_eq!(both.kinds(&both.doctor()).await, []);
    let backup = both.store.snapshot();
    both.draw("a", 10).await;
    both.guarded.set(&name("b"), Change::new().next(3).backwards(true)).await.unwrap();
    both.draw("b", 5).await;
    both.draw("d", 5).await;
    both.store.restore(&backup);
    both.store.remove(&name("c"), None).await.unwrap();
    both.store.create(&name("c"), Bounds::of::<i32>()).await.unwrap();
    let doctor = both.doctor();
    assert_eq!(both.kinds(&doctor).await, [WentBack, BehindReset, Replaced, Missing]);
    for finding in doctor.examine().await.findings {
        apply(&both.store, &finding.remedy).await.unwrap();
    }
    assert_eq!(
        both.kinds(&doctor).await,
        [BehindReset, Replaced, Missing],
        "only remedies that raise a sequence are applied"
    );
    assert_eq!(both.store.inspect(&name("a")).await.unwrap().unwrap().next, Some(21));
}

#[tokio::test]
async fn remedy_for_a_recreated_sequence_changes_nothing() {
    let both = Both::new();
    both.draw("a", 10).await;
    let backup = both.store.snapshot();
    both.draw("a", 10).await;
    both.store.restore(&backup);
    let findings = both.doctor().examine().await.findings;
    both.store.remove(&name("a"), None).await.unwrap();
    both.store.create(&name("a"), Bounds::of::<i32>()).await.unwrap();
    let remedy = &findings.iter().find(|found| found.kind == FindingKind::WentBack).unwrap().remedy;
    assert_eq!(apply(&both.store, remedy).await.unwrap_err().kind(), idmill::ErrorKind::Conflict);
    assert_eq!(both.store.inspect(&name("a")).await.unwrap().unwrap().next, Some(1));
}

#[tokio::test]
async fn unguarded_draws_are_reported_but_not_unused_sequences() {
    let both = Both::new();
    both.store.create(&name("new"), Bounds::of::<i32>()).await.unwrap();
    both.store.reserve(&Reserve::new(name("bare"), 5).create(Bounds::of::<i32>())).await.unwrap();
    assert_eq!(both.kinds(&both.doctor()).await, [FindingKind::Unguarded]);
    both.witness.set_away(true);
    assert_eq!(
        both.kinds(&both.doctor()).await,
        [FindingKind::NotSeen],
        "reported once, not once per sequence"
    );
}

#[tokio::test(start_paused = true)]
async fn rate_is_measured_on_the_same_sequence() {
    let both = Both::new();
    let doctor = both.doctor().measures(true).ends_within(Duration::from_secs(3600));
    let most = u64::from(i32::MAX.unsigned_abs());
    both.draw("fast", most - 10_000).await;
    both.draw("slow", most - 10_000).await;
    both.draw("gone", most - 10_000).await;
    both.draw("revoked", most - 10_000).await;
    let earlier = doctor.examine().await.reached.unwrap();
    tokio::time::advance(Duration::from_secs(100)).await;
    both.draw("fast", 1_000).await;
    both.draw("slow", 10).await;
    both.guarded.remove(&name("gone"), None).await.unwrap();
    both.draw("gone", 1_000).await;
    both.guarded.set(&name("revoked"), Change::new().revoke(true)).await.unwrap();
    both.draw("revoked", 1_000).await;
    both.draw("new", most - 9_000).await;
    let ends = |findings: Vec<Finding>| {
        let ends = findings.into_iter().filter(|found| found.kind == FindingKind::EndsSoon);
        ends.map(|found| (found.sequence.unwrap(), found.found)).collect::<Vec<_>>()
    };
    let found = ends(doctor.examine_since(Some(&earlier)).await.findings);
    assert_eq!(
        found,
        [("fast".to_owned(), "9000 ids are left; they last 15 min at 10.0 per second".to_owned())]
    );
    // A configured rate takes precedence over a measured one.
    let told = doctor.rate(name("fast"), 0.1).rate(name("slow"), 5.0);
    let found = ends(told.examine_since(Some(&earlier)).await.findings);
    assert_eq!(found.into_iter().map(|(name, _)| name).collect::<Vec<_>>(), ["slow"]);
}

/// A store that takes 100 s to list its sequences.
#[derive(Debug)]
struct SlowToList(MemoryStore);

impl Store for SlowToList {
    idmill::store_calls!(|this| this.0 => capabilities reserve create inspect set remove);

    fn list<'a>(&'a self, page: &'a Page) -> StoreFuture<'a, Result<idmill::store::Listing>> {
        Box::pin(async move {
            tokio::time::sleep(Duration::from_secs(100)).await;
            self.0.list(page).await
        })
    }
}

#[tokio::test(start_paused = true)]
async fn rate_does_not_include_the_time_of_listing() {
    let both = Both::new();
    both.draw("s", 1).await;
    let doctor = Doctor::new(Arc::new(SlowToList(both.store.clone()))).measures(true);
    for examines in [true, false] {
        let examined = if examines { doctor.examine().await.reached } else { None };
        let reached = if examines { examined.unwrap() } else { doctor.reached().await.unwrap() };
        // The sequence is read twice, 200 s apart.
        tokio::time::advance(Duration::from_secs(100)).await;
        both.draw("s", 2_000).await;
        let lasts = doctor.examine_since(Some(&reached)).await.lasts;
        let left = both.store.inspect(&name("s")).await.unwrap().unwrap().remaining();
        assert_eq!(lasts, [(name("s"), left as f64 / 10.0)]);
    }
}

/// A view in which all windows have the same end. The flag makes the view unreachable.
#[derive(Debug)]
struct Seen(u128, std::sync::atomic::AtomicBool);

impl WindowView for Seen {
    fn end<'a>(&'a self, _: &'a SequenceInfo) -> StoreFuture<'a, Result<Option<u128>>> {
        let is_away = self.1.load(std::sync::atomic::Ordering::Relaxed);
        let away = idmill::Error::new(idmill::ErrorKind::Unavailable, "the window is away");
        Box::pin(async move { if is_away { Err(away) } else { Ok(Some(self.0)) } })
    }
}

#[tokio::test]
async fn window_ahead_is_found_and_unreachable_is_reported_once() {
    let both = Both::new();
    both.draw("a", 100).await;
    both.draw("b", 50).await;
    let window = Arc::new(Seen(101, false.into()));
    let (doctor, mut found) = (both.doctor(), Vec::new());
    let sequences = both.store.list_all().await.unwrap();
    let mut view: Option<Arc<dyn WindowView>> = Some(window.clone());
    doctor.compare_windows(&mut view, &sequences, &mut found).await;
    let [finding] = &found[..] else { panic!("{found:?}") };
    assert_eq!((finding.kind, finding.sequence.as_deref()), (WentBack, Some("b")));
    assert_eq!(apply(&both.store, &finding.remedy).await.unwrap().unwrap().next, Some(101));
    // An outdated list of sequences must not cause a finding.
    found.clear();
    doctor.compare_windows(&mut view, &sequences, &mut found).await;
    assert_eq!(found, []);
    window.1.store(true, std::sync::atomic::Ordering::Relaxed);
    doctor.compare_windows(&mut view, &sequences, &mut found).await;
    assert_eq!(found.iter().map(|found| found.kind).collect::<Vec<_>>(), [FindingKind::NotSeen]);
    assert!(view.is_none(), "the window is not read again");
}

#[tokio::test(start_paused = true)]
async fn time_to_exhaustion_needs_a_given_or_measured_rate() {
    let both = Both::new();
    let most = u64::from(i32::MAX.unsigned_abs());
    for each in ["fast", "rests", "told"] {
        both.draw(each, most - 10_000).await;
    }
    let doctor = both.doctor().rate(name("told"), 5.0).measures(true);
    let first = doctor.examine().await;
    assert_eq!(first.lasts, [(name("told"), 2_000.0)]);
    tokio::time::advance(Duration::from_secs(100)).await;
    both.draw("fast", 1_000).await;
    let lasts = doctor.examine_since(first.reached.as_ref()).await.lasts;
    assert_eq!(lasts, [(name("fast"), 900.0), (name("told"), 2_000.0)]);
    assert_eq!(doctor.measures(false).examine_since(first.reached.as_ref()).await.lasts, []);
}

#[tokio::test]
async fn too_narrow_type_is_a_warning_then_an_error() {
    let both = Both::new();
    both.draw("s", 127).await;
    let doctor = both.doctor().holds(name("s"), "i8", 127).holds(name("none"), "i8", 127);
    let severity = async || {
        let found = doctor.examine().await.findings;
        assert!(found.iter().any(|found| found.kind == FindingKind::Missing), "{found:?}");
        found.into_iter().find(|found| found.kind == FindingKind::TooNarrow).map(|found| found.severity)
    };
    assert_eq!(severity().await, Some(Severity::Warning));
    both.draw("s", 1).await;
    assert_eq!(severity().await, Some(Severity::Error));
    both.guarded.remove(&name("s"), None).await.unwrap();
    both.guarded.create(&name("s"), Bounds::new(1, 127).unwrap()).await.unwrap();
    assert_eq!(severity().await, None);
}

#[tokio::test(start_paused = true)]
async fn unclaimed_ids_are_a_warning_until_they_are_passed() {
    let both = Both::new();
    both.draw("orders", 10).await;
    both.store.reserve(&Reserve::new(name("orders"), 1_000)).await.unwrap();
    let findings = both.doctor().examine().await.findings;
    let finding = findings.iter().find(|found| found.kind == Unguarded).expect("a finding");
    assert_eq!(finding.severity, Severity::Warning);
    assert!(finding.found.starts_with("ids 11 to 1010 were reserved or skipped"), "{}", finding.found);
    both.draw("orders", 1).await;
    assert_eq!(both.kinds(&both.doctor()).await, []);
}

#[tokio::test]
async fn unconfirmed_removal_is_pending_until_repeated() {
    let both = Both::new();
    both.draw("orders", 10).await;
    let announced = both.witness.ledger("orders").unwrap().removing(None);
    both.witness.set_ledger(&name("orders"), announced);
    let pending = [FindingKind::Pending];
    assert_eq!(both.kinds(&both.doctor()).await, pending);
    both.store.remove(&name("orders"), None).await.unwrap();
    assert_eq!(
        both.kinds(&both.doctor()).await,
        pending,
        "removed from the store, but not confirmed at the witness"
    );
    both.guarded.remove(&name("orders"), None).await.unwrap();
    assert_eq!(both.kinds(&both.doctor()).await, []);
}

#[tokio::test]
async fn recreation_keeps_the_bounds_that_are_known() {
    let both = Both::new();
    both.draw("replaced", 10).await;
    both.draw("missing", 10).await;
    for sequence in ["replaced", "missing"] {
        both.store.remove(&name(sequence), None).await.unwrap();
    }
    both.store.create(&name("replaced"), Bounds::new(5, 500).unwrap()).await.unwrap();
    let doctor = both.doctor();
    let remedies = async |doctor: &Doctor| {
        let found = doctor.examine().await.findings.into_iter().map(|found| found.remedy);
        found.filter(|remedy| matches!(remedy, Remedy::Recreate { .. })).collect::<Vec<_>>()
    };
    let of = |sequence, bounds| Remedy::Recreate { name: name(sequence), next: 11, bounds };
    let known = of("replaced", Bounds::new(5, 500).ok());
    assert_eq!(remedies(&doctor).await, [of("missing", None), known.clone()]);
    let typed = doctor.holds(name("missing"), "i16", 32_767);
    assert_eq!(remedies(&typed).await, [of("missing", Bounds::new(1, 32_767).ok()), known]);
}
