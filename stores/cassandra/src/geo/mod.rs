//! Datacenter windows: every datacenter hands out ids from its own window, and contacts other datacenters
//! only to get the next range and to check for recalls.
//!
//! [`datacenter`](idmill_shared_cache::datacenter) describes the protocol and makes the decisions; this
//! module executes them. The global counter is a partition that is only accessed with SERIAL, except by
//! `list`. Each window is a partition that is only accessed with LOCAL_SERIAL. The two levels do not see each
//! other's unfinished writes.

mod knowledge;
mod windows;

use std::sync::Arc;
use std::time::Duration;

use idmill::store::{Bounds, Change, Grant, Identity, Reserve, SequenceInfo, Store, StoreFuture, exhausted};
use idmill::{Error, ErrorKind, Operation, Result, SequenceName};
use idmill_kit::Contention;
use idmill_shared_cache::datacenter;
use idmill_shared_cache::datacenter::{
    ClaimStep, Draw, Era, Floor, GlobalRow, Install, Outcome, Prepare, Taken, Token, WindowRow, prepare,
};
use idmill_shared_cache::{Claimed, Drawn, Installed, Source, Tiered, Window};

use self::knowledge::{Check, Knowledge};
use self::windows::Windows;
use super::reserve::{SequenceTable, global};
use super::schema::Table;

/// How long a draw waits for the recall check before it uses the window without the check.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum number of attempts to claim a range. If none is acknowledged, the refill fails, and the next
/// refill claims again under the same token.
const CLAIMS: u32 = 8;

/// State of a geo store, shared by its clones.
#[derive(Debug)]
pub(super) struct Geo {
    global: SequenceTable,
    windows: Windows,
    settings: GeoSettings,
    knowledge: Knowledge,
}

/// Settings of a geo store.
#[derive(Clone, Debug)]
pub(super) struct GeoSettings {
    pub(super) datacenter: String,
    pub(super) range: u64,
    pub(super) threshold: u64,
    pub(super) check: Duration,
}

/// The windows of one datacenter, with the global counter as their source.
#[derive(Clone, Debug)]
pub(super) struct DatacenterWindow(Arc<Geo>);

/// Builds a store that has the windows of a datacenter in front of the global counter.
pub(super) fn tiered(
    global: SequenceTable,
    windows: Table,
    settings: GeoSettings,
) -> Tiered<DatacenterWindow, DatacenterWindow> {
    let windows = Windows::new(windows, &settings.datacenter);
    let geo = Arc::new(Geo { global, windows, settings, knowledge: Knowledge::default() });
    Tiered::new(DatacenterWindow(geo.clone()), DatacenterWindow(geo))
}

impl Geo {
    /// Validates the window and takes ids from it.
    async fn draw(self: &Arc<Self>, request: &Reserve) -> Result<Drawn<Token>> {
        let name = &request.name;
        let mut era = self.hear_of_recalls(request).await?;
        let mut contest = Contention::new().begin();
        loop {
            let floor = self.knowledge.floor(name);
            let window = self.windows.read(name).await?;
            self.hold_against(name, floor, window.as_ref())?;
            let Some(window) = window.filter(|window| era.is_none_or(|era| era == window.era)) else {
                era = Some(self.mend(request, window.as_ref(), floor).await?);
                continue;
            };
            let take = match window.draw(request.count, request.ceiling) {
                Draw::Take(take) => take,
                Draw::Empty(token) => return Ok(Drawn::Empty(token)),
                Draw::AboveCeiling => return Err(exhausted(name, request.ceiling)),
            };
            let outcome = match self.windows.take(name, &take).await {
                Ok(true) => Outcome::Applied,
                Ok(false) => Outcome::Refused,
                // If the take was applied nevertheless, its ids are a gap.
                Err(error) => return Err(error),
            };
            if let Taken::Ids(ids) = take.after(outcome) {
                let mut left = window;
                take.apply(&mut left);
                self.knowledge.raise(name, Floor::of_window(&left));
                let low = left.low(self.settings.threshold).filter(|_| self.knowledge.may_refill(name));
                return Ok(Drawn::Ids { grant: ids.granted(window.era, window.bounds), low });
            }
            contest.lost(None).await?;
        }
    }

