//! The loads, each made by a common benchmark tool for Redis or HTTP.

use std::fs;
use std::io::Write as _;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use crate::contenders::{Contender, Running};

/// Number of idle connections.
const IDLE: usize = 5_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// `INCR` by `clients` clients, each with `pipeline` commands in flight.
    Incr { clients: u32, pipeline: u32 },
    /// `POST …/ids` over `clients` keep-alive connections.
    Http { clients: u32 },
}

/// The result of one run of a load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    pub(crate) per_second: f64,
    /// Milliseconds.
    pub(crate) p99: f64,
    /// The server's processor time per answer, in microseconds.
    pub(crate) work: f64,
}

impl Load {
    pub(crate) const ALL: &[Self] = &[
        Self::Incr { clients: 50, pipeline: 1 },
        Self::Incr { clients: 50, pipeline: 16 },
        Self::Incr { clients: 8, pipeline: 64 },
        Self::Http { clients: 50 },
    ];

    pub(crate) fn fits(self, contender: Contender) -> bool {
        match self {
            Self::Incr { .. } => contender != Contender::Hello,
            Self::Http { .. } => matches!(contender, Contender::Idmill | Contender::Hello),
        }
    }

    pub(crate) fn name(self) -> String {
        match self {
            Self::Incr { clients, pipeline: 1 } => format!("INCR, {clients} clients"),
            Self::Incr { clients, pipeline } => format!("INCR, {clients} clients, pipelines of {pipeline}"),
            Self::Http { clients } => format!("POST …/ids, {clients} clients"),
        }
    }

    pub(crate) fn on(self, running: &Running, seconds: u32) -> Measured {
        let before = running.work();
        let (per_second, p99, answers) = match self {
            Self::Incr { clients, pipeline } => incr(running, clients, pipeline, seconds),
            Self::Http { clients } => http(running, clients, seconds),
        };
        Measured {
            per_second,
            p99,
            work: running.work().saturating_sub(before).as_secs_f64() * 1e6 / answers,
        }
    }
}

/// Sends the requests of about `seconds` at the usual rate. Returns the rate, the p99, and the number of
/// answers.
fn incr(running: &Running, clients: u32, pipeline: u32, seconds: u32) -> (f64, f64, f64) {
    let per_second = match (pipeline, running.contender) {
        (1, _) => 50_000,
        (_, Contender::RedisSynced) => 400_000,
        (..32, _) => 1_000_000,
        _ => 2_000_000,
    };
    let mut command = Command::new("redis-benchmark");
    command.args([
        "--csv",
        "-h",
        "127.0.0.1",
        "-p",
        &running.resp.to_string(),
        "-n",
        &(per_second * seconds).to_string(),
    ]);
    command.args(["-c", &clients.to_string(), "-P", &pipeline.to_string(), "INCR", "orders"]);
    let text = output(&mut command);
    let numbers: Vec<f64> = text
        .lines()
        .last()
        .unwrap_or_default()
        .split(',')
        .filter_map(|field| field.trim_matches('"').parse().ok())
        .collect();
    // Rate per second; then average, minimum, p50, p95, p99 and maximum of the latencies.
    let [rate, _, _, _, _, p99, _] = numbers[..] else { panic!("redis-benchmark: {text}") };
    (rate, p99, f64::from(per_second * seconds))
}

fn http(running: &Running, clients: u32, seconds: u32) -> (f64, f64, f64) {
    let path = if running.contender == Contender::Idmill { "/v1/sequences/orders/ids" } else { "/" };
    let script = tempfile::Builder::new().suffix(".lua").tempfile().expect("a file");
    script.as_file().write_all(b"wrk.method = 'POST'\n").expect("the script is written");
    let mut command = Command::new("wrk");
    command
        .args(["--latency", "-t1", &format!("-c{clients}"), &format!("-d{seconds}s"), "-s"])
        .arg(script.path());
    command.arg(format!("http://127.0.0.1:{}{path}", running.http));
    let text = output(&mut command);
    assert!(!text.contains("Non-2xx"), "{text}");
    let of = |label: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(label));
        line.unwrap_or_else(|| panic!("wrk printed no `{label}`: {text}")).trim().to_owned()
    };
    let rate: f64 = of("Requests/sec:").parse().expect("a number");
    (rate, milliseconds(&of("99%")), rate * f64::from(seconds))
}

fn milliseconds(time: &str) -> f64 {
    let (unit, factor) = [("us", 0.001), ("ms", 1.0), ("s", 1000.0)]
        .into_iter()
        .find(|(unit, _)| time.ends_with(unit))
        .unwrap_or_else(|| panic!("invalid time {time}"));
    time.trim_end_matches(unit).parse::<f64>().expect("a number") * factor
}

fn output(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// The memory of an idle connection, in a server that has answered one `PING` on each.
pub(crate) fn idle(idmill: &Path) -> String {
    let running = Contender::Idmill.start(idmill);
    let resident = || {
        let status = fs::read_to_string(format!("/proc/{}/status", running.process.id())).ok()?;
        status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))?
            .trim()
            .trim_end_matches(" kB")
            .parse::<f64>()
            .ok()
    };
    let before = resident();
    let connect = || {
        let mut stream = TcpStream::connect(("127.0.0.1", running.resp)).ok()?;
        stream.write_all(b"PING\r\n").ok()?;
        let mut answer = [0; 7];
        std::io::Read::read_exact(&mut stream, &mut answer).ok()?;
        Some(stream)
    };
    let clients: Vec<TcpStream> = (0..IDLE).map_while(|_| connect()).collect();
    match (before, resident()) {
        (Some(before), Some(after)) if clients.len() == IDLE => {
            format!("{:.1} KiB for each of {IDLE} idle connections.", (after - before) / IDLE as f64)
        }
        _ => format!(
            "Idle connections: not measured; {} connected (requires `/proc` and a high `ulimit -n`).",
            clients.len()
        ),
    }
}
