//! Reserves for several sequences in one statement.
//!
//! A row that another transaction holds is passed over, so that no sequence waits for another's lock. It is
//! looked at again a few times, since most hold it for no longer than a commit takes. If it is held for
//! longer, that sequence alone gets an error. The next reserve of that sequence alone waits for the lock.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::sleep;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::classify::{Asked, failed};
use super::session::{Patience, text};
use super::{PostgresStore, schema};
use crate::error::{Error, ErrorKind, Result};
use crate::store::{Grant, Reserve};

/// After which pauses rows are looked at that others held.
const PAUSES: [Duration; 4] = [
    Duration::from_millis(4),
    Duration::from_millis(8),
    Duration::from_millis(16),
    Duration::from_millis(32),
];

/// What a statement for several said of one.
enum Found {
    Granted(Result<Grant>),
    /// Another transaction has locked it.
    Held,
    /// Missing, exhausted, or not to be had in this way.
    Not,
}

impl PostgresStore {
    /// The outcomes, in the order of the requests.
    pub(super) async fn reserve_each(&self, requests: &[Reserve]) -> Vec<Result<Grant>> {
        let mut seen = HashSet::new();
        // A row is locked and moved once in a statement.
        if !requests.iter().all(|request| seen.insert(&request.name)) {
            return self.reserve_in_turn(requests).await;
        }
        let mut outcomes: Vec<_> = requests.iter().map(|_| None).collect();
        let mut left: Vec<usize> = (0..requests.len()).collect();
        let mut absent = Vec::new();
        let mut pauses = PAUSES.into_iter();
        while !left.is_empty() {
            let found = match self.reserve_found(requests, &left).await {
                Ok(found) => found,
                Err(error) => left.iter().map(|_| Found::Granted(Err(error.clone()))).collect(),
            };
            let mut held = Vec::new();
            for (place, found) in left.into_iter().zip(found) {
                match found {
                    Found::Granted(outcome) => outcomes[place] = Some(outcome),
                    Found::Held => held.push(place),
                    Found::Not => absent.push(place),
                }
            }
            left = held;
            match pauses.next() {
                Some(pause) if !left.is_empty() => sleep(pause).await,
                _ => break,
            }
        }
        // What is the matter is found out for each.
        let each = absent.iter().map(|&place| self.reserve_with(Patience::Brief, &requests[place]));
        for (outcome, &place) in join_all(each).await.into_iter().zip(&absent) {
            outcomes[place] = Some(outcome);
        }
        outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(|| Err(held()))).collect()
    }

    async fn reserve_in_turn(&self, requests: &[Reserve]) -> Vec<Result<Grant>> {
        let mut outcomes = Vec::with_capacity(requests.len());
        for request in requests {
            outcomes.push(self.reserve_with(Patience::Brief, request).await);
        }
        outcomes
    }

    /// Of those requests, in one statement.
    async fn reserve_found(&self, requests: &[Reserve], places: &[usize]) -> Result<Vec<Found>> {
        let table = self.writable()?;
        let requests: Vec<_> = places.iter().map(|&place| &requests[place]).collect();
        let names: Vec<_> = requests.iter().map(|request| request.name.as_str()).collect();
        let counts: Vec<_> = requests.iter().map(|request| request.count.max(1).to_string()).collect();
        let ceilings: Vec<_> = requests.iter().map(|request| request.ceiling.to_string()).collect();
        let patience = self.sessions.lock_timeout(Patience::Full);
        let parameters = [
            (&names as _, Type::TEXT_ARRAY),
            (&counts as _, Type::TEXT_ARRAY),
            (&ceilings as _, Type::TEXT_ARRAY),
            text(&patience),
        ];
        let rows = self.sessions.run(Asked::Write, &table.reserve_many(), &parameters).await;
        let rows = rows.map_err(|fault| failed(fault, Asked::Write))?;
        Ok(requests.into_iter().map(|request| found(&rows, request)).collect())
    }
}

fn found(rows: &[Row], request: &Reserve) -> Found {
    let text = |row: &Row, place: usize| row.try_get::<_, Option<String>>(place).ok().flatten();
    let its = rows.iter().find(|row| text(row, 0).is_some_and(|name| name == request.name.as_str()));
    match its {
        None => Found::Not,
        Some(row) if text(row, 1).is_none() => Found::Held,
        Some(row) => Found::Granted(schema::granted(row, request)),
    }
}

fn held() -> Error {
    let message = "another transaction holds the row, and others were not to wait for it; try again, for this sequence alone";
    Error::new(ErrorKind::Unavailable, message)
}
