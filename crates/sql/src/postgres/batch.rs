//! Reserves for several sequences in one statement.
//!
//! A row that another transaction holds is skipped, so that no sequence waits for another's lock. Skipped
//! rows are retried a few times, since most locks are held only for the duration of a commit. If a lock is
//! held longer, only that sequence gets an error. Only a later reserve outside a batch waits for the lock.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::future::join_all;
use idmill::store::{Grant, Reserve};
use idmill::{Error, ErrorKind, Result};
use tokio::time::sleep;

use super::calls::Calls;
use super::rows::{self, granted};
use crate::{Answer, Executor, Fault, Row, Statement, Timeout, Value, each_of};

/// The pauses before held rows are retried.
const PAUSES_MS: [u64; 4] = [4, 8, 16, 32];

/// The result of a batch statement for one sequence.
enum Found {
    Granted(Result<Grant>),
    /// Another transaction locks the row, or row-level security hides it.
    Held,
    /// The row is missing, exhausted, of another history or format, or not readable by this role.
    Not,
}

/// Runs statements with a short wait for locks.
struct Briefly<E>(E);

impl<E: Executor> Executor for Briefly<E> {
    const IN_TRANSACTION: bool = E::IN_TRANSACTION;

    fn execute(&mut self, statement: Statement<'_>) -> impl Future<Output = Result<Answer, Fault>> + Send {
        self.0.execute(statement.with_timeout(Timeout::Brief))
    }
}

impl Calls {
    /// [`Store::reserve_many`](idmill::store::Store::reserve_many), with the sequence and the
    /// operation in each error. Clones of the executor run concurrently, so each should have its
    /// own connection.
    pub async fn reserve_many<E: Executor + Clone>(
        &self,
        executor: &E,
        requests: &[Reserve],
    ) -> Vec<Result<Grant>> {
        each_of(Ok(self.reserve_each(executor, requests).await), requests)
    }

    /// Returns the outcomes in the order of the requests.
    async fn reserve_each<E: Executor + Clone>(
        &self,
        executor: &E,
        requests: &[Reserve],
    ) -> Vec<Result<Grant>> {
        let mut seen = HashSet::new();
        // One statement can lock and update a row only once.
        if !requests.iter().all(|request| seen.insert(&request.name)) {
            let mut outcomes = Vec::with_capacity(requests.len());
            for request in requests {
                outcomes.push(self.reserve_briefly(executor, request).await);
            }
            return outcomes;
        }
        let mut outcomes: Vec<_> = requests.iter().map(|_| None).collect();
        let mut left: Vec<usize> = (0..requests.len()).collect();
        let mut absent = Vec::new();
        let mut pauses = PAUSES_MS.into_iter().map(Duration::from_millis);
        while !left.is_empty() {
            let found = match self.reserve_found(executor, requests, &left).await {
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
        // Reserve for each absent row separately, to create it or to get its error.
        let each = absent.iter().map(|&place| self.reserve_briefly(executor, &requests[place]));
        for (outcome, &place) in join_all(each).await.into_iter().zip(&absent) {
            outcomes[place] = Some(outcome);
        }
        outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(|| Err(held()))).collect()
    }

    /// Reserves for one sequence with a short wait, since the rest of the batch waits for it.
    async fn reserve_briefly<E: Executor + Clone>(&self, executor: &E, request: &Reserve) -> Result<Grant> {
        self.reserve_with(&mut Briefly(executor.clone()), request, None).await
    }

    /// Reserves for the requests at these indexes, in one statement.
    async fn reserve_found<E: Executor + Clone>(
        &self,
        executor: &E,
        requests: &[Reserve],
        places: &[usize],
    ) -> Result<Vec<Found>> {
        let sql = self.writing::<E>()?.reserve_many(self.history);
        let requests: Vec<_> = places.iter().map(|&place| &requests[place]).collect();
        let texts = |text: fn(&Reserve) -> String| {
            Value::Texts(requests.iter().map(|request| text(request)).collect())
        };
        let values = [
            texts(|request| request.name.as_str().to_owned()),
            texts(|request| request.count.max(1).to_string()),
            texts(|request| request.ceiling.to_string()),
            Value::Timeout,
        ];
        let rows = self.write(&mut executor.clone(), Statement::write(sql, values).often()).await?;
        Ok(requests.into_iter().map(|request| found(&rows, request)).collect())
    }
}

fn found(rows: &[Row], request: &Reserve) -> Found {
    match rows.iter().find(|row| rows::name(row) == request.name.as_str()) {
        None => Found::Not,
        Some(row) if row.text(1).is_none() => Found::Held,
        Some(row) => Found::Granted(granted(row, request)),
    }
}

fn held() -> Error {
    let message = "another transaction has locked the row, or row-level security hides it; try again with \
                   this sequence only";
    Error::new(ErrorKind::Unavailable, message)
}
