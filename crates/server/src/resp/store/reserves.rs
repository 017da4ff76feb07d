//! Reserves, of those sequences that a token allows.

use idmill::store::{Grant, Reserve};
use idmill::{Error, ErrorKind, Operation, Result, SequenceName, Status};
use idmill_remote::protocol::Outcome;

use super::refused;
use crate::access::{Caller, Created, Right};
use crate::resp::session::Session;

impl Session {
    /// Those that the token allows, in one go.
    pub(super) async fn reserved(&mut self, caller: &Caller, requests: Vec<Reserve>) -> Vec<Outcome<Grant>> {
        let paid: Vec<Result<()>> = requests
            .iter()
            .enumerate()
            .map(|(at, request)| {
                let paid = self.pays_for_entry(caller, at);
                paid.map_err(|refusal| refused(refusal, &request.name, Operation::Reserve))
            })
            .collect();
        let payers = requests.iter().zip(&paid).filter(|(_, paid)| paid.is_ok());
        let payers: Vec<&Reserve> = payers.map(|(request, _)| request).collect();
        let mut new = self.new_among(caller, &payers).await.into_iter();
        let mut new = |()| new.next().unwrap_or(Ok(false));
        let places = requests.iter().zip(paid).map(|(request, paid)| {
            paid.and_then(&mut new).and_then(|is_new| self.allowed(caller, request, is_new))
        });
        let places: Vec<Result<Option<Created>>> = places.collect();
        let allowed = requests.into_iter().zip(&places).filter(|(_, place)| place.is_ok());
        let allowed: Vec<Reserve> = allowed.map(|(request, _)| request).collect();
        let mut grants = self.state.proxy.reserve(allowed).await.into_iter();
        let mut next = || grants.next().unwrap_or_else(|| Err(ErrorKind::UnknownOutcome.into()));
        let mut granted = |created: Option<Created>| {
            next().inspect_err(|error| created.into_iter().for_each(|created| created.failed(error)))
        };
        let all: Vec<Result<Grant>> = places.into_iter().map(|place| place.and_then(&mut granted)).collect();
        all.iter()
            .filter_map(|grant| grant.as_ref().err())
            .for_each(|error| self.state.readiness.doubt(error));
        self.drawn += all.iter().flatten().map(|grant| grant.range.len()).fold(0, u64::saturating_add);
        all.into_iter().map(Outcome::of).collect()
    }

    /// Which of them would be created, where the token creates some only.
    async fn new_among(&self, caller: &Caller, requests: &[&Reserve]) -> Vec<Result<bool>> {
        if !caller.creates_some_only() {
            return requests.iter().map(|_| Ok(false)).collect();
        }
        let names: Vec<SequenceName> = requests.iter().map(|request| request.name.clone()).collect();
        let found = self.state.proxy.drawn().inspect_many(&names).await;
        let is_new = |(found, request): (Result<Option<_>>, &&Reserve)| {
            found.map(|found| found.is_none() && request.create.is_some()).map_err(unreserved)
        };
        found.into_iter().zip(requests).map(is_new).collect()
    }

    /// With its place among those that the token may create, where it is new.
    fn allowed(&self, caller: &Caller, request: &Reserve, is_new: bool) -> Result<Option<Created>> {
        let allowed = caller.may(Right::Reserve, &request.name).and_then(|()| caller.may_take(request.count));
        let created = || is_new.then(|| caller.creates(self.state.access.clock().elapsed())).transpose();
        allowed
            .and_then(|()| created())
            .map_err(|refusal| refused(refusal, &request.name, Operation::Reserve))
    }
}

/// A look that failed leaves nothing reserved.
fn unreserved(error: Error) -> Error {
    match error.status() {
        Status::Unknown => Error::from(ErrorKind::Unavailable).because(error),
        _ => error,
    }
}
