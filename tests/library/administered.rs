//! Administration through `Sequences`, and the blocking forms of async calls.

use std::time::Duration;

use idmill::store::{Bounds, Change, Identity, Page};
use idmill::{ErrorKind, Order, Sequences};
use idmill_testing::faulty::{Faults, FaultyStore};

const LONG: Duration = Duration::from_secs(10);

/// This thread has no runtime.
#[test]
fn program_without_a_runtime_can_use_every_call() {
    let ids = Sequences::connect_blocking_with(async { Ok(FaultyStore::new()) }, |settings| {
        settings.store_timeout(LONG)
    })
    .unwrap();
    let created = ids.admin().blocking().create("orders", Bounds::new(5, 100).unwrap()).unwrap();
    assert_eq!(ids.admin().blocking().inspect("orders").unwrap(), Some(created.clone()));
    assert_eq!(ids.admin().blocking().list(Page::of("or")).unwrap().sequences, [created]);
    let moved = ids.admin().blocking().set("orders", Change::new().next(10)).unwrap();
    assert_eq!(moved.next, Some(10));

    let orders = ids.sequence::<u32>("orders").order(Order::Thread).open_blocking().unwrap();
    orders.blocking().warm(1).unwrap();
    assert_eq!(orders.try_next().unwrap(), 10);
    assert_eq!(orders.blocking().next().unwrap(), 11);
    assert_eq!(orders.blocking().take(2).unwrap().len(), 2);
    let mut handle = orders.handle();
    assert!(handle.blocking().next().is_ok());
    assert_eq!(handle.allocator().blocking().take(3).unwrap().len(), 3);

    let later = Identity { epoch: 1, ..moved.identity };
    assert_eq!(ids.admin().blocking().remove_if("orders", later).unwrap_err().kind(), ErrorKind::Conflict);
    assert!(ids.admin().blocking().remove_if("orders", moved.identity).unwrap());
    assert!(!ids.admin().blocking().remove("orders").unwrap());
    assert_eq!(ids.admin().blocking().inspect("orders").unwrap(), None);
    ids.blocking().close().unwrap();
    assert_eq!(ids.admin().blocking().inspect("orders").unwrap_err().kind(), ErrorKind::Closed);
}

/// Where a wait could never end, each blocking call immediately returns an error that names the async method.
#[tokio::test]
async fn blocking_call_on_a_runtime_names_the_async_method() {
    let ids = Sequences::new(FaultyStore::new()).unwrap();
    let orders = ids.sequence::<u64>("orders").lazy().unwrap();
    let faults = [
        (ids.admin().blocking().create("a", Bounds::of::<u64>()).unwrap_err(), "use the async `create`"),
        (ids.admin().blocking().inspect("a").unwrap_err(), "use the async `inspect`"),
        (ids.admin().blocking().list(Page::default()).unwrap_err(), "use the async `list`"),
        (ids.admin().blocking().set("a", Change::default()).unwrap_err(), "use the async `set`"),
        (ids.admin().blocking().remove("a").unwrap_err(), "use the async `remove`"),
        (ids.admin().blocking().remove_if("a", Identity::fresh()).unwrap_err(), "use the async `remove_if`"),
        (orders.blocking().warm(1).unwrap_err(), "use the async `warm`"),
        (orders.blocking().take(3).unwrap_err(), "use the async `take`"),
    ];
    for (fault, instead) in faults {
        assert_eq!(fault.kind(), ErrorKind::InvalidInput);
        assert!(fault.to_string().contains(instead), "{fault}");
    }
}

/// A blocked task without tokio budget is never woken, so a blocking call must not need budget.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_twin_waits_outside_of_the_tasks_budget() {
    let ids = Sequences::builder(FaultyStore::new()).own_thread().start().unwrap();
    let task = tokio::spawn(async move {
        while tokio::task::coop::has_budget_remaining() {
            tokio::task::coop::consume_budget().await;
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            while tokio::task::coop::poll_proceed(&mut context).map(|step| step.made_progress()).is_ready() {}
        }
        ids.admin().blocking().create("orders", Bounds::of::<u64>()).unwrap();
        let orders = ids.sequence::<u64>("orders").lazy().unwrap();
        orders.blocking().warm(1).unwrap();
        ids.admin().blocking().inspect("orders").unwrap().unwrap().next
    });
    assert!(task.await.unwrap() > Some(1));
}

#[tokio::test(start_paused = true)]
async fn timed_out_call_reports_whether_it_may_have_applied() {
    let store = FaultyStore::new();
    let ids = Sequences::builder(store.clone()).store_timeout(Duration::from_secs(3)).start().unwrap();
    store.set_faults(Faults::none().latency(Duration::from_secs(60)));
    let read = ids.admin().inspect("orders").await.unwrap_err();
    assert_eq!((read.kind(), read.sequence()), (ErrorKind::Deadline, Some("orders")));
    assert_eq!(ids.admin().list(Page::default()).await.unwrap_err().kind(), ErrorKind::Deadline);
    for written in [
        ids.admin().create("orders", Bounds::of::<u64>()).await.map(drop),
        ids.admin().set("orders", Change::default()).await.map(drop),
        ids.admin().remove("orders").await.map(drop),
        ids.admin().remove_if("orders", Identity::fresh()).await.map(drop),
    ] {
        assert_eq!(written.unwrap_err().kind(), ErrorKind::UnknownOutcome);
    }
    store.set_faults(Faults::none());
    let missing = ids.admin().set("orders", Change::default()).await.unwrap_err();
    assert_eq!(missing.to_string(), "set `orders`: no such sequence; create it first");
    assert_eq!(ids.admin().remove("a\n").await.unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[tokio::test(start_paused = true)]
async fn cancelled_revoke_drops_ids_in_memory() {
    let store = FaultyStore::new();
    let ids = Sequences::new(store.clone()).unwrap();
    let orders = ids.sequence::<u64>("orders").step(1000).watermark(0).await.unwrap();
    assert_eq!(orders.next().await.unwrap(), 1);
    // The `set` is applied after half of the latency.
    store.set_faults(Faults::none().latency(Duration::from_secs(2)));
    for (cancelled_after, first) in [(1500, 1001), (500, 2001)] {
        let revoke =
            tokio::time::timeout(Duration::from_millis(cancelled_after), ids.admin().revoke("orders"));
        assert!(revoke.await.is_err());
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(orders.next().await.unwrap(), first, "cancelled after {cancelled_after} ms");
    }
}

/// The store's work runs on the store's runtime, whichever thread polls the future.
#[test]
fn administration_needs_no_runtime_of_the_caller() {
    let ids =
        Sequences::new(FaultyStore::with_faults(Faults::none().latency(Duration::from_millis(1)))).unwrap();
    let (polled, name) = (ids.clone(), String::from("orders"));
    let future = std::thread::spawn(move || {
        let info = futures_util::FutureExt::now_or_never(polled.admin().create(&name, Bounds::of::<u64>()));
        assert!(info.is_none(), "the store has not answered yet");
    });
    future.join().unwrap();
    ids.blocking().close().unwrap();
}
