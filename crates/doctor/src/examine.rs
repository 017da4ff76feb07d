//! Examines a store, and compares it with a witness, a window and columns.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future;
use futures_util::stream::{self, StreamExt};
use tokio::time::{Instant, sleep};

use super::ColumnUrl;
use super::finding::Finding;
use super::judge::{self, Holders};
use idmill::SequenceName;
use idmill::store::{Identity, Page, Pages, SequenceInfo, Store};
use idmill::{Error, ErrorKind, Result};
use idmill_guard::{Ledger, Ledgers, Witness};
use idmill_kit::{CONNECT_TIMEOUT, WindowView};
use idmill_url::StoreUrl;

/// The number of sequences that are examined concurrently.
const AT_ONCE: usize = 16;
const WINDOW: &str = "the window";
/// The maximum number of comparisons with a ledger that changes concurrently.
const LOOKS: usize = 4;
/// The time between two checks of a sequence whose last reserve is not claimed yet.
const CLAIMED_WITHIN: Duration = Duration::from_secs(1);

/// Examines the sequences of a store, and compares them with independent records.
///
/// The records are read before the store, so ids that are handed out in between raise no alarm. Only the
/// check for missing ledgers reads the store first. An examination is read-only. It needs memory for one page
/// of sequences and for the findings.
#[derive(Clone, Debug)]
pub struct Doctor {
    store: Arc<dyn Store>,
    url: Option<StoreUrl>,
    witness: Option<Arc<dyn Witness>>,
    columns: Vec<(SequenceName, ColumnUrl)>,
    types: BTreeMap<SequenceName, (String, u64)>,
    rates: BTreeMap<SequenceName, f64>,
    ends_within: Duration,
    timeout: Duration,
    measures: bool,
}

/// The result of [`Doctor::examine`].
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Examined {
    /// The findings, in the order of the checks.
    pub findings: Vec<Finding>,
    /// The number of sequences examined.
    pub sequences: u64,
    /// The progress of each sequence, if rates are [measured](Doctor::measures).
    pub reached: Option<Reached>,
    /// For each sequence with a known positive rate, the seconds until it is exhausted. Empty if rates are
    /// not measured.
    pub lasts: Vec<(SequenceName, f64)>,
}

/// The columns and types of each configured sequence.
type Held = BTreeMap<SequenceName, Holders>;

/// A sequence with reserved ids above its ledger's claims, and that ledger.
type Ahead = (SequenceName, Ledger);

/// The result of comparing a ledger with its sequence.
enum Compared {
    Agrees,
    /// The sequence is above all claims: a claim may be in progress.
    Ahead(Ahead),
    Found(Finding),
}

/// The progress of each sequence, to compute rates.
#[derive(Clone, Debug, Default)]
pub struct Reached(HashMap<SequenceName, Progress>);

#[derive(Clone, Copy, Debug)]
struct Progress {
    identity: Identity,
    reached: u128,
    /// When the sequence was read. A large store is listed in many pages, so each sequence has its own time.
    at: Instant,
}

impl Reached {
    fn note(&mut self, stored: &SequenceInfo) {
        let progress = Progress { identity: stored.identity, reached: stored.reached(), at: Instant::now() };
        self.0.insert(stored.name.clone(), progress);
    }

    /// Returns the ids per second since this record; `None` for a new sequence, or one whose identity has
    /// changed.
    fn rate(&self, stored: &SequenceInfo) -> Option<f64> {
        let before = self.0.get(&stored.name).filter(|before| before.identity == stored.identity)?;
        let drawn = stored.reached().checked_sub(before.reached)?;
        let seconds = before.at.elapsed().as_secs_f64();
        (seconds > 0.0).then(|| drawn as f64 / seconds)
    }
}

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident($this:ident, $($value:ident: $ty:ty),+) { $effect:stmt })+) => {
        impl Doctor {
            $($(#[$doc])*
            #[must_use]
            pub fn $name(mut $this, $($value: $ty),+) -> Self {
                $effect
                $this
            })+
        }
    };
}

