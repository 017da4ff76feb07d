//! The five ways to number things in Spanner, side by side: values per second and how long a
//! transaction takes that draws one.
//!
//! `cargo run --release -p idmill-spanner --example spanner_modes -- --threads 10,50 --seconds 5`
//!
//! Without `--database` it uses the emulator of `SPANNER_EMULATOR_HOST`, or starts one through
//! `ci/engines/spanner`. Each transaction lasts 10 ms beside its draws (`--transaction MS`). Of the emulator,
//! which runs one transaction at a time, the first two modes show less than Spanner does.

use std::env;
use std::error::Error;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use idmill::{Allocator, Order, Sequences};
use idmill_spanner::{
    InTransaction, SequenceTransaction, SpannerOptions, SpannerStore, TransactionError, next_in,
    until_committed,
};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Outcome<()> {
    let args = Args::read()?;
    let emulator = if args.needs_emulator() { Some(Emulator::start()?) } else { None };
    let store = open(&args, emulator.as_ref()).await?;
    println!(
        "{:<22} {:>7} {:>9} {:>8} {:>8} {:>8}",
        "mode", "threads", "values/s", "p50 ms", "p90 ms", "p99 ms"
    );
    for &threads in &args.threads {
        for mode in Mode::ALL {
            let measured = measure(&store, mode, threads, &args).await?;
            println!("{:<22} {threads:>7} {measured}", mode.name());
        }
    }
    Ok(())
}

#[derive(Clone, Copy)]
enum Mode {
    InTransaction,
    SeveralInTransaction,
    Asynchronous,
    Batch,
    AsynchronousBatch,
}

/// How many values a transaction draws in [`Mode::SeveralInTransaction`].
const SEVERAL: usize = 10;

impl Mode {
    const ALL: [Self; 5] = [
        Self::InTransaction,
        Self::SeveralInTransaction,
        Self::Asynchronous,
        Self::Batch,
        Self::AsynchronousBatch,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::InTransaction => "in-transaction",
            Self::SeveralInTransaction => "in-transaction, ten",
            Self::Asynchronous => "asynchronous",
            Self::Batch => "batch of 200",
            Self::AsynchronousBatch => "asynchronous batch",
        }
    }

    /// The settings of the allocator that make the mode; none for those inside a transaction.
    async fn allocator(self, store: &SpannerStore) -> idmill::Result<Option<Allocator<i64>>> {
        let ids = Sequences::new(store.clone())?;
        let sequence = ids.sequence::<i64>(self.name());
        Ok(Some(match self {
            Self::InTransaction | Self::SeveralInTransaction => return Ok(None),
            Self::Asynchronous => sequence.order(Order::Global).await?,
            Self::Batch => sequence.step(200).watermark(0).await?,
            Self::AsynchronousBatch => sequence.step(200).watermark(50).await?,
        }))
    }
}

/// What one mode with one number of threads came to.
struct Measured {
    values: usize,
    elapsed: Duration,
    /// How long each transaction took, sorted.
    transactions: Vec<Duration>,
}

impl Measured {
    fn percentile(&self, percent: usize) -> f64 {
        let place = (self.transactions.len() * percent / 100).min(self.transactions.len() - 1);
        self.transactions[place].as_secs_f64() * 1000.0
    }
}

impl std::fmt::Display for Measured {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let rate = self.values as f64 / self.elapsed.as_secs_f64();
        let [p50, p90, p99] = [50, 90, 99].map(|percent| self.percentile(percent));
        write!(f, "{rate:>9.1} {p50:>8.1} {p90:>8.1} {p99:>8.1}")
    }
}

async fn measure(store: &SpannerStore, mode: Mode, threads: usize, args: &Args) -> Outcome<Measured> {
    let allocator = mode.allocator(store).await?;
    let begun = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..threads {
        let (store, allocator) = (store.clone(), allocator.clone());
        let (end, pause) = (begun + args.seconds, args.transaction);
        tasks.spawn(async move {
            let (mut values, mut transactions) = (0, Vec::new());
            while Instant::now() < end || transactions.is_empty() {
                let before = Instant::now();
                values += transaction(mode, &store, allocator.as_ref(), pause).await?;
                transactions.push(before.elapsed());
            }
            Ok::<_, TransactionError>((values, transactions))
        });
    }
    let (mut values, mut transactions) = (0, Vec::new());
    while let Some(outcome) = tasks.join_next().await {
        let (more, lasted) = outcome??;
        values += more;
        transactions.extend(lasted);
    }
    transactions.sort_unstable();
    Ok(Measured { values, elapsed: begun.elapsed(), transactions })
}

