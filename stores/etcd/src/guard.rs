//! Notices an etcd that is not the one it was.
//!
//! A cluster's revision only grows. Reads are linearizable and writes go through consensus, so a request that
//! is sent after an answer at revision `r` was received is answered at `r` or later, by whichever member. An
//! answer from before that comes from another history, and so does a write whose own revision is not a new
//! one: a snapshot that was restored, a data directory that was put back. Sequences then stand where they
//! once stood, and what they would grant was granted before.

use idmill::{Error, ErrorKind, Result};
use parking_lot::Mutex;

use super::wire::Header;

#[derive(Debug, Default)]
pub(super) struct Guard(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Once it has answered.
    cluster: Option<u64>,
    /// The highest revision that any answer had.
    revision: i64,
    /// Why nothing is believed any more. It stays: the new history will pass the old one's revision some
    /// time, and then nothing would show.
    broken: Option<Error>,
}

/// How far the cluster had come when a request was sent. Answers to requests sent
/// side by side come in any order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Floor(i64);

impl Floor {
    /// For an answer to a write that was applied: its own revision has to be a new one. In a cluster that is
    /// one behind, it would be the last that was seen.
    pub(super) fn above(self) -> Self {
        Self(self.0 + 1)
    }
}

impl Guard {
    /// To be called before a request is sent.
    pub(super) fn floor(&self) -> Result<Floor> {
        let state = self.0.lock();
        match &state.broken {
            Some(broken) => Err(broken.clone()),
            None => Ok(Floor(state.revision)),
        }
    }

    /// The cluster that answered; `None` before the first answer.
    pub(super) fn cluster(&self) -> Option<u64> {
        self.0.lock().cluster
    }

    /// Whether an answer is of the same cluster, and of the same history as those before it.
    pub(super) fn check(&self, header: Option<Header>, floor: Floor) -> Result<()> {
        let Some(Header { cluster_id, revision }) = header else {
            return Err(Error::new(ErrorKind::StoreViolation, "an answer came without a header"));
        };
        let mut state = self.0.lock();
        let cluster = *state.cluster.get_or_insert(cluster_id);
        if cluster != cluster_id {
            return Err(Error::new(ErrorKind::StoreViolation, strange(cluster, cluster_id)));
        }
        if revision < floor.0 {
            let error = Error::new(ErrorKind::StoreViolation, rewound(state.revision, revision));
            return Err(state.broken.insert(error).clone());
        }
        state.revision = state.revision.max(revision);
        Ok(())
    }

    /// Refuses everything from now on: what is stored under `key` was written before
    /// what was seen there earlier.
    pub(super) fn rewind(&self, key: &str, seen: i64, found: i64) -> Error {
        let message =
            format!("the key {key:?} was last written at revision {seen}, and now at {found}: {REWOUND}");
        self.0.lock().broken.insert(Error::new(ErrorKind::StoreViolation, message)).clone()
    }
}

const REWOUND: &str = "etcd was restored from a backup, or has an old data directory. Ids would be handed out twice, so \
    nothing is reserved: raise the sequences above what was handed out (`idmill set NAME --next N`), then open the store anew";

fn rewound(seen: i64, found: i64) -> String {
    format!("etcd was at revision {seen}, and now answers at {found}, where it cannot be: {REWOUND}")
}

fn strange(known: u64, other: u64) -> String {
    format!(
        "the answer is of the cluster {other:x}, those before it of {known:x}: the endpoints lead to several clusters, or it was \
         made anew; nothing of it is used. Mend the URL, or open the store anew"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(revision: i64) -> Header {
        Header { cluster_id: 7, revision }
    }

    #[test]
    fn answers_to_requests_sent_side_by_side_come_in_any_order() {
        let guard = Guard::default();
        let (a, b) = (guard.floor().unwrap(), guard.floor().unwrap());
        guard.check(Some(at(10)), b).unwrap();
        guard.check(Some(at(9)), a).unwrap();
        let c = guard.floor().unwrap();
        guard.check(Some(at(10)), c).unwrap();
    }

    #[test]
    fn what_went_back_is_refused_for_good() {
        let guard = Guard::default();
        let first = guard.floor().unwrap();
        guard.check(Some(at(10)), first).unwrap();
        let second = guard.floor().unwrap();
        let error = guard.check(Some(at(9)), second).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StoreViolation);
        assert!(
            error.to_string().contains("revision 10") && error.to_string().contains("idmill set"),
            "{error}"
        );
        assert_eq!(
            guard.floor().unwrap_err().kind(),
            ErrorKind::StoreViolation,
            "also once it has passed 10 again"
        );
    }

    #[test]
    fn a_write_has_a_revision_of_its_own() {
        let guard = Guard::default();
        let first = guard.floor().unwrap();
        guard.check(Some(at(10)), first).unwrap();
        let second = guard.floor().unwrap().above();
        guard.check(Some(at(11)), second).unwrap();
        let third = guard.floor().unwrap().above();
        assert_eq!(guard.check(Some(at(11)), third).unwrap_err().kind(), ErrorKind::StoreViolation);
    }

    #[test]
    fn another_cluster_is_refused_but_not_for_good() {
        let guard = Guard::default();
        let floor = guard.floor().unwrap();
        guard.check(Some(at(10)), floor).unwrap();
        let stranger = Some(Header { cluster_id: 8, revision: 11 });
        assert_eq!(guard.check(stranger, floor).unwrap_err().kind(), ErrorKind::StoreViolation);
        assert_eq!(guard.check(None, floor).unwrap_err().kind(), ErrorKind::StoreViolation);
        let floor = guard.floor().unwrap();
        guard.check(Some(at(10)), floor).unwrap();
    }

    #[test]
    fn a_key_that_went_back_ends_it_too() {
        let guard = Guard::default();
        assert_eq!(guard.rewind("/idmill/s", 5, 4).kind(), ErrorKind::StoreViolation);
        assert!(guard.floor().unwrap_err().to_string().contains("/idmill/s"));
    }
}