setters! {
    /// Sets the URL of the store. The doctor then also checks the window in front of the store, other objects
    /// with the store's name, and the sequences whose reserves the store rejects.
    reached_at(self, url: StoreUrl) { self.url = Some(url) }

    /// Compares the store with the ledgers of this witness.
    witness(self, witness: Arc<dyn Witness>) { self.witness = Some(witness) }

    /// Compares the sequence with the largest id in this column. A sequence can have several columns.
    column(self, name: SequenceName, column: ColumnUrl) { self.columns.push((name, column)) }

    /// Sets the type of the sequence's ids, and the largest id that it can hold.
    holds(self, name: SequenceName, of_type: impl Into<String>, largest: u64) {
        let _ = self.types.insert(name, (of_type.into(), largest))
    }

    /// Sets the rate of the sequence in ids per second, instead of the measured one.
    rate(self, name: SequenceName, per_second: f64) { let _ = self.rates.insert(name, per_second) }

    /// Warns of sequences that end within this time. Default 30 days.
    ends_within(self, time: Duration) { self.ends_within = time }

    /// Waits this long for each column. Default 30 s.
    timeout(self, limit: Duration) { self.timeout = limit }

    /// Records the progress of each sequence, so that the next examination can compute its rate and remaining
    /// time. Needs memory for every sequence.
    measures(self, measures: bool) { self.measures = measures }
}

impl Doctor {
    /// The default of [`ends_within`](Self::ends_within): 30 days.
    pub const ENDS_WITHIN: Duration = Duration::from_secs(30 * 86_400);

