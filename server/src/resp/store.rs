//! `IDMILL.STORE`: the store behind this server, for processes that may not reach it themselves.
//!
//! What the store answers goes to the client as it is, its errors too. What a token may not do is refused
//! here, each sequence by itself.

use idmill::store::{GiveBack, Grant, Page, Reserve, SequenceInfo};
use idmill::{Error, ErrorKind, Operation, Result, SequenceName, Status};
use idmill_remote::protocol::{self, Ask, Fault, MOST, Outcome, Records, Request, Rows, Said, VERSION};

use super::commands;
use super::reply::Answer;
use super::session::{Failure, Session};
use crate::access::{Caller, Created, Refusal, Right};
use crate::audit::{self, Act};
use crate::measures;

/// The most rows of a page.
const ROWS: usize = 1000;

impl Session {
    pub(super) async fn store(&mut self, version: &[u8], request: &[u8]) -> commands::Outcome {
        self.caller()?;
        if version != VERSION.to_string().as_bytes() {
            let message = format!("this server speaks version {VERSION} of {}", protocol::COMMAND);
            return Err(Failure::Said(protocol::UNKNOWN_VERSION, message));
        }
        let Request { number, ask } = Request::decode(request).map_err(|error| unread(&error))?;
        let said = self.said(ask).await?.unwrap_or_else(|error| Said::Failed(Fault::of(&error)));
        Ok(Answer::Bytes(protocol::Answer { number, said }.encode()))
    }

    /// What the store says, or why it was not asked.
    async fn said(&mut self, ask: Ask) -> Result<Result<Said>, Failure> {
        match &ask {
            Ask::Reserve(requests) => few(requests.len())?,
            Ask::Inspect(names) => few(names.len())?,
            _ => {}
        }
        let caller = self.caller()?.clone();
        let behind = self.core.behind.clone();
        let store = behind.drawn();
        Ok(match ask {
            Ask::Capabilities => {
                caller
                    .has(Right::Reserve)
                    .or(caller.has(Right::Administer))
                    .map_err(|_| Refusal::Right(Right::Reserve))?;
                Ok(Said::Capabilities(store.capabilities()))
            }
            Ask::Reserve(requests) => Ok(Said::Grants(self.reserved(&caller, requests).await)),
            Ask::GiveBack { name, identity, rest } => {
                caller.may(Right::Reserve, &name)?;
                store.give_back(&GiveBack::new(name, identity, rest)).await.map(Said::Done)
            }
            Ask::Inspect(names) => Ok(Said::Sequences(inspected(store, &caller, &names).await)),
            Ask::List(page) => {
                let listed = store.list(&limited(page)).await;
                listed.map(|listing| Said::Rows(Rows::of(listing, |name| sees(&caller, name))))
            }
            Ask::Record(name) => {
                caller.may(Right::Reserve, &name)?;
                store.record(&name).await.map(Said::Record)
            }
            Ask::SwapRecord { name, seen, wanted } => {
                caller.may(Right::Reserve, &name)?;
                store.swap_record(&name, seen.as_deref(), &wanted).await.map(Said::Done)
            }
            Ask::ListRecords(page) => {
                let listed = store.list_records(&limited(page)).await;
                let is_seen = |name: &str| caller.may(Right::Reserve, name).is_ok();
                listed.map(|records| Said::Records(Records::of(records, is_seen)))
            }
            Ask::Create { .. } | Ask::Set { .. } | Ask::Remove(_) => self.administered(&caller, ask).await?,
        })
    }

    /// Those that the token allows, in one go.
    async fn reserved(
        &mut self,
        caller: &Caller,
        requests: Vec<protocol::Reserve>,
    ) -> Vec<Outcome<protocol::Grant>> {
        let mut may = Vec::with_capacity(requests.len());
        for request in &requests {
            may.push(self.may_reserve(caller, request).await);
        }
        let allowed = requests.into_iter().zip(&may).filter(|(_, may)| may.is_ok());
        let allowed: Vec<Reserve> = allowed.map(|(request, _)| request.into()).collect();
        let mut grants = self.core.behind.reserve(allowed).await.into_iter();
        let mut next = || grants.next().unwrap_or_else(|| Err(ErrorKind::UnknownOutcome.into()));
        let one = |may: Result<Option<Created>>| {
            let (created, grant) = (may?, next());
            if let (Some(created), Err(error)) = (created, &grant)
                && error.status() != Status::Unknown
            {
                created.undo();
            }
            grant
        };
        let all: Vec<Result<Grant>> = may.into_iter().map(one).collect();
        self.drawn += all.iter().flatten().map(|grant| grant.range.len()).fold(0, u64::saturating_add);
        all.into_iter().map(Outcome::of).collect()
    }

