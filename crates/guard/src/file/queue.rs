//! Concurrent writes of one process share one replacement of the file, which costs the most.

use std::mem;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::place::Place;
use crate::Write;
use idmill::{Error, ErrorKind, Result};

/// The results of some writes, in their order.
type Written = Result<Vec<bool>>;

/// The writes that wait for the next replacement.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: Mutex<Vec<Waiting>>,
    /// Held by the thread that replaces the file.
    turn: Mutex<()>,
}

#[derive(Debug)]
struct Waiting {
    writes: Vec<Write>,
    written: oneshot::Sender<Written>,
}

impl Queue {
    pub(super) fn add(&self, writes: Vec<Write>) -> oneshot::Receiver<Written> {
        let (written, result) = oneshot::channel();
        self.waiting.lock().push(Waiting { writes, written });
        result
    }

    /// Returns the result of writes that were [added](Self::add). Blocks.
    pub(super) fn result(&self, mut written: oneshot::Receiver<Written>, place: &Place) -> Written {
        let _turn = self.turn.lock();
        // The previous thread may have made these writes together with its own.
        if let Ok(written) = written.try_recv() {
            return written;
        }
        self.write(place);
        written.try_recv().unwrap_or_else(|lost| {
            let message = "the thread that wrote the witness file panicked";
            Err(Error::new(ErrorKind::UnknownOutcome, message).because(lost))
        })
    }

    /// Makes all waiting writes. Skips a write if its thread never started: its receiver was dropped.
    fn write(&self, place: &Place) {
        let mut waiting = mem::take(&mut *self.waiting.lock());
        waiting.retain(|waiting| !waiting.written.is_closed());
        if waiting.is_empty() {
            return;
        }
        let writes: Vec<_> = waiting.iter().flat_map(|waiting| &waiting.writes).collect();
        let mut outcome = place.written(&writes).map(Vec::into_iter);
        for Waiting { writes, written } in waiting {
            let own = match &mut outcome {
                Ok(all) => Ok(all.take(writes.len()).collect()),
                Err(error) => Err(error.clone()),
            };
            // Fails if the runtime was shut down in the meantime.
            written.send(own).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ledger;
    use idmill::store::Identity;
    use idmill::{IdRange, SequenceName};

    fn write(name: &str) -> Write {
        let identity = Identity { incarnation: 7, epoch: 0 };
        let wanted = Ledger::claim(None, identity, IdRange::new(1, 10).unwrap()).unwrap();
        Write::new(SequenceName::new(name).unwrap(), None, wanted)
    }

    #[test]
    fn waiting_writes_share_one_replacement() {
        let directory = tempfile::tempdir().unwrap();
        let place = Place::of(&directory.path().join("w")).unwrap();
        place.create().unwrap();
        let queue = Queue::default();
        let first = queue.add(vec![write("a"), write("b")]);
        drop(queue.add(vec![write("c")]));
        let second = queue.add(vec![write("a"), write("d")]);
        assert_eq!(queue.result(second, &place).unwrap(), [false, true]);
        std::fs::remove_file(&place.file).unwrap();
        assert_eq!(queue.result(first, &place).unwrap(), [true, true], "written before");
        let failed = [queue.add(vec![write("e")]), queue.add(vec![write("f")])];
        for failed in failed {
            assert_eq!(queue.result(failed, &place).unwrap_err().kind(), ErrorKind::NotFound);
        }
    }
}