    /// Returns the last known era of the global row. If a check is due, reads the row first, or in the
    /// background if the last check failed.
    async fn hear_of_recalls(self: &Arc<Self>, request: &Reserve) -> Result<Option<Era>> {
        let name = &request.name;
        match self.knowledge.due(name, self.settings.check) {
            Check::Known(era) => return Ok(era),
            Check::Behind(era) => {
                let (geo, request) = (self.clone(), request.clone());
                tokio::spawn(async move { geo.ask(&request).await.map(drop) });
                return Ok(era);
            }
            Check::Now => {}
        }
        let begun = self.knowledge.begin(name);
        match tokio::time::timeout(TIMEOUT, self.ask(request)).await {
            Ok(Ok(row)) => Ok(Some(row.era)),
            // The datacenter is cut off, so use the window with the last known era.
            Ok(Err(error)) if error.kind() == ErrorKind::Unavailable => Ok(self.knowledge.era(name)),
            Ok(Err(error)) => Err(error),
            Err(_) => {
                self.knowledge.heard(name, begun, None);
                Ok(self.knowledge.era(name))
            }
        }
    }

    /// Reads the global row, creates it if missing, and stores its era.
    async fn ask(&self, request: &Reserve) -> Result<GlobalRow> {
        let begun = self.knowledge.begin(&request.name);
        let row = self.global.ensure(request).await.map(|row| global(&row, &self.settings.datacenter));
        self.knowledge.heard(&request.name, begun, row.as_ref().ok().map(|row| row.era));
        row
    }

    /// Rejects a window that is below a floor known before the window was read: such a window went back in
    /// time.
    fn hold_against(
        &self,
        name: &SequenceName,
        floor: Option<Floor>,
        window: Option<&WindowRow>,
    ) -> Result<()> {
        if floor.is_some_and(|floor| !floor.allows(window)) {
            return Err(self.windows.refuse(name, "the window was lost, or went back in time"));
        }
        if let Some(window) = window {
            self.knowledge.raise(name, Floor::of_window(window));
        }
        Ok(())
    }

    /// Creates a missing window, or resets a window of another era. The global row must be read after the
    /// window: see [`prepare`].
    async fn mend(&self, request: &Reserve, window: Option<&WindowRow>, floor: Option<Floor>) -> Result<Era> {
        let name = &request.name;
        let global =
            self.ask(request).await.map_err(|error| self.cut_off(error, "is missing, or was recalled"))?;
        match prepare(window, &global, floor.as_ref()) {
            Prepare::Ready => {}
            // The result does not matter, because the caller reads the window again.
            Prepare::Create(row) => drop(self.windows.create(name, &row).await?),
            Prepare::Reset(reset) => drop(self.windows.reset(name, &reset).await?),
            Prepare::Again(floor) => self.knowledge.raise(name, floor),
            Prepare::Corrupt(fault) => return Err(self.windows.refuse(name, fault)),
        }
        Ok(global.era)
    }

    /// Claims a range from the global counter, for the window of the token.
    async fn claim(&self, request: &Reserve, token: &Token) -> Result<Claimed> {
        let name = &request.name;
        for _ in 0..CLAIMS {
            let begun = self.knowledge.begin(name);
            let row = self.global.look_up(name).await.map_err(|error| self.used_up(error, token))?;
            // The sequence was removed. The next draw reads the global row, and creates it again if the
            // request allows it.
            let Some(row) = row else {
                self.knowledge.forget(name);
                return Ok(Claimed::Stale);
            };
            let global = global(&row, &self.settings.datacenter);
            self.knowledge.heard(name, begun, Some(global.era));
            let write = match global.claim(token, request.count, request.ceiling) {
                ClaimStep::Recorded(ids) => return Ok(global.claimed(ids)),
                ClaimStep::Send(write) => write,
                ClaimStep::Stale => {
                    Floor::of_global(&global).inspect(|floor| self.knowledge.raise(name, *floor));
                    return Ok(Claimed::Stale);
                }
                ClaimStep::Nothing if token.empty => {
                    return Err(exhausted(name, request.ceiling.min(global.bounds.max())));
                }
                ClaimStep::Nothing => {
                    self.knowledge.refilled(name, self.settings.check.max(TIMEOUT));
                    return Ok(Claimed::Nothing);
                }
                ClaimStep::Corrupt(fault) => return Err(self.windows.refuse(name, fault)),
            };
            let outcome = self.global.claim(name, &self.settings.datacenter, &write).await;
            if let Some(ids) = write.after(outcome.map_err(|error| self.used_up(error, token))?) {
                return Ok(global.claimed(ids));
            }
        }
        // No range is lost: if a claim was recorded, the next claim under this token gets its range.
        let error =
            Error::new(ErrorKind::Unavailable, "the global counter replied, but did not acknowledge a claim");
        Err(self.used_up(error, token))
    }

