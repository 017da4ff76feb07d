//! Compares the five modes of the Spanner store: values per second, and the duration of a transaction that
//! draws a value.
//!
//! `cargo run --release -p idmill-spanner --example spanner_modes -- --threads 10,50 --seconds 5`
//!
//! Without `--database`, the example uses the emulator of `SPANNER_EMULATOR_HOST`, or starts one through
//! `ci/engines/spanner`. Each transaction lasts 10 ms in addition to its draws (`--transaction MS`). The
//! emulator runs one transaction at a time, so the first two modes are slower on the emulator than on
//! Spanner.

use std::env;
use std::error::Error;
use std::time::{Duration, Instant};

use idmill::{Allocator, Order, Sequences};
use idmill_spanner::{
    InTransaction, SequenceTransaction, SpannerOptions, SpannerStore, TransactionError, next_in,
    until_committed,
};
use idmill_testing::engines::Engine;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// The name of each mode, and the way in which it draws.
const MODES: [(&str, How); 5] = [
    ("in-transaction", How::Inside(1)),
    ("in-transaction, ten", How::Inside(10)),
    ("asynchronous", How::Each),
    ("batch of 200", How::Batch { watermark: 0 }),
    ("asynchronous batch", How::Batch { watermark: 50 }),
];

#[derive(Clone, Copy)]
enum How {
    /// Draws this number of values within each transaction.
    Inside(usize),
    /// Reserves each value in its own transaction.
    Each,
    /// Reserves 200 values at a time.
    Batch { watermark: u64 },
}

#[tokio::main]
async fn main() -> Outcome<()> {
    let args = Args::read()?;
    let mut options = SpannerOptions::new(args.database.as_str());
    let own = !args.given && env::var_os("SPANNER_EMULATOR_HOST").is_none();
    let emulator = if own { Engine::start("spanner").await } else { None };
    if let Some(emulator) = &emulator {
        options = options.emulator(emulator.address().to_string());
    }
    let store = SpannerStore::open_with(options).await?;
    println!(
        "{:<22} {:>7} {:>9} {:>8} {:>8} {:>8}",
        "mode", "threads", "values/s", "p50 ms", "p90 ms", "p99 ms"
    );
    for &threads in &args.threads {
        for (name, how) in MODES {
            let measured = measure(&store, name, how, threads, &args).await?;
            println!("{name:<22} {threads:>7} {measured}");
        }
    }
    Ok(())
}

/// Draws for the configured time, and returns the results of the mode as one line.
async fn measure(
    store: &SpannerStore,
    name: &'static str,
    how: How,
    threads: usize,
    args: &Args,
) -> Outcome<String> {
    let ids = Sequences::new(store.clone())?;
    let sequence = ids.sequence::<i64>(name);
    let allocator = match how {
        How::Inside(_) => None,
        How::Each => Some(sequence.order(Order::Global).await?),
        How::Batch { watermark } => Some(sequence.step(200).watermark(watermark).await?),
    };
    let begun = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..threads {
        let (store, allocator) = (store.clone(), allocator.clone());
        let (end, pause) = (begun + args.seconds, args.transaction);
        tasks.spawn(async move {
            let mut lasted = Vec::new();
            while Instant::now() < end || lasted.is_empty() {
                let before = Instant::now();
                match (&allocator, how) {
                    (Some(allocator), _) => outside(allocator, pause).await?,
                    (None, How::Inside(count)) if count > 1 => several(&store, name, count, pause).await?,
                    _ => single(&store, name, pause).await?,
                }
                lasted.push(before.elapsed());
            }
            Ok::<_, TransactionError>(lasted)
        });
    }
    let lasted: Vec<_> = tasks.join_all().await.into_iter().collect::<Result<_, _>>()?;
    let mut lasted = lasted.concat();
    lasted.sort_unstable();
    let values = lasted.len() * if let How::Inside(count) = how { count } else { 1 };
    let rate = values as f64 / begun.elapsed().as_secs_f64();
    let [p50, p90, p99] =
        [50, 90, 99].map(|percent| lasted[lasted.len() * percent / 100].as_secs_f64() * 1e3);
    Ok(format!("{rate:>9.1} {p50:>8.1} {p90:>8.1} {p99:>8.1}"))
}

/// Simulates a transaction whose own statements do not access the sequence.
async fn outside(allocator: &Allocator<i64>, pause: Duration) -> Result<(), TransactionError> {
    allocator.next().await?;
    tokio::time::sleep(pause).await;
    Ok(())
}

async fn single(store: &SpannerStore, name: &str, pause: Duration) -> Result<(), TransactionError> {
    until_committed(|| async {
        let mut tx = store.client().begin_read_write_transaction().await?;
        let drawn = next_in::<i64>(&mut tx, name).await;
        tokio::time::sleep(pause).await;
        tx.end(drawn.map_err(TransactionError::from), None).await.map(drop)
    })
    .await
}

async fn several(
    store: &SpannerStore,
    name: &str,
    count: usize,
    pause: Duration,
) -> Result<(), TransactionError> {
    let sequence = InTransaction::<i64>::new(name)?;
    until_committed(|| async {
        let mut tx = SequenceTransaction::begun(store.client().begin_read_write_transaction().await)?;
        for _ in 0..count {
            tx.next(&sequence).await?;
        }
        tokio::time::sleep(pause).await;
        Ok(tx.commit().await.map(drop)?)
    })
    .await
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
                _ => Err(format!("no option {option}: --database, --threads, --seconds, --transaction"))?,
            }
        }
        Ok(args)
    }
}
