//! Processes that draw from several stores until they are killed.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fastrand::Rng;
use idmill::Status;
use tokio::time::sleep;

/// Environment variable with one line per store: the name of the store, which is also that of the sequence,
/// and the URL.
const STORES: &str = "IDMILL_SOAK_STORES";

/// Not a test: the main function of each process.
#[tokio::test]
async fn process() {
    let Ok(stores) = std::env::var(STORES) else { return };
    let errors = tracing_subscriber::filter::LevelFilter::ERROR;
    tracing_subscriber::fmt().with_ansi(false).with_max_level(errors).with_writer(std::io::stderr).init();
    let mut draws = tokio::task::JoinSet::new();
    for line in stores.lines() {
        let (name, url) = line.split_once(' ').expect("a name and a URL");
        draws.spawn(draw(name.to_owned(), format!("{url}&existing=true")));
    }
    draws.join_all().await;
}

/// Draws ids. After an error that only an operator or a restart can fix, opens the store again.
async fn draw(name: String, url: String) {
    loop {
        let error = draw_until_it_fails(&name, &url).await.expect_err("it draws until it fails");
        eprintln!("{name}: {error}");
        sleep(Duration::from_millis(200)).await;
    }
}

async fn draw_until_it_fails(name: &str, url: &str) -> idmill::Result<()> {
    let ids = idmill_any::connect(url).await?;
    let sequence = ids.sequence::<u64>(name).step(10).watermark(5).timeout(Duration::from_secs(2)).await?;
    let mut random = Rng::new();
    loop {
        match sequence.next().await {
            // Write each line at once, so that a kill can truncate only the last line.
            Ok(id) => std::io::stdout().write_all(format!("id {name} {id}\n").as_bytes()).expect("a file"),
            Err(error) if error.status() == Status::Permanent => return Err(error),
            Err(_) => {}
        }
        sleep(Duration::from_millis(random.u64(1..30))).await;
    }
}

/// An id that a process printed.
pub(crate) struct Printed {
    /// The number of the process.
    pub(crate) process: u32,
    pub(crate) store: String,
    pub(crate) id: u64,
}

pub(crate) struct Processes {
    dir: PathBuf,
    stores: String,
    running: Vec<Process>,
    pub(crate) started: u32,
    /// Output of processes that have ended.
    printed: Vec<Printed>,
    reported: Vec<String>,
}

struct Process {
    number: u32,
    child: Child,
    out: File,
    err: PathBuf,
    /// The incomplete last line.
    rest: Vec<u8>,
}

impl Processes {
    pub(crate) const COUNT: usize = 6;

    /// Creates a manager without processes. The output files of later processes go to `dir`.
    pub(crate) fn new(dir: &Path, stores: &str) -> Self {
        let (dir, stores) = (dir.to_owned(), stores.to_owned());
        Self { dir, stores, running: Vec::new(), started: 0, printed: Vec::new(), reported: Vec::new() }
    }

    /// Starts processes up to the intended number.
    pub(crate) fn start(&mut self) {
        while self.running.len() < Self::COUNT {
            let [out, err] = ["out", "err"].map(|kind| self.dir.join(format!("{kind}-{}", self.started)));
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["processes::process", "--exact", "--nocapture", "--test-threads=1"]);
            command.env(STORES, &self.stores).stdin(Stdio::null());
            command.stdout(File::create(&out).unwrap()).stderr(File::create(&err).unwrap());
            let child = command.spawn().unwrap();
            let (number, out) = (self.started, File::open(&out).unwrap());
            self.running.push(Process { number, child, out, err, rest: Vec::new() });
            self.started += 1;
        }
    }

    /// Returns the numbers of the running processes.
    pub(crate) fn numbers(&self) -> BTreeSet<u32> {
        self.running.iter().map(|process| process.number).collect()
    }

    /// Kills one process.
    pub(crate) fn kill(&mut self, at: usize) {
        let mut process = self.running.remove(at);
        process.end();
        self.printed.extend(process.read());
        let reported = fs::read_to_string(&process.err).unwrap();
        self.reported
            .extend(reported.lines().filter(|line| line.contains("ids continue from")).map(str::to_owned));
    }

    pub(crate) fn kill_all(&mut self) {
        while !self.running.is_empty() {
            self.kill(0);
        }
    }

    /// Returns the ids that were printed since the last call. Those of a process are in their order.
    pub(crate) fn printed(&mut self) -> Vec<Printed> {
        let mut printed = std::mem::take(&mut self.printed);
        printed.extend(self.running.iter_mut().flat_map(Process::read));
        printed
    }

    /// Returns the errors of processes that detected a restore of this store.
    pub(crate) fn healed(&self, name: &str) -> Vec<&String> {
        let mark = format!("sequence={name}");
        self.reported.iter().filter(|line| line.contains(&mark)).collect()
    }
}

impl Process {
    fn end(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn read(&mut self) -> Vec<Printed> {
        self.out.read_to_end(&mut self.rest).unwrap();
        let whole = self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let lines: Vec<u8> = self.rest.drain(..whole).collect();
        // The test harness prints text before the first line.
        let printed = |line: &str| {
            let (store, id) = line.rsplit_once("id ")?.1.split_once(' ')?;
            Some(Printed { process: self.number, store: store.to_owned(), id: id.parse().ok()? })
        };
        String::from_utf8_lossy(&lines).lines().filter_map(printed).collect()
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.running.iter_mut().for_each(Process::end);
    }
}
