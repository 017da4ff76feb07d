//! Every granted id is accounted for, whatever happens and in whatever order: it was drawn, is in memory,
//! was given back, or is a gap.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use idmill::store::{Change, Grant, Reserve, Store, StoreFuture};
use idmill::{Allocator, ErrorKind, Handle, Order, Result, SequenceName, Sequences, Snapshot};
use idmill_testing::faulty::{Fault, Faults, FaultyStore};
use proptest::prelude::*;

const NAME: &str = "counted";
const THREADS: usize = 3;

/// An event. The numbers choose threads, amounts and faults.
#[derive(Clone, Copy, Debug)]
enum Event {
    Next,
    Take(u64),
    GivesUp(u64),
    /// A thread draws this number of ids.
    Thread(usize, u8),
    /// A thread ends, and another one begins.
    Succeeds(usize),
    Handle,
    Block,
    BlockEnds,
    Revoke,
    Fault(u8),
    /// The store moves `next`: forwards, or back to the start with another epoch.
    Moves(bool),
    Waits,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => Just(Event::Next),
        2 => (1..60_u64).prop_map(Event::Take),
        2 => (1..60_u64).prop_map(Event::GivesUp),
        6 => (0..THREADS, 1..12_u8).prop_map(|(thread, times)| Event::Thread(thread, times)),
        1 => (0..THREADS).prop_map(Event::Succeeds),
        2 => Just(Event::Handle),
        2 => Just(Event::Block),
        1 => Just(Event::BlockEnds),
        1 => Just(Event::Revoke),
        1 => (0..3_u8).prop_map(Event::Fault),
        1 => any::<bool>().prop_map(Event::Moves),
        2 => Just(Event::Waits),
    ]
}

/// A thread that draws on request, only from memory.
struct Worker {
    orders: Sender<u8>,
    drawn: Receiver<u64>,
    thread: JoinHandle<()>,
}

impl Worker {
    fn start(sequence: &Allocator<u64>) -> Self {
        let ((orders, order), (sender, drawn)) = (channel(), channel());
        let sequence = sequence.clone();
        let draw = move || {
            for times in order {
                sender.send((0..times).filter(|_| sequence.try_next().is_ok()).count() as u64).unwrap();
            }
        };
        Self { orders, drawn, thread: Builder::new().spawn(draw).unwrap() }
    }

    fn draw(&self, times: u8) -> u64 {
        self.orders.send(times).unwrap();
        self.drawn.recv().unwrap()
    }

    fn end(self) {
        drop(self.orders);
        self.thread.join().unwrap();
    }
}

struct World {
    store: FaultyStore,
    ids: Sequences,
    sequence: Allocator<u64>,
    handle: Handle<u64>,
    /// A second handle: it ends, and begins with an empty block.
    block: Option<Handle<u64>>,
    workers: Vec<Worker>,
    /// Number of ids that callers got.
    received: u64,
}

impl World {
    async fn new(order: Order, step: u64, watermark: u64) -> Self {
        let store = FaultyStore::new();
        let ids = Sequences::new(store.clone()).unwrap();
        let builder = ids.sequence::<u64>(NAME).order(order).step(step).watermark(watermark).block_size(7);
        let sequence = builder.timeout(Duration::from_secs(5)).await.unwrap();
        let workers = (0..THREADS).map(|_| Worker::start(&sequence)).collect();
        let handle = sequence.handle();
        Self { store, ids, sequence, handle, block: None, workers, received: 0 }
    }

    async fn happens(&mut self, event: Event) {
        match event {
            Event::Next => self.received += u64::from(self.sequence.next().await.is_ok()),
            Event::Take(n) => self.received += self.sequence.take(n).await.map_or(0, |ids| ids.len()),
            Event::GivesUp(n) => {
                let brief = tokio::time::timeout(Duration::from_micros(1), self.sequence.take(n)).await;
                self.received += brief.map_or(0, |ids| ids.map_or(0, |ids| ids.len()));
            }
            Event::Thread(thread, times) => self.received += self.workers[thread].draw(times),
            Event::Succeeds(thread) => {
                let successor = Worker::start(&self.sequence);
                std::mem::replace(&mut self.workers[thread], successor).end();
            }
            Event::Handle => self.received += u64::from(self.handle.try_next().is_ok()),
            Event::Block => {
                let block = self.block.get_or_insert_with(|| self.sequence.handle());
                self.received += u64::from(block.try_next().is_ok());
            }
            Event::BlockEnds => self.block = None,
            Event::Revoke => drop(self.sequence.discard()),
            Event::Fault(kind) => self.store.push_fault(match kind {
                0 => Fault::LostReply,
                1 => Fault::LostRequest,
                _ => Fault::Refuse(ErrorKind::Denied),
            }),
            Event::Moves(backwards) => self.moves(backwards).await,
            Event::Waits => tokio::time::sleep(Duration::from_secs(20)).await,
        }
    }

