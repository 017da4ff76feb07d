//! Checks that need the URL of the store, its window, or a column.

use std::fmt;
use std::str::FromStr;

use super::*;
use FindingKind::{Ambiguous, ColumnDefault, EndsSoon, InUse, NotSeen, Refused};
use idmill::{Error, ErrorKind};
use idmill_kit::{ColumnPath, Largest, Scheme, Target, WindowTarget};
use idmill_url::Schemes;

/// A database that behaves as the words in its URL request.
#[derive(Clone, Debug)]
struct Toy(String);

impl FromStr for Toy {
    type Err = Error;

    fn from_str(url: &str) -> Result<Self> {
        Ok(Self(url.to_owned()))
    }
}

impl fmt::Display for Toy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn away() -> Error {
    Error::new(ErrorKind::Unavailable, "it is away")
}

fn is_away(url: &str) -> Result<()> {
    if url.contains("away") { Err(away()) } else { Ok(()) }
}

impl Target for Toy {
    idmill_kit::target!(|toy| "toy" => open);

    fn largest<'a>(&'a self, _: &'a ColumnPath) -> StoreFuture<'a, Result<Largest>> {
        Box::pin(async {
            if self.0.contains("slow") {
                std::future::pending::<()>().await;
            }
            is_away(&self.0)?;
            let default = self.0.contains("default").then(|| "nextval('s'::regclass)".to_owned());
            Ok(Largest::new(20, "", None).default_value(default))
        })
    }

    fn lookalikes(&self) -> StoreFuture<'_, Result<Option<String>>> {
        Box::pin(async { is_away(&self.0).map(|()| self.0.contains("twin").then(|| "a twin".to_owned())) })
    }

    fn refused(&self) -> StoreFuture<'_, Result<Vec<(SequenceName, Error)>>> {
        let refused = vec![(name("old"), Error::new(ErrorKind::StoreViolation, "it was restored"))];
        Box::pin(async {
            is_away(&self.0).map(|()| if self.0.contains("twin") { refused } else { Vec::new() })
        })
    }
}

async fn open(_: Toy) -> Result<MemoryStore> {
    Ok(MemoryStore::new())
}

impl WindowTarget for Toy {
    fn before(&self, store: Arc<dyn Store>) -> Result<Arc<dyn Store>> {
        Ok(store)
    }

    fn view(&self) -> Result<Option<Arc<dyn WindowView>>> {
        is_away(&self.0).map(|()| Some(Arc::new(Seen(31, false.into())) as _))
    }
}

fn schemes() -> Schemes {
    Schemes::default()
        .with(&[Scheme::store::<Toy>("toy", "toy:"), Scheme::window::<Toy>("view", "view:")])
        .unwrap()
}

fn at(doctor: Doctor, url: &str) -> Doctor {
    doctor.reached_at(schemes().parse(url).unwrap())
}

fn check(doctor: Doctor, url: &str) -> Doctor {
    doctor.column(name("s"), ColumnUrl::parse(&schemes(), url).unwrap())
}

/// Returns the kind and the text of each finding, except that the store is in memory.
async fn found(doctor: &Doctor) -> Vec<(FindingKind, String)> {
    let found = doctor.examine().await.findings.into_iter();
    let found = found.filter(|found| found.kind != FindingKind::LosesWrites);
    found.map(|found| (found.kind, format!("{}: {}", found.asked, found.found))).collect()
}

fn expected<const N: usize>(found: [(FindingKind, &str); N]) -> Vec<(FindingKind, String)> {
    found.map(|(kind, text)| (kind, text.to_owned())).into()
}

#[tokio::test]
async fn url_leads_to_others_refusals_and_the_window() {
    let both = Both::new();
    both.draw("s", 29).await;
    assert_eq!(found(&at(both.doctor(), "toy:sound")).await, []);
    let all = found(&at(both.doctor(), "toy:twin?window=view:")).await;
    let ahead = "the window: ids below 31 were put into the window, but the next id is 30: the store \
                 went back in time";
    assert_eq!(
        all,
        expected([
            (Ambiguous, "other objects with the store's name: a twin"),
            (Refused, "whether the store accepts reserves of the sequence: it was restored"),
            (WentBack, ahead),
        ])
    );
    both.draw("s", 1).await;
    assert_eq!(found(&at(both.doctor(), "toy:sound?window=view:")).await, []);
}

