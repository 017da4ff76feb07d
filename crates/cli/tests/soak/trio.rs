//! Three servers over one engine, and their faults.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fastrand::Rng;
use idmill_conformance::Proxy;
use idmill_testing::engines::Engine;
use idmill_testing::fleet::{Fleet, Hostile, Http, Load, Pace, Recorder, Resp, Server, Totals, Way};
use idmill_testing::{eventually_within, holds};
use tokio::time::sleep;

use crate::common::Place;
use crate::figures::{Figures, Memory};
use crate::plan::Fault;

const SERVERS: usize = 3;
/// Timeout after which a server that does not recover fails the test.
const LONG: Duration = Duration::from_secs(120);

pub(crate) struct Trio {
    name: &'static str,
    engine: Engine,
    /// The proxy between the servers and the engine.
    proxy: Proxy,
    place: Place,
    store: String,
    fleet: Arc<Fleet>,
    recorder: Arc<Recorder>,
    befell: [u32; Fault::NAMES.len()],
    ended: Totals,
    memory: Memory,
}

impl Trio {
    /// Starts the trio, with the sequence `orders`. `url` contains `{}` for the address.
    pub(crate) async fn over(name: &'static str, engine: Engine, url: &str) -> Self {
        let proxy = Proxy::start(engine.address()).await.unwrap();
        let store = url.replace("{}", &proxy.address().to_string());
        let place = Place::new();
        let made = tokio::task::block_in_place(|| place.run(&["create", "orders", "--store", &store]));
        assert_eq!(made.code, 0, "{made:?}");
        let (fleet, recorder) = (Fleet::new(SERVERS), Recorder::new());
        let trio = Self {
            name,
            engine,
            proxy,
            place,
            store,
            fleet,
            recorder,
            befell: [0; Fault::NAMES.len()],
            ended: Totals::default(),
            memory: Memory::of(SERVERS),
        };
        for at in 0..SERVERS {
            trio.start(at).await;
        }
        trio
    }