    fn used_up(&self, error: Error, token: &Token) -> Error {
        let state = if token.empty { "is used up" } else { "runs low" };
        self.cut_off(error, state)
    }

    /// Adds the window's state to the error. A request to the global counter reserves ids only for the
    /// window, never for a caller. So an unknown outcome can be returned as `Unavailable`.
    fn cut_off(&self, error: Error, state: &str) -> Error {
        if !matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::UnknownOutcome) {
            return error;
        }
        let message = format!(
            "the window of datacenter {} {state}, and could not be refilled from the global counter: \
             {error}",
            self.settings.datacenter
        );
        Error::new(ErrorKind::Unavailable, message).because(error)
    }
}

impl Window for DatacenterWindow {
    type Token = datacenter::Token;

    fn draw<'a>(&'a self, request: &'a Reserve) -> StoreFuture<'a, Result<Drawn<Token>>> {
        Box::pin(async move { self.0.draw(request).await.map_err(|error| named(error, request)) })
    }

    fn refill_size(&self, request: &Reserve, _token: &Token) -> u64 {
        self.0.settings.range.max(request.count)
    }

    fn install<'a>(
        &'a self,
        request: &'a Reserve,
        token: Token,
        grant: Grant,
    ) -> StoreFuture<'a, Result<Installed>> {
        Box::pin(async move {
            let install = Install::new(&token, grant.range.into(), grant.bounds);
            let installed = self.0.windows.install(&request.name, &install).await;
            Ok(match installed.map_err(|error| named(error, request))? {
                Outcome::Applied => Installed::Done,
                Outcome::Refused => Installed::Refused,
                Outcome::Unknown => Installed::Unknown,
            })
        })
    }
}

impl Source<Token> for DatacenterWindow {
    fn claim<'a>(&'a self, request: &'a Reserve, token: &'a Token) -> StoreFuture<'a, Result<Claimed>> {
        Box::pin(async move {
            let outcome = self.0.claim(request, token).await;
            if outcome.is_err() {
                self.0.knowledge.refilled(&request.name, TIMEOUT);
            }
            outcome.map_err(|error| named(error, request))
        })
    }

    fn store(&self) -> &dyn Store {
        self
    }
}

fn named(error: Error, request: &Reserve) -> Error {
    error.of(&request.name).during(Operation::Reserve)
}

impl DatacenterWindow {
    async fn try_create(&self, name: &SequenceName, bounds: Bounds) -> Result<SequenceInfo> {
        self.0.knowledge.forget(name);
        self.0.global.create(name, bounds).await
    }

    async fn try_set(&self, name: &SequenceName, change: Change) -> Result<SequenceInfo> {
        let outcome = self.0.global.set(name, change).await;
        self.0.knowledge.forget(name);
        outcome
    }

    async fn try_remove(&self, name: &SequenceName, expected: Option<Identity>) -> Result<bool> {
        let outcome = self.0.global.remove(name, expected).await;
        self.0.knowledge.forget(name);
        outcome
    }
}

/// Administration of the global counter. A change applies immediately in this process, and in other
/// processes at their next check.
impl Store for DatacenterWindow {
    idmill::store_calls!(|this| this.0.global => capabilities reserve inspect list);
    idmill::store_calls!(create set remove);
}