    /// What changes a sequence other than by reserving from it.
    async fn administered(&self, caller: &Caller, ask: Ask) -> Result<Result<Said>, Refusal> {
        let (did, name) = match &ask {
            Ask::Create { name, .. } => ("create", name.clone()),
            Ask::Set { name, .. } => ("change", name.clone()),
            Ask::Remove(name) => ("remove", name.clone()),
            _ => unreachable!("what only reads, or reserves"),
        };
        let act = Act { by: Some(caller), peer: &self.peer, did, sequence: &name };
        caller
            .may(Right::Administer, &name)
            .inspect_err(|refusal| self.refused(act, &refusal.to_string()))?;
        let store = self.core.behind.administered();
        let said = match ask {
            Ask::Create { bounds, .. } => store.create(&name, bounds).await.map(Said::Sequence),
            Ask::Set { change, .. } => store.set(&name, change.into()).await.map(Said::Sequence),
            _ => store.remove(&name).await.map(Said::Done),
        };
        match &said {
            Ok(Said::Sequence(info)) => audit::done(act, Some(info)),
            Ok(Said::Done(false)) => self.refused(act, "there is no such sequence"),
            Ok(_) => audit::done(act, None),
            Err(error) if error.status() == Status::Permanent => self.refused(act, &error.to_string()),
            Err(error) => audit::failed(act, &error.to_string()),
        }
        Ok(said)
    }

    fn refused(&self, act: Act<'_>, why: &str) {
        self.core.audit.refused(act, why, self.core.access.clock());
    }

    /// Whether the token allows it; and what counts as created by that, if something does.
    async fn may_reserve(&self, caller: &Caller, request: &protocol::Reserve) -> Result<Option<Created>> {
        let refused = |refusal| denied(refusal, &request.name, Operation::Reserve);
        caller.may(Right::Reserve, &request.name).map_err(refused)?;
        caller.may_take(request.count).map_err(refused)?;
        let counts = request.create.is_some() && caller.creates_some_only();
        if !counts || self.core.behind.drawn().inspect(&request.name).await?.is_some() {
            return Ok(None);
        }
        caller.creates(self.core.access.clock().elapsed()).map(Some).map_err(refused)
    }
}

/// Nothing was done. The error has nothing of the request but where it cannot be read.
fn unread(error: &Error) -> Failure {
    Failure::usage(format!("the request is not one of version {VERSION}: {error}"))
}

fn few(many: usize) -> Result<(), Failure> {
    if many <= MOST {
        return Ok(());
    }
    Err(Failure::usage(format!("the request is for {many} sequences; {MOST} are the most")))
}

fn denied(refusal: Refusal, name: &SequenceName, operation: Operation) -> Error {
    measures::refused(refusal.reason());
    Error::new(refusal.kind(), refusal.to_string()).of(name).during(operation)
}

/// Whoever may do something with a sequence may know of it.
fn sees(caller: &Caller, name: &str) -> bool {
    [Right::Draw, Right::Reserve, Right::Administer].iter().any(|right| caller.may(*right, name).is_ok())
}

async fn inspected(
    store: &dyn idmill::store::Store,
    caller: &Caller,
    names: &[SequenceName],
) -> Vec<Outcome<Option<SequenceInfo>>> {
    let (seen, hidden): (Vec<_>, Vec<_>) = names.iter().cloned().partition(|name| sees(caller, name));
    let mut found = store.inspect_many(&seen).await.into_iter();
    let one = |name: &SequenceName| {
        if hidden.contains(name) {
            return Err(denied(Refusal::Sequence, name, Operation::Inspect));
        }
        found.next().unwrap_or_else(|| Err(ErrorKind::Unavailable.into()))
    };
    names.iter().map(one).map(Outcome::of).collect()
}

fn limited(page: protocol::Page) -> Page {
    let page = Page::from(page);
    let limit = page.limit.min(ROWS);
    page.limit(limit)
}