    /// Creates a doctor for this store.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            url: None,
            witness: None,
            columns: Vec::new(),
            types: BTreeMap::new(),
            rates: BTreeMap::new(),
            ends_within: Self::ENDS_WITHIN,
            timeout: CONNECT_TIMEOUT,
            measures: false,
        }
    }

    /// Examines the store once. A check that failed is also a finding.
    pub async fn examine(&self) -> Examined {
        self.examine_since(None).await
    }

    /// Like [`examine`](Self::examine), with rates since an earlier examination. Choose one from several
    /// refills ago, because a sequence advances by whole steps.
    pub async fn examine_since(&self, earlier: Option<&Reached>) -> Examined {
        let guarded = self.witness.is_some();
        let mut seen = Examined::default();
        seen.findings.extend(judge::forgets(self.store.capabilities().durability, guarded));
        self.look_for_others(&mut seen.findings).await;
        let held = self.look_at_columns(&mut seen.findings).await;
        self.compare_columns(&held, &mut seen.findings).await;
        self.compare_ledgers(&held, &mut seen.findings).await;
        self.look_for_refusals(&mut seen.findings).await;
        self.look_at_all(earlier, &held, &mut seen).await;
        seen
    }

    /// Returns the progress of each sequence.
    ///
    /// # Errors
    /// Those of [`Store::list`].
    pub async fn reached(&self) -> Result<Reached> {
        let (mut reached, mut pages) = (Reached::default(), Pages::new(&*self.store, Page::default()));
        while let Some(page) = pages.next().await? {
            page.sequences.iter().for_each(|stored| reached.note(stored));
        }
        Ok(reached)
    }

    async fn look_for_others(&self, findings: &mut Vec<Finding>) {
        let Some(url) = &self.url else { return };
        let found = seen(url.lookalikes().await, judge::LOOKALIKES, findings);
        findings.extend(found.flatten().map(judge::ambiguous));
    }

    /// Reads the columns sequentially, because a column without an index needs a full scan.
    async fn look_at_columns(&self, findings: &mut Vec<Finding>) -> Held {
        let mut held = Held::default();
        for (name, of_type) in &self.types {
            held.entry(name.clone()).or_default().of_type = Some(of_type.clone());
        }
        for (name, column) in &self.columns {
            match column.largest_within(self.timeout).await {
                Ok(mut largest) => {
                    largest.default = largest.default.filter(|default| !self.draws_likewise(name, default));
                    findings.extend(judge::of_column(name, column, &largest));
                    held.entry(name.clone()).or_default().columns.push((column.clone(), largest));
                }
                Err(error) => {
                    let asked = format!("the largest id in {column}");
                    findings.push(judge::not_seen(asked, Some(name), &error));
                }
            }
        }
        held
    }

    /// Returns whether the default of a column draws from the native sequence, which is allowed.
    fn draws_likewise(&self, name: &SequenceName, default: &str) -> bool {
        let native = |url: &StoreUrl| url.to_string().contains("sequences=native");
        super::column::drawn_by(default).is_some_and(|drawn| drawn == name.as_str())
            && self.url.as_ref().is_some_and(native)
    }

    async fn compare_columns(&self, held: &Held, findings: &mut Vec<Finding>) {
        for (name, holders) in held.iter().filter(|(_, holders)| !holders.columns.is_empty()) {
            match self.store.inspect(name).await {
                Ok(Some(stored)) => findings.extend(judge::of_columns(&stored, holders)),
                // A missing sequence is reported later.
                Ok(None) => {}
                Err(error) => findings.extend(not_read(name, "the sequence", &error)),
            }
        }
    }

    async fn look_for_refusals(&self, findings: &mut Vec<Finding>) {
        let Some(url) = &self.url else { return };
        let refused = seen(url.refused().await, judge::REFUSALS, findings).unwrap_or_default();
        findings.extend(refused.iter().map(|(name, error)| judge::refused(name, error)));
    }

    async fn compare_ledgers(&self, held: &Held, findings: &mut Vec<Finding>) {
        let Some(witness) = &self.witness else { return };
        let (mut page, mut ahead) = (Page::default(), Vec::new());
        loop {
            let listed = seen(witness.list(&page).await, "the ledgers of the witness", findings);
            let Some(listed) = listed else { return };
            let next = listed.page_after(&page);
            let Ledgers { ledgers, unreadable, .. } = listed;
            findings.extend(unreadable.into_iter().map(|found| judge::unreadable(found, "the witness")));
            let compared =
                ledgers.into_iter().map(|(name, ledger)| self.compare(&**witness, held, name, ledger));
            let mut compared = stream::iter(compared).buffered(AT_ONCE);
            while let Some(compared) = compared.next().await {
                match compared {
                    Compared::Agrees => {}
                    Compared::Ahead(found) => ahead.push(found),
                    Compared::Found(finding) => findings.push(finding),
                }
            }
            let Some(next) = next else { break };
            page = next;
        }
        self.look_for_claims(&**witness, ahead, findings).await;
    }

    /// Reports sequences whose reserved ids above the ledger's claims are still unclaimed after a while. If
    /// the ledger changes, the sequence is used through the guard and is not reported. Nor is it reported if
    /// a read fails.
    async fn look_for_claims(
        &self,
        witness: &dyn Witness,
        mut ahead: Vec<Ahead>,
        findings: &mut Vec<Finding>,
    ) {
        let mut found = Vec::new();
        for _ in 0..LOOKS {
            if ahead.is_empty() {
                return;
            }
            sleep(CLAIMED_WITHIN).await;
            let looked = ahead.into_iter().map(|(name, ledger)| async move {
                let again = witness.read(&name).await.ok()?.filter(|again| *again == ledger)?;
                let stored = self.store.inspect(&name).await.ok()??;
                Some((judge::not_claimed(&again, &stored)?, (name, again)))
            });
            let looked = stream::iter(looked).buffered(AT_ONCE).filter_map(future::ready);
            (found, ahead) = looked.unzip().await;
        }
        findings.append(&mut found);
    }

    async fn compare(
        &self,
        witness: &dyn Witness,
        held: &Held,
        name: SequenceName,
        ledger: Ledger,
    ) -> Compared {
        let unread =
            |error| not_read(&name, judge::OF_WITNESS, &error).map_or(Compared::Agrees, Compared::Found);
        self.confirmed(witness, held, &name, ledger).await.unwrap_or_else(unread)
    }

    /// Returns a finding only if the ledger stays the same. A give-back lowers the ledger and then the store,
    /// so a check that reads the ledger before both steps and the store after them would report a loss. If
    /// the ledger changes each time, the sequence is used through the guard, which detects a loss itself.
    async fn confirmed(
        &self,
        witness: &dyn Witness,
        held: &Held,
        name: &SequenceName,
        mut ledger: Ledger,
    ) -> Result<Compared> {
        let nothing = Holders::default();
        let holders = held.get(name).unwrap_or(&nothing);
        let here = self.url.as_ref().map(StoreUrl::place);
        for _ in 0..LOOKS {
            let stored = self.store.inspect(name).await?;
            let shared = || judge::shared(name, &ledger, stored.as_ref(), here.as_deref());
            let found = shared().or_else(|| judge::against(name, &ledger, stored.as_ref(), holders));
            let Some(finding) = found else {
                let is_ahead = stored.is_some_and(|stored| judge::is_ahead(&ledger, &stored));
                return Ok(if is_ahead { Compared::Ahead((name.clone(), ledger)) } else { Compared::Agrees });
            };
            match witness.read(name).await? {
                Some(again) if again == ledger => return Ok(Compared::Found(finding)),
                Some(again) => ledger = again,
                None => return Ok(Compared::Agrees),
            }
        }
        Ok(Compared::Agrees)
    }

    /// Adds all findings about the store itself, page by page.
    async fn look_at_all(&self, earlier: Option<&Reached>, held: &Held, seen: &mut Examined) {
        let mut reached = self.measures.then(Reached::default);
        let columns = self.columns.iter().map(|(name, _)| name);
        let mut asked: BTreeSet<_> = self.types.keys().chain(self.rates.keys()).chain(columns).collect();
        let mut pages = Pages::new(&*self.store, Page::default());
        let mut window = self.window(&mut seen.findings);
        loop {
            let page = self::seen(pages.next().await, "the list of sequences", &mut seen.findings);
            let Some(page) = page else { return };
            let Some(page) = page else { break };
            for stored in &page.sequences {
                seen.sequences += 1;
                asked.remove(&stored.name);
                if let Some(reached) = &mut reached {
                    reached.note(stored);
                }
                let rate = self.rate_of(stored, earlier);
                seen.findings.extend(self.of_stored(stored, rate, held));
                let lasts = rate.filter(|_| self.measures).and_then(|rate| judge::lasts(stored, rate));
                seen.lasts.extend(lasts.map(|seconds| (stored.name.clone(), seconds)));
            }
            self.look_for_ledgers(&page.sequences, &mut seen.findings).await;
            self.compare_windows(&mut window, &page.sequences, &mut seen.findings).await;
            let unreadable = page.unreadable.into_iter().map(|found| judge::unreadable(found, "the store"));
            seen.findings.extend(unreadable);
        }
        seen.findings.extend(asked.into_iter().map(judge::missing));
        seen.reached = reached;
    }

    fn rate_of(&self, stored: &SequenceInfo, earlier: Option<&Reached>) -> Option<f64> {
        let given = self.rates.get(&stored.name).copied();
        given.or_else(|| earlier.and_then(|earlier| earlier.rate(stored)))
    }

    fn of_stored(&self, stored: &SequenceInfo, rate: Option<f64>, held: &Held) -> Vec<Finding> {
        let nothing = Holders::default();
        let holders = held.get(&stored.name).unwrap_or(&nothing);
        let found = [
            judge::exhausted(stored, holders),
            rate.and_then(|rate| judge::ends(stored, rate, self.ends_within, holders)),
            holders
                .of_type
                .as_ref()
                .and_then(|(of_type, largest)| judge::too_narrow(stored, of_type, *largest)),
        ];
        found.into_iter().flatten().collect()
    }

    fn window(&self, findings: &mut Vec<Finding>) -> Option<Arc<dyn WindowView>> {
        seen(self.url.as_ref()?.window(), WINDOW, findings)?
    }

    /// Compares windows with the store. If the window fails, adds one finding instead of one per sequence.
    pub(super) async fn compare_windows(
        &self,
        window: &mut Option<Arc<dyn WindowView>>,
        sequences: &[SequenceInfo],
        findings: &mut Vec<Finding>,
    ) {
        let Some(view) = window.clone() else { return };
        let compared = sequences.iter().cloned().map(|stored| self.compare_window(&*view, stored));
        let mut compared = stream::iter(compared).buffered(AT_ONCE);
        while let Some(outcome) = compared.next().await {
            let Some(finding) = seen(outcome, WINDOW, findings) else {
                *window = None;
                return;
            };
            findings.extend(finding);
        }
    }

    async fn compare_window(&self, window: &dyn WindowView, stored: SequenceInfo) -> Result<Option<Finding>> {
        let Some(end) = window.end(&stored).await?.filter(|end| *end > stored.reached()) else {
            return Ok(None);
        };
        // The store may have granted more ids before the window was read, so read the store again.
        let now = self.store.inspect(&stored.name).await?;
        let now = now.filter(|now| now.identity == stored.identity);
        Ok(now.and_then(|now| judge::behind_window(&now, end)))
    }

    async fn look_for_ledgers(&self, sequences: &[SequenceInfo], findings: &mut Vec<Finding>) {
        let Some(witness) = &self.witness else { return };
        let names: Vec<_> = sequences.iter().map(|stored| stored.name.clone()).collect();
        for (stored, ledger) in sequences.iter().zip(witness.read_many(&names).await) {
            // Ignore errors: earlier checks have already reported most errors of the witness.
            if matches!(ledger, Ok(None)) {
                findings.extend(judge::unguarded(stored));
            }
        }
    }
}

/// Returns the value. An error becomes a finding about `asked`.
fn seen<T>(outcome: Result<T>, asked: &str, findings: &mut Vec<Finding>) -> Option<T> {
    outcome.map_err(|error| findings.push(judge::not_seen(asked, None, &error))).ok()
}

/// Returns the finding of a sequence that could not be read. `None` for a corrupt record, which is reported
/// later.
fn not_read(name: &SequenceName, asked: &str, error: &Error) -> Option<Finding> {
    (error.kind() != ErrorKind::StoreViolation).then(|| judge::not_seen(asked, Some(name), error))
}

impl Finding {
    /// Creates the finding that a store or a witness could not be opened.
    pub fn of_opening(what: impl Into<String>, error: &Error) -> Self {
        judge::not_seen(what, None, error)
    }
}
