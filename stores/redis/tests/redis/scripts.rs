//! The scripts on a real server decide like the functions that the model checker explores: both run the
//! same steps.

use idmill::store::{Bounds, Change, GiveBack, Grant, Identity, Reserve, SequenceInfo, Store};
use idmill::{ErrorKind, IdRange, SequenceName};
use idmill_redis::RedisStore;
use idmill_redis::window::{RedisToken, RedisWindow, RedisWindowOptions};
use idmill_shared_cache::fenced::{MAX_LEN, prepared, refill};
use idmill_shared_cache::{Drawn, Installed, Window};
use idmill_testing::engines::Engine;
use idmill_testing::fenced;
use idmill_testing::fenced::{Draw, Kept};

use crate::server::{ask, start};

/// The limits of doubles, of the scripts' halves of ten digits, and of signed and unsigned integers.
const EDGES: [u64; 9] = [
    0,
    9_999_999_999,
    10_000_000_000,
    1 << 53,
    99_999_999_999_999,
    i64::MAX as u64,
    1 << 63,
    u64::MAX - 30,
    u64::MAX,
];

fn near_an_edge(rng: &mut fastrand::Rng) -> u64 {
    let edge = EDGES[rng.usize(..EDGES.len())];
    if rng.bool() { edge.saturating_add(rng.u64(..20)) } else { edge.saturating_sub(rng.u64(..20)) }
}

fn some_bounds(rng: &mut fastrand::Rng) -> Bounds {
    let (a, b) = (near_an_edge(rng), near_an_edge(rng));
    Bounds::new(a.min(b), a.max(b)).unwrap()
}

fn some_count(rng: &mut fastrand::Rng) -> u64 {
    if rng.u8(..4) == 0 { near_an_edge(rng).max(1) } else { rng.u64(1..40) }
}

#[tokio::test]
async fn reserves_are_the_arithmetic_of_all_stores() {
    let Some(engine) = start(&["--appendfsync", "no"]).await else { return };
    let store = RedisStore::open(&format!("redis://{}?durability=process", engine.address())).await.unwrap();
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    for n in 0..300 {
        let name = SequenceName::new(&format!("s{n}")).unwrap();
        let mut info: Option<SequenceInfo> = None;
        for _ in 0..8 {
            let create = some_bounds(&mut rng);
            let ceiling = if rng.bool() { u64::MAX } else { near_an_edge(&mut rng) };
            let create = Some(create);
            let request = Reserve::new(name.clone(), some_count(&mut rng)).ceiling(ceiling).create(create);
            step(&store, &mut info, &request).await;
            let stored = store.inspect(&name).await.unwrap();
            assert_eq!(stored.as_ref().map(|info| info.next), info.as_ref().map(|info| info.next));
            if let Some(info) = &mut info
                && rng.u8(..4) == 0
            {
                let next = rng.u64(info.bounds.start()..=info.bounds.max());
                let change = Change::new().next(next).backwards(true);
                *info = store.set(&name, change).await.unwrap();
                assert_eq!(info.next, Some(next));
            }
        }
    }
}

async fn step(store: &RedisStore, info: &mut Option<SequenceInfo>, request: &Reserve) {
    let create = request.create.unwrap();
    let fresh = SequenceInfo::stored(
        request.name.clone(),
        Some(create.start()),
        create,
        Identity { incarnation: 0, epoch: 0 },
    );
    let mut expected = info.clone().unwrap_or(fresh);
    match (expected.grant(request.count, request.ceiling), store.reserve(request).await) {
        (Ok(grant), Ok(granted)) => {
            assert_eq!((grant.range, grant.bounds), (granted.range, granted.bounds), "{request:?}");
            expected.identity = granted.identity;
            let back = GiveBack::new(request.name.clone(), granted.identity, granted.range);
            if request.count.is_multiple_of(3) {
                assert_eq!(store.give_back(&back).await.unwrap(), expected.take_back(&back));
            }
            *info = Some(expected);
        }
        (Err(error), Err(refused)) => {
            assert_eq!((error.kind(), error.to_string()), (refused.kind(), said(&refused)));
        }
        (expected, outcome) => panic!("{expected:?}, but {outcome:?}: {request:?}"),
    }
}

/// The error without the store's prefix.
fn said(error: &idmill::Error) -> String {
    error.to_string().replace("reserve ", "")
}

