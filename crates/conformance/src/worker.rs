//! Other processes that work for the suite: this executable, started again with an order in an environment
//! variable.
//!
//! A worker answers with lines on standard output. The first line of its standard input starts the work, and
//! the end of its standard input stops the worker.

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, Command, Stdio, exit};
use std::str::{FromStr, SplitWhitespace};
use std::thread;
use std::time::Duration;

use idmill::store::{Bounds, Grant, Identity};
use idmill::{ErrorKind, IdRange};
use rustix::process::Signal;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::context::Context;
use super::ledger::{Caller, Entry, Ledger, Reply};
use super::order::{Job, MARK, Order, State, VARIABLE, say};
use super::outcome::{Outcome, Stop, fail};
use super::process::Process;
use super::setup::Setup;
use super::{draws, load};

// ----------------------------------------------------------------------------------------------
// in the other process

/// Carries out the order, and exits.
pub(super) fn serve(setup: &Setup, order: &Order) -> ! {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let outcome = runtime.expect("threads").block_on(async {
        let client = setup.connect(order.endpoint.clone()).await?;
        let mut orders = listen();
        say("ready");
        // `wait_for` cannot fail: the thread in `listen` keeps the sender.
        let _ = orders.wait_for(|state| *state != State::Waiting).await;
        match order.job {
            Job::Reserve => load::worker(client, order, orders).await,
            Job::Draw => draws::worker(client, order, orders).await,
        }
    });
    match outcome {
        Ok(()) => say("done"),
        Err(Stop::Failed(reason) | Stop::Skipped(reason)) => {
            say(&format!("failed {}", reason.replace(['\n', '\r'], " ")));
        }
    }
    exit(0)
}

fn listen() -> watch::Receiver<State> {
    let (sender, receiver) = watch::channel(State::Waiting);
    thread::spawn(move || {
        let mut lines = std::io::stdin().lines();
        if let Some(Ok(_)) = lines.next() {
            let _ = sender.send(State::Running);
        }
        while let Some(Ok(_)) = lines.next() {}
        let _ = sender.send(State::Ended);
        // Keep the sender, so that the channel is never closed.
        thread::park();
    });
    receiver
}

// ----------------------------------------------------------------------------------------------
// in the suite's process

/// A message from another process.
#[derive(Debug)]
enum Event {
    Ready,
    Done,
    Failed(String),
}

/// Records the work of other processes.
#[derive(Clone, Debug, Default)]
pub(super) struct Books {
    pub(super) ledger: Ledger,
    pub(super) drawn: super::draws::Drawn,
}

/// Another process that works for the suite. Killed on drop.
#[derive(Debug)]
pub(super) struct Worker {
    process: Process,
    stdin: Option<ChildStdin>,
    events: mpsc::UnboundedReceiver<Event>,
    timeout: Duration,
}

impl Worker {
    /// Starts a process, and returns when it has connected.
    pub(super) async fn start(context: &Context, order: &Order, books: &Books) -> Outcome<Self> {
        let mut worker = Self::spawn(context, order, books)?;
        worker.ready().await?;
        Ok(worker)
    }

    /// Starts several processes concurrently.
    pub(super) async fn start_many(
        context: &Context,
        count: usize,
        order: &Order,
        books: &Books,
    ) -> Outcome<Vec<Self>> {
        let workers: Outcome<Vec<_>> = (0..count).map(|_| Self::spawn(context, order, books)).collect();
        let mut workers = workers?;
        for worker in &mut workers {
            worker.ready().await?;
        }
        Ok(workers)
    }

    fn spawn(context: &Context, order: &Order, books: &Books) -> Outcome<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(&context.setup.worker_arguments).env(VARIABLE, order.print());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut process = Process::spawn(command)?;
        let (sender, events) = mpsc::unbounded_channel();
        let stdout = process.child.stdout.take().expect("piped");
        let books = books.clone();
        thread::spawn(move || read(BufReader::new(stdout), &books, &sender));
        let stdin = process.child.stdin.take();
        Ok(Self { process, stdin, events, timeout: context.setup.timeouts.call })
    }

    async fn event(&mut self, limit: Duration) -> Outcome<Event> {
        match timeout(limit, self.events.recv()).await {
            Ok(Some(Event::Failed(reason))) => fail!("in another process: {reason}"),
            Ok(Some(event)) => Ok(event),
            Ok(None) => fail!("another process exited unexpectedly: {:?}", self.process.child.wait()),
            Err(_) => fail!("another process made no progress within {limit:?}"),
        }
    }

    async fn ready(&mut self) -> Outcome {
        match self.event(self.timeout).await? {
            Event::Ready => Ok(()),
            event => fail!("another process sent {event:?} before it was ready"),
        }
    }

    /// Starts the work of the process.
    pub(super) fn begin(&mut self) -> Outcome {
        Ok(self.stdin.as_mut().expect("not ended yet").write_all(b"begin\n")?)
    }

    /// Waits until the process has finished its work: all of its order, or the calls in progress if the order
    /// has no end.
    pub(super) async fn finish(mut self, timeout: Duration) -> Outcome {
        match self.event(timeout).await? {
            Event::Done => Ok(()),
            event => fail!("another process sent {event:?} before it was done"),
        }
    }

    /// Asks the process to end, and waits until it has.
    pub(super) async fn end(mut self, timeout: Duration) -> Outcome {
        self.stdin = None;
        self.finish(timeout).await
    }

    /// Kills the process, as a crash would. Returns when all of its output is recorded.
    pub(super) async fn kill(mut self) {
        self.process.kill();
        while self.events.recv().await.is_some() {}
    }

    pub(super) fn pause(&self) {
        self.process.signal(Signal::STOP);
    }

    pub(super) fn resume(&self) {
        self.process.signal(Signal::CONT);
    }
}

