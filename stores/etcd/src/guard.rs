//! Detects an etcd that went back in time.
//!
//! A cluster's revision only grows. Reads are linearizable and writes go through consensus, so a request sent
//! after an answer at revision `r` is answered at `r` or later, by any member. An answer from an earlier
//! revision belongs to another history; and so does the answer to a write whose own revision is not new. The
//! cause is a restored snapshot or an old data directory. The sequences are then old too, and would grant ids
//! again.

use idmill::{Error, ErrorKind, Result};
use parking_lot::Mutex;

use super::wire::Header;

#[derive(Debug, Default)]
pub(super) struct Guard(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Known after the first answer.
    cluster: Option<u64>,
    /// The highest revision of any answer.
    revision: i64,
    /// Why every new request is rejected. Never cleared: the new history's revision will eventually exceed
    /// the old one's, and then the problem would no longer show.
    broken: Option<Error>,
}

/// The highest known revision when a request was sent. Concurrent requests may be answered in any order, so
/// answers after the sending do not raise the floor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Floor(i64);

impl Floor {
    /// Returns the floor for the answer to an applied write, whose revision must be new. A cluster that went
    /// back by one write would repeat the last revision.
    pub(super) fn above(self) -> Self {
        Self(self.0 + 1)
    }
}

impl Guard {
    /// Call before a request is sent.
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

    /// Checks that an answer comes from the same cluster and history as earlier ones.
    pub(super) fn check(&self, header: Option<Header>, floor: Floor) -> Result<()> {
        let Some(Header { cluster_id, revision }) = header else {
            return Err(Error::new(ErrorKind::StoreViolation, "the reply has no header"));
        };
        let mut state = self.0.lock();
        let cluster = *state.cluster.get_or_insert(cluster_id);
        if cluster != cluster_id {
            let message = format!(
                "the reply is from cluster {cluster_id:x}, earlier ones from {cluster:x}; correct the endpoints, or \
                 reopen the store"
            );
            return Err(Error::new(ErrorKind::StoreViolation, message));
        }
        if revision < floor.0 {
            let message =
                format!("etcd was at revision {}, but is now at {revision}: {REWOUND}", state.revision);
            let error = Error::new(ErrorKind::StoreViolation, message);
            return Err(state.broken.insert(error).clone());
        }
        state.revision = state.revision.max(revision);
        Ok(())
    }

    /// Rejects every new request from now on: the value under `key` is older than one that was seen there
    /// before.
    pub(super) fn rewind(&self, key: &str, seen: i64, found: i64) -> Error {
        let message = format!("the key {key:?} was at revision {seen}, but is now at {found}: {REWOUND}");
        self.0.lock().broken.insert(Error::new(ErrorKind::StoreViolation, message)).clone()
    }
}

const REWOUND: &str = "etcd was restored from a backup; raise each sequence above every id in use \
    (`idmill set NAME --next N`), then reopen";

#[cfg(test)]
mod tests {
    use super::*;

    fn at(revision: i64) -> Header {
        Header { cluster_id: 7, revision }
    }

    #[test]
    fn concurrent_replies_arrive_in_any_order() {
        let guard = Guard::default();
        let (a, b) = (guard.floor().unwrap(), guard.floor().unwrap());
        guard.check(Some(at(10)), b).unwrap();
        guard.check(Some(at(9)), a).unwrap();
        let c = guard.floor().unwrap();
        guard.check(Some(at(10)), c).unwrap();
    }

    #[test]
    fn earlier_revision_is_rejected_permanently() {
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