    /// Starts a server like a supervisor: retries until it runs.
    async fn start(&self, at: usize) {
        let begun = Instant::now();
        loop {
            let mut command = self.place.serve(&[]);
            command.args(["--timeout=500ms", "--shutdown-timeout=5s", "--store", &self.store]);
            match tokio::task::block_in_place(|| Server::try_start(&mut command, &[])) {
                Ok(server) => return self.fleet.put(at, server),
                Err(said) => assert!(begun.elapsed() < LONG, "the server does not start: {said}"),
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Runs load and faults for this time, and then ends the servers.
    pub(crate) async fn soak(mut self, time: Duration, seed: u64) -> Figures {
        let pace =
            Pace { pause: Duration::from_millis(15), timeout: Duration::from_millis(250), ..Pace::default() };
        let (begun, mut random) = (Instant::now(), Rng::with_seed(seed));
        let load = Load::start(&self.recorder, &self.fleet, &pace);
        let mut minutes = 0;
        self.hang(&load).await;
        while begun.elapsed() < time {
            if begun.elapsed().as_secs() / 60 > minutes {
                minutes += 1;
                let (ids, available) = (self.recorder.count(), load.waits.availability() * 100.0);
                println!(
                    "{} after {minutes} min: {ids} ids, {available:.4} % answered within 1 s",
                    self.name
                );
            }
            let fault = Fault::any(&mut random);
            self.befell[fault.kind()] += 1;
            self.suffer(fault).await;
            self.memory.look(&self.fleet);
            sleep(Duration::from_millis(random.u64(100..1000))).await;
            // Check now, so that a duplicate is reported immediately.
            self.recorder.none_twice_and_in_order();
        }
        let lasted = begun.elapsed();
        self.all_serve().await;
        let waits = load.end().await;
        for at in 0..SERVERS {
            let server = self.fleet.take(at);
            self.ended = self.ended.plus(tokio::task::block_in_place(|| server.end_in_order()));
        }
        let next = self.next();
        self.proxy.cut();
        Figures {
            name: self.name,
            lasted,
            recorder: self.recorder.clone(),
            next,
            ended: self.ended,
            waits,
            befell: self.befell,
            memory: self.memory,
        }
    }

    /// Pauses the engine until draws fail and every server reports that it is not ready. Then every server
    /// must become ready again.
    async fn hang(&mut self, load: &Load) {
        let pause = Fault::EnginePaused(Duration::ZERO);
        self.befell[pause.kind()] += 1;
        eventually_within(LONG, "ids are drawn", async || {
            let count = self.recorder.count();
            holds(count > 1000, count)
        })
        .await;
        let (refused, broken) = (&load.waits.refused, &load.waits.broken);
        // A client with a short timeout disconnects before the server's error.
        let failed = || refused.load(Ordering::Relaxed) + broken.load(Ordering::Relaxed);
        let before = failed();
        self.engine.pause();
        eventually_within(LONG, "draws fail while the engine is paused", async || {
            holds(failed() > before, before)
        })
        .await;
        for at in 0..SERVERS {
            self.reports(at, 503).await;
        }
        self.engine.resume();
        for at in 0..SERVERS {
            self.reports(at, 200).await;
        }
    }

    /// Waits until `/readyz` of this server returns this status.
    async fn reports(&self, at: usize, status: u16) {
        let (_, _, http) = self.fleet.spot(at).expect("it runs");
        eventually_within(LONG, &format!("/readyz returns {status}"), async || {
            let answer = Http::connect(http).await.expect("it listens").ask("GET /readyz").await;
            let (code, _, text) = answer.expect("it answers");
            holds(code == status, text)
        })
        .await;
    }

    async fn suffer(&mut self, fault: Fault) {
        match fault {
            Fault::Killed(at, time) => {
                let server = self.fleet.take(at);
                tokio::task::block_in_place(|| server.kill());
                sleep(time).await;
                self.start(at).await;
            }
            Fault::Ended(at, time) => {
                let server = self.fleet.take(at);
                self.ended = self.ended.plus(tokio::task::block_in_place(|| server.end_in_order()));
                sleep(time).await;
                self.start(at).await;
            }
            Fault::Paused(at, time) => {
                self.fleet.at(at, |server| server.pause());
                sleep(time).await;
                self.fleet.at(at, |server| server.resume());
            }
            Fault::EnginePaused(time) => {
                self.engine.pause();
                sleep(time).await;
                self.engine.resume();
            }
            Fault::EngineKilled(time) => {
                self.engine.kill();
                sleep(time).await;
                self.engine.restart().await;
            }
            Fault::Cut => self.proxy.cut(),
            Fault::Forgotten => self.proxy.forget(),
            Fault::Refused(time) => {
                self.proxy.refuse(true);
                sleep(time).await;
                self.proxy.refuse(false);
            }
            Fault::Hostile(at, kind, time, seed) => {
                let (_, resp, http) = self.fleet.spot(at).expect("it runs");
                let hostile = Hostile::of(kind, seed);
                tokio::join!(hostile.act(resp, time), hostile.act(http, time), hostile.act(resp, time));
            }
        }
    }

    /// Asserts that every server hands out ids after all faults, and then reports that it is ready.
    async fn all_serve(&self) {
        for at in 0..SERVERS {
            let (number, resp, _) = self.fleet.spot(at).expect("it runs");
            let begun = Instant::now();
            loop {
                let mut connection = self.recorder.connection(number);
                let mut client = Resp::connect(resp).await.expect("it listens");
                match client.draw(Way::Take(100_000), "orders", &mut connection).await.expect("it answers") {
                    Ok(()) => break,
                    Err(refused) => assert!(begun.elapsed() < LONG, "it does not recover: {refused:?}"),
                }
                sleep(Duration::from_millis(50)).await;
            }
            self.reports(at, 200).await;
        }
    }

    /// Returns the stored next id.
    fn next(&self) -> u64 {
        let begun = Instant::now();
        loop {
            let args = ["show", "orders", "--json", "--store", &self.store];
            let ran = tokio::task::block_in_place(|| self.place.run(&args));
            if ran.code == 0 {
                let shown: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
                return shown["next"].as_u64().expect("not exhausted");
            }
            assert!(begun.elapsed() < LONG, "{ran:?}");
        }
    }
}
