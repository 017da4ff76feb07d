//! The network between a process and the server: late or lost answers, broken connections, an unreachable
//! server.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use idmill::store::StoreFuture;
use idmill_memcached::{Dial, Stream};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::server::Server;

/// Fault rates, in permille of all messages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Weather {
    /// The connection breaks, and no command is executed.
    pub(crate) cut_before: u32,
    /// The commands are executed, and the connection breaks before the answer.
    pub(crate) cut_after: u32,
    /// The commands are executed up to ten seconds later.
    pub(crate) late: u32,
    /// The commands are executed, and the answer arrives up to ten seconds later.
    pub(crate) slow_answer: u32,
}

/// The simulated network between all processes and one server.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    pub(crate) server: Arc<Mutex<Server>>,
    state: Arc<Mutex<State>>,
    /// Number of server restarts. A restart loses all messages in flight.
    run: watch::Sender<u64>,
}

#[derive(Debug)]
struct State {
    weather: Weather,
    away: bool,
    rng: Rng,
}

/// The delays of a message and of its answer, whether the message is executed, and whether it is answered.
struct Fate {
    there: Duration,
    back: Duration,
    done: bool,
    answered: bool,
}

impl Network {
    pub(crate) fn to(server: Server, weather: Weather, seed: u64) -> Self {
        let state = State { weather, away: false, rng: Rng::with_seed(seed) };
        Self {
            server: Arc::new(Mutex::new(server)),
            state: Arc::new(Mutex::new(state)),
            run: watch::Sender::new(0),
        }
    }

    /// Kills the server, and restarts it after a while.
    pub(crate) async fn restart(&self, after: Duration) {
        self.state.lock().away = true;
        self.server.lock().restart();
        self.run.send_modify(|run| *run += 1);
        sleep(after).await;
        self.state.lock().away = false;
    }

    pub(crate) fn calm(&self) {
        self.state.lock().weather = Weather::default();
    }

    async fn serve(self, mut client: DuplexStream) {
        let mut run = self.run.subscribe();
        tokio::select! {
            biased;
            _ = run.changed() => {}
            _ = self.answer(&mut client) => {}
        }
    }

    async fn answer(&self, client: &mut DuplexStream) -> io::Result<()> {
        let (mut input, mut piece) = (String::new(), [0; 4096]);
        loop {
            let length = client.read(&mut piece).await?;
            if length == 0 {
                return Ok(());
            }
            input.push_str(std::str::from_utf8(&piece[..length]).expect("ASCII"));
            let fate = self.state.lock().fate();
            sleep(fate.there).await;
            if !fate.done {
                return Ok(());
            }
            let output = self.carry_out(&mut input);
            sleep(fate.back).await;
            if !fate.answered {
                return Ok(());
            }
            client.write_all(output.as_bytes()).await?;
        }
    }

    /// Executes all complete commands.
    fn carry_out(&self, input: &mut String) -> String {
        let (mut server, mut output) = (self.server.lock(), String::new());
        while let Some((line, rest)) = input.split_once("\r\n") {
            let (value, rest) = if line.starts_with("ms ") {
                let Some(value) = rest.split_once("\r\n") else { break };
                value
            } else {
                ("", rest)
            };
            output.push_str(&server.answer(line, value));
            *input = rest.to_owned();
        }
        output
    }
}

impl State {
    fn fate(&mut self) -> Fate {
        let micros = |micros| Duration::from_micros(micros);
        let (there, back) = (micros(self.rng.u64(20..800)), micros(self.rng.u64(20..800)));
        let long = Duration::from_millis(self.rng.u64(0..10_000));
        let usual = Fate { there, back, done: true, answered: true };
        let Weather { cut_before, cut_after, late, slow_answer } = self.weather;
        let mut roll = self.rng.u32(0..1_000);
        for (permille, fate) in [
            (cut_before, Fate { there, back, done: false, answered: false }),
            (cut_after, Fate { there, back, done: true, answered: false }),
            (late, Fate { there: long, back, done: true, answered: true }),
            (slow_answer, Fate { there, back: long, done: true, answered: true }),
        ] {
            if roll < permille {
                return fate;
            }
            roll -= permille;
        }
        usual
    }
}

impl Dial for Network {
    fn dial<'a>(&'a self, _address: &'a str) -> StoreFuture<'a, io::Result<Box<dyn Stream>>> {
        Box::pin(async move {
            if self.state.lock().away {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            let (ours, theirs) = duplex(64 * 1024);
            tokio::spawn(self.clone().serve(theirs));
            Ok(Box::new(ours) as Box<dyn Stream>)
        })
    }
}
