//! The client that a statement runs on: the store's, the caller's, or one from the caller's pool.

use std::ops::Deref;
use std::sync::Arc;

use tokio_postgres::Client;

/// A client in use.
pub(super) enum Held {
    Own(Arc<Client>),
    #[cfg(feature = "deadpool")]
    Lent(Lent),
}

impl Deref for Held {
    type Target = Client;

    fn deref(&self) -> &Client {
        match self {
            Self::Own(client) => client,
            #[cfg(feature = "deadpool")]
            Self::Lent(lent) => lent,
        }
    }
}

#[cfg(feature = "deadpool")]
pub(super) use self::pool::{Lent, borrow};

#[cfg(feature = "deadpool")]
mod pool {
    use std::ops::Deref;
    use std::time::Duration;

    use deadpool_postgres::{Object, Pool, PoolError, TimeoutType};
    use idmill::{Error, ErrorKind};
    use idmill_sql::postgres::{exhausted, failed};
    use idmill_sql::{Asked, Fault};
    use tokio::time::{Instant, timeout_at};
    use tokio_postgres::Client;

    use crate::convert::unconnected;

    /// A client of the caller's pool. If a client is dropped without `give_back`, it is removed from the
    /// pool: an answer may still be in transit.
    pub(in super::super) struct Lent(Option<Box<Object>>);

    impl Lent {
        pub(in super::super) fn give_back(mut self) {
            drop(self.0.take());
        }
    }

    impl Deref for Lent {
        type Target = Client;

        fn deref(&self) -> &Client {
            self.0.as_ref().expect("only `give_back` and `drop` take the client")
        }
    }

    impl Drop for Lent {
        fn drop(&mut self) {
            drop(self.0.take().map(|object| Object::take(*object)));
        }
    }

    /// `timeout` is only for messages.
    pub(in super::super) async fn borrow(
        pool: &Pool,
        deadline: Instant,
        timeout: Duration,
    ) -> Result<Lent, Fault> {
        let error = match timeout_at(deadline, pool.get()).await {
            Ok(Ok(client)) => return Ok(Lent(Some(Box::new(client)))),
            Ok(Err(PoolError::Timeout(step))) => return Err(timed_out(pool, Some(step), timeout)),
            Err(_) => return Err(timed_out(pool, None, timeout)),
            Ok(Err(PoolError::Backend(error))) => failed(unconnected(error), Asked::Connect),
            Ok(Err(PoolError::Closed)) => Error::new(
                ErrorKind::Closed,
                "the pool of this store is closed; open a store with another pool",
            ),
            Ok(Err(error)) => {
                let message = format!("the pool opened no connection: {}", error.to_string().trim_end());
                Error::new(ErrorKind::Unavailable, message).because(error)
            }
        };
        Err(Fault::Refused(error))
    }

    /// `step` is the step at which the pool's own timeout ended the attempt.
    fn timed_out(pool: &Pool, step: Option<TimeoutType>, timeout: Duration) -> Fault {
        let (status, limits) = (pool.status(), pool.timeouts());
        let own = step.and_then(|step| match step {
            TimeoutType::Wait => limits.wait,
            TimeoutType::Create => limits.create,
            TimeoutType::Recycle => limits.recycle,
        });
        let timeout = own.unwrap_or(timeout);
        // A connection that the pool is still opening is not counted, and cannot be held by a caller.
        let waited = step.is_none_or(|step| matches!(step, TimeoutType::Wait));
        if waited && status.size >= status.max_size {
            return exhausted(status.max_size, timeout, "`from_config`", "max_size");
        }
        let message =
            format!("the pool opened no connection within {timeout:?}; check that the server is reachable");
        Fault::Refused(Error::new(ErrorKind::Unavailable, message))
    }
}
