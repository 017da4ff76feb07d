//! `IDMILL.STORE`: access to the store for processes that have no direct access to it.
//!
//! The store's answers and errors are passed on unchanged. Rights are checked here, for each sequence
//! separately.

use std::future::Future;
use std::iter::repeat_with;
use std::sync::Arc;

use idmill::store::{Cursor, GiveBack, Grant, Identity, Page, Reserve, SequenceInfo, Store};
use idmill::{Error, ErrorKind, Operation, Result, SequenceName, Sequences, Status};
use idmill_kit::among;
use idmill_remote::protocol::{self, Ask, MOST, Outcome, Records, Request, Rows, Said, VERSION, WireError};
use tokio::time::timeout;

use super::commands;
use super::reply::Answer;
use super::session::{CommandError, Session};
use crate::access::{Caller, Created, Pattern, Refusal, Right};
use crate::audit::{self, Act};
use crate::counters;
use crate::listing;
use crate::store_proxy::StoreProxy;

/// Maximum number of rows of a page.
const ROWS: usize = 1000;

/// The store's answer; or the error of the whole request.
type Reply = Result<Result<Said>, CommandError>;

impl Session {
    pub(super) async fn store(&mut self, version: &[u8], request: &[u8]) -> commands::Outcome {
        let caller = self.caller()?.clone();
        self.due()?;
        if version != VERSION.to_string().as_bytes() {
            let message = format!("this server supports version {VERSION} of {}", protocol::COMMAND);
            return Err(CommandError::Said(protocol::UNKNOWN_VERSION, message));
        }
        let Request { number, ask } = Request::decode(request).map_err(|error| {
            // Nothing was changed.
            CommandError::usage(format!("the request is not valid in version {VERSION}: {error}"))
        })?;
        let said = match ask {
            Ask::Reserve(requests) => {
                few(requests.len())?;
                Said::Grants(self.reserved(&caller, requests).await)
            }
            ask => {
                let silent = ask.asked().doubt();
                let said = timeout(self.state.proxy.limit, self.said(&caller, ask)).await;
                let said = said.unwrap_or_else(|_| Ok(Err(silent.into())))?;
                said.unwrap_or_else(|error| Said::Failed(WireError::of(&error)))
            }
        };
        Ok(Answer::Bytes(protocol::Answer { number, said }.encode()))
    }

    async fn said(&self, caller: &Caller, ask: Ask) -> Reply {
        let store = &*self.state.proxy.store;
        let reserves = |name: &str| caller.may(Right::Reserve, name);
        Ok(match ask {
            Ask::Capabilities => {
                caller
                    .has(Right::Reserve)
                    .or_else(|refusal| caller.has(Right::Administer).map_err(|_| refusal))?;
                Ok(Said::Capabilities(store.capabilities()))
            }
            Ask::GiveBack { name, identity, rest } => {
                reserves(&name)?;
                store.give_back(&GiveBack::new(name, identity, rest)).await.map(Said::Done)
            }
            Ask::Inspect(names) => {
                few(names.len())?;
                Ok(Said::Sequences(self.inspected(store, caller, &names).await))
            }
            Ask::List(page) => self.listed(caller, page).await,
            Ask::Record(name) => {
                reserves(&name)?;
                store.record(&name).await.map(Said::Record)
            }
            Ask::SwapRecord { name, seen, wanted } => {
                reserves(&name)?;
                store.swap_record(&name, seen.as_deref(), &wanted).await.map(Said::Done)
            }
            Ask::ListRecords(page) => {
                caller.has(Right::Reserve)?;
                records(&self.state.proxy, caller, page).await
            }
            Ask::Server => {
                caller.has(Right::Reserve)?;
                store.server().await.map(Said::Server)
            }
            Ask::Create { name, bounds } => {
                let create = move |store: Arc<dyn Store>, name| async move {
                    store.create(&name, bounds).await.map(Said::Sequence)
                };
                self.changed(caller, "create", &name, create).await?
            }
            Ask::Set { name, change } => {
                let set = move |store: Arc<dyn Store>, name| async move {
                    store.set(&name, change).await.map(Said::Sequence)
                };
                self.changed(caller, "change", &name, set).await?
            }
            Ask::Remove(name) => self.removed(caller, &name, None).await?,
            Ask::RemoveIf { name, identity } => self.removed(caller, &name, Some(identity)).await?,
            // `Session::store` handles reserves.
            Ask::Reserve(_) => Err(ErrorKind::InvalidInput.into()),
        })
    }

