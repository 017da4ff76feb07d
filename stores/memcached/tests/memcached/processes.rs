//! Runs sixteen processes on one window while its item is evicted, its server is restarted, and processes
//! are paused and killed.
//!
//! Each process is this test binary, which runs only `child`. A counter on a second memcached, without
//! faults, is the shared clock. Each process increments the counter before and after each draw.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use idmill::ErrorKind;
use idmill_conformance::Daemon;
use idmill_testing::engines::Engine;
use idmill_testing::eventually;
use idmill_url::Schemes;
use rustix::process::{Pid, Signal, kill_process};

use crate::bench::{Raw, name, passes, request, server};

const URL: &str = "IDMILL_TEST_WINDOW_URL";
const CLOCK: &str = "IDMILL_TEST_CLOCK";
const DRAWS: usize = 300;

/// Returns the schemes of Datastore, SQLite and memcached.
pub(crate) fn schemes() -> Schemes {
    let stores = [idmill_datastore::SCHEMES, idmill_sqlite::SCHEMES, idmill_memcached::SCHEMES];
    Schemes::default().with(&stores.concat()).unwrap()
}

/// The body of each process. As a plain test, `child` does nothing.
#[test]
fn child() {
    let (Ok(url), Ok(clock)) = (std::env::var(URL), std::env::var(CLOCK)) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = schemes().open(&url).await.unwrap();
        let mut clock = Raw::connect(clock.parse().unwrap()).await;
        for _ in 0..DRAWS {
            let began = clock.tick().await;
            let range = eventually("a draw succeeds", async || match store.reserve(&request(1)).await {
                Ok(grant) => Ok(grant.range),
                Err(error) if passes(&error) => Err(error),
                Err(error) => panic!("{error:?}"),
            })
            .await;
            let ended = clock.tick().await;
            // Write each line in one call, so that a kill can truncate only the last line.
            let line = format!("drew {} {began} {ended}\n", range.start());
            std::io::stdout().write_all(line.as_bytes()).unwrap();
        }
    });
}

/// A process, which is killed when this value is dropped.
struct Process(Child, PathBuf);

impl Process {
    fn spawn(url: &str, clock: &Daemon, output: &Path) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["processes::child", "--exact", "--nocapture", "--test-threads=1"])
            .env(URL, url)
            .env(CLOCK, clock.address().to_string())
            .stdout(std::fs::File::create(output).unwrap())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        Self(child, output.to_owned())
    }

    fn signal(&self, signal: Signal) {
        let _ = kill_process(Pid::from_child(&self.0), signal);
    }

    fn is_running(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }

    /// Returns all draws, each with its id and the clock before and after.
    fn draws(&self) -> Vec<[u64; 3]> {
        let text = std::fs::read_to_string(&self.1).unwrap();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let lines = whole.lines().filter_map(|line| line.split_once("drew ").map(|(_, draw)| draw));
        lines
            .map(|draw| {
                let mut numbers = draw.split(' ').map(|number| number.parse().unwrap());
                std::array::from_fn(|_| numbers.next().unwrap())
            })
            .collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sixteen_processes_share_a_window_through_failures() {
    let (server, clock) = (server!(), server!());
    let dir = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", dir.path().join("ids.db").display());
    share_a_window(16, &url, &server, &clock).await;
}

/// Runs `count` processes over the store at a URL.
pub(crate) async fn share_a_window(count: usize, url: &str, server: &Engine, clock: &Engine) {
    let dir = tempfile::tempdir().unwrap();
    let window = format!("memcached://{}%3Fblock=40%26stub=2s%26timeout=500ms", server.address());
    let separator = if url.contains('?') { '&' } else { '?' };
    let url = format!("{url}{separator}window={window}");
    let store = schemes().open(&url).await.unwrap();
    let identity = store.create(&name(), request(1).create.unwrap()).await.unwrap().identity;
    let key = format!("idmill:2:{:x}:0:orders%20of%20the%20day", identity.incarnation);
    let mut processes: Vec<_> =
        (0..count).map(|n| Process::spawn(&url, clock, &dir.path().join(n.to_string()))).collect();
    let mut random = fastrand::Rng::with_seed(3);
    let (mut round, mut evictions) = (0, 0);
    while processes.iter_mut().any(Process::is_running) {
        round += 1;
        let victim = &processes[random.usize(..count)];
        victim.signal(Signal::STOP);
        // The maximum pause grows, so that even with a slow store all processes make progress between faults.
        tokio::time::sleep(Duration::from_millis(random.u64(1..30 + round))).await;
        let mut operator = Raw::connect(server.address()).await;
        for _ in 0..random.u32(1..4) {
            evictions += u32::from(operator.evict(&key).await.is_some());
        }
        victim.signal(Signal::CONT);
        match round {
            10 => processes[0].signal(Signal::KILL),
            15 | 30 => {
                server.kill();
                server.restart().await;
            }
            _ => {}
        }
    }
    assert!(round > 10, "the processes ended before any fault");
    judge(&processes, evictions);
    let left = store.inspect(&name()).await.unwrap().unwrap();
    assert_eq!(left.bounds.start(), 1);
}

/// Asserts that no id is a duplicate, and that an id is larger than any id that was returned before it was
/// requested.
fn judge(processes: &[Process], evictions: u32) {
    let draws: Vec<_> = processes.iter().flat_map(Process::draws).collect();
    for process in &processes[1..] {
        assert_eq!(process.draws().len(), DRAWS, "a process ended early");
    }
    let ids: BTreeSet<u64> = draws.iter().map(|[id, ..]| *id).collect();
    assert_eq!(ids.len(), draws.len(), "an id was handed out twice");
    // Go through the draws in the order of their requests. For each request, take the largest id that was
    // returned before.
    let (mut by_end, mut by_begin) = (draws.clone(), draws);
    by_end.sort_unstable_by_key(|[.., ended]| *ended);
    by_begin.sort_unstable_by_key(|[_, began, _]| *began);
    let (mut returned, mut largest) = (by_end.into_iter().peekable(), 0);
    for [id, began, _] in by_begin {
        while let Some([earlier, ..]) = returned.next_if(|[.., ended]| *ended < began) {
            largest = largest.max(earlier);
        }
        assert!(id > largest, "{id} was requested after {largest} was returned");
    }
    println!("{} ids up to {:?}, {evictions} evictions", ids.len(), ids.last());
}

#[tokio::test]
async fn window_url_error_names_the_unreachable_server() {
    let dir = tempfile::tempdir().unwrap();
    let port = idmill_conformance::free_port();
    let url = format!("sqlite:{}?window=memcached://127.0.0.1:{port}", dir.path().join("ids.db").display());
    let store = schemes().open(&url).await.unwrap();
    let error = store.reserve(&request(1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains(&format!("memcached at 127.0.0.1:{port}")), "{error}");
}