#[tokio::test]
async fn each_check_of_the_url_that_fails_is_named() {
    let both = Both::new();
    let doctor = check(at(both.doctor(), "toy:away?window=view:away"), "toy:away?column=t.id");
    assert_eq!(
        found(&doctor).await,
        expected([
            (NotSeen, "other objects with the store's name: it is away"),
            (NotSeen, "the largest id in toy:away?column=t.id: it is away"),
            (NotSeen, "the sequences that the store rejects: it is away"),
            (NotSeen, "the window: it is away"),
            (Missing, "the sequence: the store has no sequence of this name"),
        ])
    );
}

#[tokio::test]
async fn only_a_native_default_of_the_same_name_is_allowed() {
    for (sequence, url, is_allowed) in [
        ("s", Some("toy:?sequences=native"), true),
        ("other", Some("toy:?sequences=native"), false),
        ("s", Some("toy:"), false),
        ("s", None, false),
    ] {
        let both = Both::new();
        both.draw(sequence, 20).await;
        let column = ColumnUrl::parse(&schemes(), "toy:default?column=t.id").unwrap();
        let doctor = both.doctor().column(name(sequence), column);
        let doctor = url.into_iter().fold(doctor, at);
        let kinds = both.kinds(&doctor).await;
        assert_eq!(kinds, if is_allowed { vec![] } else { vec![ColumnDefault] }, "{sequence} {url:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn columns_are_compared_within_the_time() {
    let both = Both::new();
    both.draw("s", 19).await;
    let doctor = check(both.doctor(), "toy:?column=t.id").timeout(Duration::from_secs(5));
    let in_use = "the largest id in toy:?column=t.id: 20 is in use, and the next id is 20: ids will repeat";
    assert_eq!(found(&doctor).await, expected([(InUse, in_use)]));
    both.draw("s", 1).await;
    assert_eq!(found(&doctor).await, []);
    let slow = "the largest id in toy:slow?column=t.id: toy:slow?column=t.id did not answer within 5s; \
                add an index on the column";
    assert_eq!(found(&check(doctor, "toy:slow?column=t.id")).await, expected([(NotSeen, slow)]));
}

/// A store that can list sequences, and not read one.
#[derive(Debug)]
struct Listing(MemoryStore, ErrorKind);

impl Store for Listing {
    idmill::store_calls!(|this| this.0 => capabilities reserve create list set remove);

    fn inspect<'a>(&'a self, _: &'a SequenceName) -> StoreFuture<'a, Result<Option<SequenceInfo>>> {
        Box::pin(async { Err(Error::new(self.1, "it cannot be read")) })
    }
}

#[tokio::test]
async fn unread_sequence_is_reported_unless_corrupt() {
    let both = Both::new();
    both.draw("s", 30).await;
    let unread = expected([
        (NotSeen, "the sequence: it cannot be read"),
        (NotSeen, "the sequence's ledger in the witness: it cannot be read"),
    ]);
    for (kind, findings) in [(ErrorKind::Unavailable, unread), (ErrorKind::StoreViolation, Vec::new())] {
        let doctor = Doctor::new(Arc::new(Listing(both.store.clone(), kind)));
        let doctor = check(doctor.witness(Arc::new(both.witness.clone())), "toy:?column=t.id");
        assert_eq!(found(&doctor).await, findings);
    }
}

#[tokio::test]
async fn window_at_the_grants_needs_no_second_read() {
    let both = Both::new();
    both.draw("s", 30).await;
    let store = Listing(both.store.clone(), ErrorKind::Unavailable);
    let doctor = at(Doctor::new(Arc::new(store)), "toy:?window=view:");
    assert_eq!(found(&doctor).await, []);
}

#[tokio::test(start_paused = true)]
async fn sequences_are_counted_and_no_time_gives_no_rate() {
    let both = Both::new();
    both.draw("a", 1).await;
    both.draw("b", 1).await;
    let doctor = both.doctor().measures(true);
    let earlier = doctor.examine().await;
    assert_eq!(earlier.sequences, 2);
    both.draw("a", 1).await;
    let now = doctor.examine_since(earlier.reached.as_ref()).await;
    assert_eq!((now.sequences, now.lasts), (2, vec![]));
}

#[tokio::test]
async fn end_within_thirty_days_is_a_finding_by_default() {
    const DAYS_30: u64 = 2_592_000;
    let both = Both::new();
    let bounds = Bounds::new(1, DAYS_30 + 1).unwrap();
    both.store.create(&name("s"), bounds).await.unwrap();
    let doctor = both.doctor().rate(name("s"), 1.0);
    assert_eq!(found(&doctor).await, []);
    both.draw("s", 1).await;
    let ends = "how long the ids last: 2592000 ids are left; they last 30.0 days at 1.0 per second";
    assert_eq!(found(&doctor).await, expected([(EndsSoon, ends)]));
}