/// One transaction that draws, and how many values it drew.
async fn transaction(
    mode: Mode,
    store: &SpannerStore,
    allocator: Option<&Allocator<i64>>,
    pause: Duration,
) -> Result<usize, TransactionError> {
    if let Some(allocator) = allocator {
        allocator.next().await?;
        // Its own statements would not touch the sequence.
        tokio::time::sleep(pause).await;
        return Ok(1);
    }
    until_committed(|| async {
        if let Mode::InTransaction = mode {
            return single(store, mode, pause).await;
        }
        let mut tx = SequenceTransaction::begun(store.client().begin_read_write_transaction().await)?;
        let sequence = InTransaction::<i64>::new(mode.name())?;
        for _ in 0..SEVERAL {
            tx.next(&sequence).await?;
        }
        tokio::time::sleep(pause).await;
        tx.commit().await?;
        Ok(SEVERAL)
    })
    .await
}

async fn single(store: &SpannerStore, mode: Mode, pause: Duration) -> Result<usize, TransactionError> {
    let mut tx = store.client().begin_read_write_transaction().await?;
    let drawn = next_in::<i64>(&mut tx, mode.name()).await;
    tokio::time::sleep(pause).await;
    tx.end(drawn.map_err(TransactionError::from), None).await.map(|_| 1)
}

async fn open(args: &Args, emulator: Option<&Emulator>) -> Outcome<SpannerStore> {
    let mut options = SpannerOptions::new(args.database.as_str());
    if let Some(emulator) = emulator {
        options = options.emulator(format!("127.0.0.1:{}", emulator.port));
    }
    let begun = Instant::now();
    loop {
        match SpannerStore::open_with(options.clone()).await {
            // The emulator is starting.
            Err(error) if emulator.is_some() && begun.elapsed() < Duration::from_secs(20) => {
                tracing::debug!("{error}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            outcome => return Ok(outcome?),
        }
    }
}

/// An emulator that ends with this program.
struct Emulator {
    process: Child,
    port: u16,
}

impl Emulator {
    fn start() -> Outcome<Self> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ci/engines/spanner");
        if !Command::new(script).arg("fetch").status()?.success() {
            return Err("there is no emulator; name a database with --database".into());
        }
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut serve = Command::new(script);
        serve.arg("serve").arg(env::temp_dir()).arg(port.to_string());
        let process = serve.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        Ok(Self { process, port })
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        // Both fail only where it has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

struct Args {
    /// `projects/P/instances/I/databases/D`, in the cloud or in the emulator of the environment.
    database: String,
    given: bool,
    threads: Vec<usize>,
    seconds: Duration,
    transaction: Duration,
}

impl Args {
    fn read() -> Outcome<Self> {
        let mut args = Self {
            database: "projects/test/instances/test/databases/test".to_owned(),
            given: false,
            threads: vec![10, 50],
            seconds: Duration::from_secs(5),
            transaction: Duration::from_millis(10),
        };
        let mut words = env::args().skip(1);
        while let Some(option) = words.next() {
            let value = words.next().ok_or_else(|| format!("{option} needs a value"))?;
            match option.as_str() {
                "--database" => (args.database, args.given) = (value, true),
                "--threads" => args.threads = value.split(',').map(str::parse).collect::<Result<_, _>>()?,
                "--seconds" => args.seconds = Duration::from_secs(value.parse()?),
                "--transaction" => args.transaction = Duration::from_millis(value.parse()?),
                _ => {
                    return Err(format!(
                        "no option {option}: --database, --threads, --seconds, --transaction"
                    )
                    .into());
                }
            }
        }
        Ok(args)
    }

    fn needs_emulator(&self) -> bool {
        !self.given && env::var_os("SPANNER_EMULATOR_HOST").is_none()
    }
}