/// A window, its server, and the expected content.
struct Pair {
    window: RedisWindow,
    request: Reserve,
    info: SequenceInfo,
    kept: Option<Kept<u64>>,
    /// Number of the current server. Content installed before a change belongs to another server.
    here: u64,
    /// Tokens, each with its number and, if the token prepares the next range, the number of ids left.
    tokens: Vec<(RedisToken, u64, Option<u64>)>,
}

#[tokio::test]
async fn windows_decide_as_is_explored() {
    let Some(engine) = start(&["--appendonly", "no"]).await else { return };
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    for n in 0..200 {
        let options = RedisWindowOptions::new(&engine.address().to_string()).unwrap();
        let name = SequenceName::new(&format!("s{n}")).unwrap();
        let bounds = Bounds::new(0, u64::MAX).unwrap();
        let info = SequenceInfo::stored(name.clone(), Some(0), bounds, Identity { incarnation: 5, epoch: n });
        let request = Reserve::new(name, 1).create(bounds);
        let window = RedisWindow::new(options).unwrap();
        window.introduce(&info);
        let mut pair = Pair { window, request, info, kept: None, here: 0, tokens: Vec::new() };
        for _ in 0..30 {
            pair.step(&engine, &mut rng).await;
        }
    }
}

impl Pair {
    async fn step(&mut self, engine: &Engine, rng: &mut fastrand::Rng) {
        self.request.count = some_count(rng).min(MAX_LEN);
        match rng.u8(..10) {
            0 => self.change_server(engine),
            1 => {
                self.window.recall(&self.info).await.unwrap();
                self.kept = None;
            }
            2 if !self.tokens.is_empty() => {
                let (token, number, _) = self.tokens.swap_remove(rng.usize(..self.tokens.len()));
                self.window.release(&self.request, token, false).await;
                fenced::release(&mut self.kept, number);
            }
            3..6 if !self.tokens.is_empty() => {
                let len = rng.u64(1..30);
                let base = near_an_edge(rng).min(u64::MAX - len);
                self.install(IdRange::new(base, len).unwrap(), rng).await;
            }
            _ => self.draw(rng).await,
        }
    }

    /// Simulates a changed server: the script only sees content with another server's fence.
    fn change_server(&mut self, engine: &Engine) {
        self.here += 1;
        if self.kept.is_some() {
            let Identity { incarnation, epoch } = self.info.identity;
            let key = format!("{{idmill}}:w:{incarnation:x}:{epoch}:{}", self.request.name);
            let fence = if self.here.is_multiple_of(2) { "another:history" } else { "" };
            assert_eq!(ask(engine, &["HSET", &key, "fence", fence]), ":0");
        }
    }

    async fn draw(&mut self, rng: &mut fastrand::Rng) {
        self.request.ceiling = if rng.bool() { u64::MAX } else { near_an_edge(rng) };
        let number = rng.u64(..);
        let expected =
            fenced::draw(&mut self.kept, &self.here, self.request.count, self.request.ceiling, number);
        let drawn = self.window.draw(&self.request).await;
        match (expected, drawn) {
            (Draw::Ids { range, left, low, .. }, Ok(Drawn::Ids { grant, low: token })) => {
                assert_eq!((grant.range, token.is_some()), (range, low));
                self.tokens.extend(token.map(|token| (token, number, Some(left))));
            }
            (Draw::Claimed, Ok(Drawn::Empty(token))) => self.tokens.push((token, number, None)),
            (Draw::Busy, Ok(Drawn::Busy(_))) => {}
            (Draw::Above, Err(error)) => assert_eq!(error.kind(), ErrorKind::Exhausted),
            (expected, drawn) => panic!("{expected:?}, but {drawn:?}"),
        }
    }

    async fn install(&mut self, range: IdRange, rng: &mut fastrand::Rng) {
        let (token, number, left) = self.tokens[rng.usize(..self.tokens.len())].clone();
        let refill = match left {
            None => refill(range, self.request.count, self.request.ceiling),
            Some(left) => prepared(range, left),
        };
        let grant = Grant::new(range, self.info.identity, self.info.bounds);
        let installed = self.window.install(&self.request, token, grant).await.unwrap();
        let fits = fenced::install(&mut self.kept, &self.here, number, &refill);
        let expected = if !fits {
            Installed::Refused
        } else if refill.own.is_empty() {
            Installed::Done
        } else {
            Installed::Ids(grant.range(refill.own))
        };
        assert_eq!(installed, expected);
    }
}