/// Records the output of a process until it ends.
fn read(mut stdout: impl BufRead, books: &Books, events: &mpsc::UnboundedSender<Event>) {
    let mut line = String::new();
    while stdout.read_line(&mut line).is_ok_and(|length| length > 0) {
        if line.ends_with('\n')
            && let Some((_, said)) = line.split_once(MARK)
        {
            hear(said.trim(), books, events);
        }
        line.clear();
    }
}

fn hear(said: &str, books: &Books, events: &mpsc::UnboundedSender<Event>) {
    let (word, rest) = said.split_once(' ').unwrap_or((said, ""));
    let event = match word {
        "ready" => Event::Ready,
        "done" => Event::Done,
        "entry" => match parse_entry(rest) {
            Some(entry) => return books.ledger.add(entry),
            None => Event::Failed(format!("an unreadable line: {said}")),
        },
        "drawn" => match parse_range(&mut rest.split_whitespace()) {
            Some(range) => return books.drawn.add(range),
            None => Event::Failed(format!("an unreadable line: {said}")),
        },
        _ => Event::Failed(rest.to_owned()),
    };
    // The receiver may be gone.
    let _ = events.send(event);
}

fn parse_range(words: &mut SplitWhitespace<'_>) -> Option<IdRange> {
    let (start, len) = (number(words)?, number(words)?);
    IdRange::new(start, len)
}

fn number<T: FromStr>(words: &mut SplitWhitespace<'_>) -> Option<T> {
    words.next()?.parse().ok()
}

fn parse_entry(line: &str) -> Option<Entry> {
    let words = &mut line.split_whitespace();
    let caller = Caller { client: number(words)?, process: number(words)? };
    let (began, ended, count, ceiling) = (number(words)?, number(words)?, number(words)?, number(words)?);
    let reply = match words.next()? {
        "granted" => {
            let range = parse_range(words)?;
            let identity = Identity { incarnation: number(words)?, epoch: number(words)? };
            let bounds = Bounds::new(number(words)?, number(words)?).ok()?;
            Reply::Granted(Grant::new(range, identity, bounds))
        }
        "silent" => Reply::Silent,
        kind => {
            let kind = KINDS.into_iter().find(|known| known.as_str() == kind)?;
            Reply::Failed(kind, words.collect::<Vec<_>>().join(" "))
        }
    };
    Some(Entry { caller, began, ended, count, ceiling, reply })
}

const KINDS: [ErrorKind; 14] = [
    ErrorKind::Empty,
    ErrorKind::Exhausted,
    ErrorKind::Overloaded,
    ErrorKind::Deadline,
    ErrorKind::Unavailable,
    ErrorKind::UnknownOutcome,
    ErrorKind::Closed,
    ErrorKind::InvalidInput,
    ErrorKind::NotFound,
    ErrorKind::AlreadyExists,
    ErrorKind::Conflict,
    ErrorKind::Denied,
    ErrorKind::Unsupported,
    ErrorKind::StoreViolation,
];

#[cfg(test)]
mod tests {
    use idmill::SequenceName;
    use idmill::store::Reserve;

    use super::super::order::line_of;
    use super::super::setup::Endpoint;
    use super::*;

    #[test]
    fn orders_read_back() {
        let order = Order {
            suite: "a & b".to_owned(),
            endpoint: Endpoint::new(
                Some(([127, 0, 0, 1], 7).into()),
                "/tmp/x y".into(),
                Duration::from_secs(2),
            ),
            job: Job::Draw,
            request: Reserve::new(SequenceName::new("é=1&%").unwrap(), 3).create(Bounds::new(4, 5).unwrap()),
            tasks: 6,
            times: 7,
            timeout: Duration::from_millis(8),
        };
        assert_eq!(format!("{:?}", Order::parse(&order.print()).unwrap()), format!("{order:?}"));
    }

    #[test]
    fn entries_read_back_and_torn_ones_are_not_taken() {
        let range = IdRange::new(u64::MAX - 4, 5).unwrap();
        let identity = Identity { incarnation: 6, epoch: 7 };
        let granted = Reply::Granted(Grant::new(range, identity, Bounds::new(8, u64::MAX).unwrap()));
        for reply in [granted, Reply::Silent, Reply::Failed(ErrorKind::UnknownOutcome, "a b".to_owned())] {
            let caller = Caller { client: 9, process: 10 };
            let entry = Entry { caller, began: 1, ended: 2, count: 3, ceiling: 4, reply };
            let line = line_of(&entry);
            let (_, rest) = line.split_once(' ').unwrap();
            assert_eq!(format!("{:?}", parse_entry(rest).unwrap()), format!("{entry:?}"));
        }
        let books = Books::default();
        let (sender, mut events) = mpsc::unbounded_channel();
        let text = format!("noise\ntest x ... {MARK} drawn 1 5\n{MARK} ready\n{MARK} drawn 6 50");
        read(text.as_bytes(), &books, &sender);
        assert!(matches!(events.try_recv(), Ok(Event::Ready)));
        assert_eq!(books.drawn.ids(), 5);
    }
}