    async fn inspected(
        &self,
        store: &dyn Store,
        caller: &Caller,
        names: &[SequenceName],
    ) -> Vec<Outcome<Option<SequenceInfo>>> {
        let allowed = names.iter().enumerate().map(|(at, name)| {
            let seen = if sees(caller, name) { Ok(()) } else { Err(Refusal::Sequence) };
            let paid = seen.and_then(|()| self.pays_for_entry(caller, at));
            paid.map_err(|refusal| refused(refusal, name, Operation::Inspect)).map(|()| name.clone())
        });
        let found = among(allowed, ErrorKind::Unavailable, async |names: Vec<SequenceName>| {
            store.inspect_many(&names).await
        });
        found.await.into_iter().map(Outcome::of).collect()
    }

    /// Reserves all entries that the token allows, in one batch.
    async fn reserved(&mut self, caller: &Caller, requests: Vec<Reserve>) -> Vec<Outcome<Grant>> {
        let paid = requests.into_iter().enumerate().map(|(at, request)| {
            let paid = self.pays_for_entry(caller, at);
            paid.map_err(|refusal| refused(refusal, &request.name, Operation::Reserve)).map(|()| request)
        });
        let unknown = ErrorKind::UnknownOutcome;
        let all = among(paid, unknown, async |paid: Vec<Reserve>| {
            let new = self.new_among(caller, &paid).await.into_iter().chain(repeat_with(|| Ok(false)));
            let allowed = paid.into_iter().zip(new).map(|(request, is_new)| {
                let place = self.allowed(caller, &request, is_new?)?;
                Ok((request, place))
            });
            among(allowed, unknown, async |allowed: Vec<(Reserve, Option<Created>)>| {
                let (requests, places): (Vec<_>, Vec<_>) = allowed.into_iter().unzip();
                let grants = self.state.proxy.reserve(requests).await.into_iter().zip(places);
                let told = |(grant, place): (Result<Grant>, Option<Created>)| {
                    grant.inspect_err(|error| place.into_iter().for_each(|place| place.failed(error)))
                };
                grants.map(told).collect()
            })
            .await
        })
        .await;
        all.iter()
            .filter_map(|grant| grant.as_ref().err())
            .for_each(|error| self.state.readiness.doubt(error));
        self.drawn += all.iter().flatten().map(|grant| grant.range.len()).fold(0, u64::saturating_add);
        all.into_iter().map(Outcome::of).collect()
    }

    /// Returns whether each request would create a sequence; always `false` if the token does not limit
    /// new sequences.
    async fn new_among(&self, caller: &Caller, requests: &[Reserve]) -> Vec<Result<bool>> {
        if !caller.creates_some_only() {
            return requests.iter().map(|_| Ok(false)).collect();
        }
        let names: Vec<SequenceName> = requests.iter().map(|request| request.name.clone()).collect();
        let found = self.state.proxy.store.inspect_many(&names).await;
        let is_new = |(found, request): (Result<Option<_>>, &Reserve)| {
            found.map(|found| found.is_none() && request.create.is_some()).map_err(unreserved)
        };
        found.into_iter().zip(requests).map(is_new).collect()
    }

    /// Checks the rights and limits of a request. A request that creates a sequence counts towards the
    /// token's limit of new sequences.
    fn allowed(&self, caller: &Caller, request: &Reserve, is_new: bool) -> Result<Option<Created>> {
        let allowed = caller.may(Right::Reserve, &request.name).and_then(|()| caller.may_take(request.count));
        let created = || is_new.then(|| caller.creates(self.state.access.clock.elapsed())).transpose();
        allowed
            .and_then(|()| created())
            .map_err(|refusal| refused(refusal, &request.name, Operation::Reserve))
    }

    /// Counts an entry as a request. The first entry is free, because the command itself was counted.
    fn pays_for_entry(&self, caller: &Caller, at: usize) -> Result<(), Refusal> {
        if at == 0 { Ok(()) } else { self.state.pays(caller, 1) }
    }

