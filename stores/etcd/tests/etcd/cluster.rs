//! Three members, one of which may fail.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use idmill::store::{Grant, Store};
use idmill::{ErrorKind, IdRange, Status};
use idmill_conformance::{Daemon, free_port};
use idmill_etcd::{EtcdOptions, EtcdStore};
use tokio::task::JoinSet;

use super::{disjoint, name, post, request};
use idmill_testing::engines::Engine;
use idmill_testing::{eventually, holds};

const SIZE: usize = 3;

struct Cluster {
    members: Vec<Daemon>,
    // Dropped after the members, which write to it.
    _dir: tempfile::TempDir,
}

impl Cluster {
    async fn start() -> Option<Self> {
        // `Engine::down` only installs the engine, and does not start it.
        Engine::down("etcd")?;
        let (port, dir) = (free_port(), tempfile::tempdir().unwrap());
        let members: Vec<_> = (1..=SIZE).map(|number| member(port, number, dir.path())).collect();
        let started = futures_util::future::join_all(members.iter().map(Daemon::start)).await;
        started.into_iter().collect::<idmill::Result<()>>().unwrap();
        Some(Self { members, _dir: dir })
    }

    fn options(&self) -> EtcdOptions {
        EtcdOptions::new(self.members.iter().map(|member| member.address().to_string()))
            .timeout(Duration::from_secs(3))
    }

    /// The leader, as reported by the members.
    async fn leader(&self) -> usize {
        eventually("the members have a leader", async || {
            let mut all = Vec::new();
            for (number, member) in self.members.iter().enumerate() {
                let status = post(member.address(), "/v3/maintenance/status", "{}", None).await;
                let field = |name: &str| {
                    let (_, rest) = status.split_once(&format!("\"{name}\":\""))?;
                    rest.split_once('"').map(|(value, _)| value.to_owned())
                };
                if field("leader").is_some_and(|leader| leader != "0" && Some(leader) == field("member_id")) {
                    return Ok(number);
                }
                all.push(status);
            }
            Err(all)
        })
        .await
    }
}

fn member(port: u16, number: usize, dir: &Path) -> Daemon {
    let [high, low] = port.to_be_bytes();
    let address = Ipv4Addr::new(127, high, low, u8::try_from(number).unwrap());
    let dir = dir.join(number.to_string());
    Daemon::new(SocketAddr::from((address, port)), move || {
        let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ci/engines/etcd"));
        command.arg("serve").arg(&dir).arg(port.to_string()).arg(number.to_string()).arg(SIZE.to_string());
        command
    })
}

/// Reserves until `stop` is set, despite errors. Returns the grants, and the number of ids in doubt.
async fn stubborn(store: EtcdStore, stop: Arc<AtomicBool>) -> (Vec<Grant>, u64) {
    let (mut grants, mut doubtful) = (Vec::new(), 0);
    while !stop.load(Ordering::Relaxed) {
        match store.reserve(&request("s", 7)).await {
            Ok(grant) => grants.push(grant),
            Err(error) if error.kind() == ErrorKind::UnknownOutcome => doubtful += 7,
            Err(error) => assert_eq!(error.status(), Status::Transient, "{error}"),
        }
    }
    (grants, doubtful)
}

/// Retries transient errors, for example during an election.
async fn answered<T, F: Future<Output = idmill::Result<T>>>(ask: impl Fn() -> F) -> T {
    eventually("etcd answers", async || {
        let answer = ask().await;
        if let Err(error) = &answer {
            assert_eq!(error.status(), Status::Transient, "{error}");
        }
        answer
    })
    .await
}

/// Waits until this many more ids are reserved.
async fn reserved(store: &EtcdStore, more: u64) {
    let mut from = None;
    eventually("more ids are reserved", async || {
        let info = store.inspect(&name("s")).await;
        let next = info.as_ref().ok().and_then(|info| info.as_ref()?.next);
        from = from.or(next);
        holds(next.zip(from).is_some_and(|(next, from)| next >= from + more), (info, from))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_may_die_at_any_moment() {
    let Some(cluster) = Cluster::start().await else { return };
    let leader = cluster.leader().await;
    let observer = answered(|| EtcdStore::open_with(cluster.options())).await;
    let (stop, mut running) = (Arc::new(AtomicBool::new(false)), JoinSet::new());
    for _ in 0..4 {
        let store = answered(|| EtcdStore::open_with(cluster.options())).await;
        running.spawn(stubborn(store, Arc::clone(&stop)));
    }
    reserved(&observer, 700).await;
    // Kill and restart the leader. Then pause the next leader: the other members detect the pause only after
    // the election timeout.
    cluster.members[leader].kill();
    reserved(&observer, 700).await;
    cluster.members[leader].start().await.unwrap();
    let next = cluster.leader().await;
    cluster.members[next].pause();
    reserved(&observer, 700).await;
    cluster.members[next].resume();
    reserved(&observer, 700).await;
    stop.store(true, Ordering::Relaxed);
    let done = running.join_all().await;
    assert!(done.iter().all(|(grants, _)| grants.len() > 10), "each task continues after the failovers");
    let doubtful: u64 = done.iter().map(|(_, doubtful)| doubtful).sum();
    let grants: Vec<Grant> = done.into_iter().flat_map(|(grants, _)| grants).collect();
    let granted = disjoint(&grants);
    let s = name("s");
    let info = answered(|| observer.inspect(&s)).await.expect("it exists");
    assert!(grants.iter().all(|grant| grant.identity == info.identity));
    let reached = info.next.unwrap() - 1;
    assert!(granted <= reached && reached <= granted + doubtful, "{granted} + {doubtful}, {reached}");
    let last = grants.iter().map(|grant| grant.range).max_by_key(IdRange::start).unwrap();
    assert!(last.end() <= u128::from(reached) + 1);
}