    async fn moves(&self, backwards: bool) {
        let name = SequenceName::new(NAME).unwrap();
        let Some(next) = self.store.inspect(&name).await.unwrap().and_then(|info| info.next) else { return };
        let next = if backwards { 1 } else { next + 5 };
        self.store.set(&name, Change::new().next(next).backwards(backwards)).await.unwrap();
    }

    /// The granted ids, and the sum of the ids accounted for. An unknown outcome counts as no grant.
    fn accounts(snapshot: &Snapshot) -> (u64, u64) {
        let gaps = snapshot.gaps.total() - snapshot.gaps.unknown;
        (snapshot.granted, snapshot.drawn + snapshot.remaining + snapshot.given_back + gaps)
    }

    async fn end(mut self) -> Result<(), TestCaseError> {
        // Wait until no call is in flight.
        tokio::time::sleep(Duration::from_secs(60)).await;
        self.ids.close().await;
        // The handles end, and count the ids left in their blocks.
        (self.handle, self.block) = (self.sequence.handle(), None);
        self.workers.drain(..).for_each(Worker::end);
        let snapshot = self.sequence.snapshot();
        prop_assert_eq!(snapshot.remaining, 0);
        prop_assert_eq!(
            snapshot.drawn,
            self.received,
            "drawn is not the number of received ids: {:?}",
            snapshot
        );
        let (granted, accounted) = Self::accounts(&snapshot);
        prop_assert_eq!(granted, accounted, "{:?}", snapshot);
        Ok(())
    }
}

fn run(order: Order, step: u64, watermark: u64, events: &[Event]) -> Result<(), TestCaseError> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let mut world = World::new(order, step, watermark).await;
        for event in events {
            world.happens(*event).await;
            // Wait until all signals are handled, so that no change is half done.
            tokio::time::sleep(Duration::from_millis(1)).await;
            let snapshot = world.sequence.snapshot();
            let (granted, accounted) = World::accounts(&snapshot);
            // The actor may hold the first ids of a `take` while it reserves the rest.
            let settled = matches!(event, Event::Waits);
            prop_assert!(granted >= accounted, "after {:?}: {:?}", event, snapshot);
            prop_assert!(granted == accounted || !settled, "after {:?}: {:?}", event, snapshot);
            prop_assert!(snapshot.drawn >= world.received, "after {:?}: {:?}", event, snapshot);
        }
        world.end().await
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn every_id_is_drawn_in_memory_given_back_or_a_gap(
        thread_order in any::<bool>(),
        step in 1..50_u64,
        watermark in 0..50_u64,
        events in prop::collection::vec(event(), 1..60),
    ) {
        let order = if thread_order { Order::Thread } else { Order::Process };
        run(order, step, watermark.min(step), &events)?;
    }
}

/// A store that reserves ids which it cannot grant, like a guard with refused ranges.
#[derive(Clone, Debug)]
struct Wasteful(FaultyStore);

impl Store for Wasteful {
    fn reserve<'a>(&'a self, request: &'a Reserve) -> StoreFuture<'a, Result<Grant>> {
        Box::pin(async move {
            let outcome = self.0.reserve(request).await;
            outcome.map(|grant| grant.leaving_gap(3)).map_err(|error| error.leaving_gap(7))
        })
    }

    idmill::store_calls!(|this| this.0 => capabilities give_back create inspect list set remove);
}

#[tokio::test(start_paused = true)]
async fn ids_reserved_but_not_granted_are_abandoned() {
    let store = FaultyStore::with_faults(Faults::none().script([Fault::LostRequest]));
    let ids = Sequences::new(Wasteful(store.clone())).unwrap();
    let sequence = ids.sequence::<u64>(NAME).step(10).watermark(0).await.unwrap();
    assert_eq!(sequence.next().await.unwrap(), 1);
    let snapshot = sequence.snapshot();
    assert_eq!((store.reserves(), snapshot.granted, snapshot.gaps.abandoned), (2, 20, 10));
}