    async fn listed(&self, caller: &Caller, page: Page) -> Result<Said> {
        let page = limited(page);
        if sees_all(caller) {
            let listing = self.state.proxy.store.list(&page).await?;
            return Ok(Said::Rows(Rows::of(listing, |name| sees(caller, name))));
        }
        let after = page.after.as_ref().map(Cursor::as_str);
        let (sequences, limit) = (&self.state.draws.sequences, page.limit);
        let found = listing::page(sequences, caller.patterns(), &page.prefix, after, limit).await?;
        let sequences = found.sequences.into_iter().filter(|info| sees(caller, &info.name)).collect();
        Ok(Said::Rows(Rows { sequences, unreadable: Vec::new(), next: found.next.map(Cursor::new) }))
    }

    async fn removed(&self, caller: &Caller, name: &SequenceName, expected: Option<Identity>) -> Reply {
        let remove = move |store: Arc<dyn Store>, name| async move {
            store.remove(&name, expected).await.map(Said::Done)
        };
        self.changed(caller, "remove", name, remove).await
    }

    /// Creates, changes or removes a sequence, and writes the audit line in the task of the change: the line
    /// is written even if the client disconnects or the time is over.
    async fn changed<F>(
        &self,
        caller: &Caller,
        did: &'static str,
        name: &SequenceName,
        change: impl FnOnce(Arc<dyn Store>, SequenceName) -> F,
    ) -> Reply
    where
        F: Future<Output = Result<Said>> + Send + 'static,
    {
        caller.may(Right::Administer, name).inspect_err(|refusal| {
            let act = Act { by: Some(caller), peer: &self.peer, did, sequence: name };
            self.state.audit.note(act, audit::Outcome::Refused(refusal));
        })?;
        let (state, peer, caller) = (self.state.clone(), self.peer.clone(), caller.clone());
        let noted = |ids: Sequences, name: SequenceName| {
            let change = change(ids.store().clone(), name.clone());
            async move {
                let outcome = change.await;
                if !matches!(outcome, Ok(Said::Done(false))) {
                    let act = Act { by: Some(&caller), peer: &peer, did, sequence: &name };
                    state.audit.note(act, noted(&outcome));
                }
                outcome
            }
        };
        Ok(self.state.draws.changing(name, noted).await)
    }
}

/// Returns the outcome of a change for the audit line.
fn noted(outcome: &Result<Said>) -> audit::Outcome<'_> {
    match outcome {
        Ok(Said::Sequence(info)) => audit::Outcome::Done(Some(info)),
        Ok(_) => audit::Outcome::Done(None),
        Err(error) if error.status() == Status::Permanent => audit::Outcome::Refused(error),
        Err(error) => audit::Outcome::Failed(error),
    }
}

fn few(many: usize) -> Result<(), CommandError> {
    if many <= MOST {
        return Ok(());
    }
    Err(CommandError::usage(format!("the request is for {many} sequences; the maximum is {MOST}")))
}

/// Returns the error of one refused entry.
fn refused(refusal: Refusal, name: &SequenceName, operation: Operation) -> Error {
    counters::refused(refusal.reason());
    Error::new(refusal.kind(), refusal.to_string()).of(name).during(operation)
}

/// Returns whether the caller may see the sequence, which every right except `observe` permits.
fn sees(caller: &Caller, name: &str) -> bool {
    [Right::Draw, Right::Reserve, Right::Administer].iter().any(|right| caller.may(*right, name).is_ok())
}

fn sees_all(caller: &Caller) -> bool {
    caller.patterns().contains(&Pattern::any())
}

/// Lists records. The cursor of a page is a name, so only callers that may see every name may list
/// records.
async fn records(proxy: &StoreProxy, caller: &Caller, page: Page) -> Result<Said> {
    if !sees_all(caller) {
        let message = "the token is not for all sequences, so it may not list records; use a token for `*`";
        return Err(Error::new(ErrorKind::Denied, message).during(Operation::List));
    }
    let listed = proxy.store.list_records(&limited(page)).await?;
    Ok(Said::Records(Records::of(listed, |_| true)))
}

fn limited(page: Page) -> Page {
    let limit = page.limit.clamp(1, ROWS);
    page.limit(limit)
}

/// Turns an unknown outcome into `Unavailable`, because a failed lookup has reserved nothing.
fn unreserved(error: Error) -> Error {
    match error.status() {
        Status::Unknown => Error::from(ErrorKind::Unavailable).because(error),
        _ => error,
    }
}
