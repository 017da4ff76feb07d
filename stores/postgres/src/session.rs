//! Connections: opens them, and runs statements on them.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use idmill::{Error, ErrorKind, Result};
use idmill_sql::postgres::{CANNOT_CONNECT_NOW, Driver, Keeps, failed, halfway, is_of_commit};
use idmill_sql::{Asked, Fault, Row, Statement};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_postgres::error::Severity;
use tokio_postgres::{AsyncMessage, Client, Config};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::client::Held;
use super::convert::{fault_of, unconnected};
use super::prepared::{ReserveStatements, collect, execute, is_elsewhere};

/// Runs statements. Clones share the sessions.
pub(super) type Sessions = idmill_sql::postgres::Sessions<Source>;

/// The source of connections.
pub(super) enum Source {
    /// The store's own connections; `keeping` is whether they keep statements prepared, which
    /// fails behind a pooler.
    Connect { config: Box<Config>, tls: MakeRustlsConnect, place: String, keeping: Arc<AtomicBool> },
    /// The caller's client, which is never replaced.
    Given(Arc<Client>),
    /// The caller's pool, and the timeout for getting a connection.
    #[cfg(feature = "deadpool")]
    Pool(deadpool_postgres::Pool, Duration),
}

pub(super) struct Session {
    client: Held,
    warning: Warning,
    kept: ReserveStatements,
}

/// The last warning that concerns a commit.
type Warning = Arc<Mutex<Option<String>>>;
type Connected = (Client, Warning);

pub(super) fn given(client: Arc<Client>, timeout: Duration, keeps: Keeps) -> Sessions {
    Sessions::new(Source::Given(client), timeout, keeps)
}

#[cfg(feature = "deadpool")]
pub(super) fn pooled(pool: deadpool_postgres::Pool, timeout: Duration, keeps: Keeps) -> Sessions {
    Sessions::new(Source::Pool(pool, timeout / 2), timeout, keeps)
}

/// Opens one connection on which the server ends each statement before `limit`: otherwise the server
/// continues after the client stops waiting. The setting is local to a transaction, since a pooler may give
/// the connection to other clients later.
pub(super) async fn to_scan(sessions: &Sessions, limit: Duration) -> Result<Sessions> {
    let scanning = given(Arc::new(client(sessions).await?), limit, Keeps::Disk);
    let millis = limit.mul_f64(0.9).as_millis().max(1);
    let begin = format!("BEGIN READ ONLY; SET LOCAL statement_timeout = {millis}");
    scanning.batch(&begin).await.map_err(|fault| failed(fault, Asked::Connect))?;
    Ok(scanning)
}

/// Opens a separate connection for use outside these sessions.
pub(super) async fn client(sessions: &Sessions) -> Result<Client> {
    let Source::Connect { config, tls, place, .. } = sessions.driver() else {
        return Err(Error::new(
            ErrorKind::Unsupported,
            "the store uses the caller's client or pool, so it cannot open another connection",
        ));
    };
    Ok(connect(config, tls, place, halfway(sessions.deadline())).await?.0)
}

impl Driver for Source {
    type Session = Session;

    fn owns(&self) -> bool {
        matches!(self, Self::Connect { .. })
    }

    fn has_several(&self) -> bool {
        !matches!(self, Self::Given(_))
    }

    async fn open(&self, deadline: Instant) -> Result<Session, Fault> {
        match self {
            Self::Given(client) if client.is_closed() => Err(Fault::Refused(Error::new(
                ErrorKind::Closed,
                "the client of this store is closed; open the store with `from_config`, which reconnects",
            ))),
            Self::Given(client) => {
                Ok(Session::new(Held::Own(client.clone()), Arc::default(), Arc::default()))
            }
            Self::Connect { config, tls, place, keeping } => {
                let connected = connect(config, tls, place, halfway(deadline)).await;
                let (client, warning) = connected.map_err(Fault::Refused)?;
                Ok(Session::new(Held::Own(Arc::new(client)), warning, keeping.clone()))
            }
            #[cfg(feature = "deadpool")]
            Self::Pool(pool, timeout) => {
                let client = super::client::borrow(pool, halfway(deadline), *timeout).await?;
                Ok(Session::new(Held::Lent(client), Arc::default(), Arc::default()))
            }
        }
    }

    async fn is_good(&self, session: &mut Session, _: Duration, _: Instant) -> bool {
        !session.client.is_closed()
    }

    async fn ask(
        &self,
        session: &mut Session,
        statement: &Statement<'_>,
        lock_timeout: &str,
        rows: &mut Vec<Row>,
    ) -> Result<Option<String>, Fault> {
        let Session { client, warning, kept } = session;
        warning.lock().take();
        let answered = match kept.prepared(statement, lock_timeout) {
            _ if !statement.again => client.batch_execute(&statement.sql).await,
            Some(prepared) => match execute(client, &prepared, rows).await {
                // A pooler has switched to another session, and the statement changed nothing.
                Err(error) if is_elsewhere(&error) => {
                    kept.stop();
                    collect(client, statement, lock_timeout, rows).await
                }
                answered => answered,
            },
            None => collect(client, statement, lock_timeout, rows).await,
        };
        answered.map_err(fault_of)?;
        Ok(warning.lock().take())
    }

    async fn keep(&self, session: &mut Session, statement: &Statement<'_>, deadline: Instant) -> bool {
        session.kept.keep(&session.client, statement, deadline).await
    }

    fn give_back(&self, session: Session) -> Option<Session> {
        match session.client {
            #[cfg(feature = "deadpool")]
            Held::Lent(lent) => {
                lent.give_back();
                None
            }
            Held::Own(_) => Some(session),
        }
    }
}

impl Session {
    fn new(client: Held, warning: Warning, keeping: Arc<AtomicBool>) -> Self {
        Self { client, warning, kept: ReserveStatements::new(keeping) }
    }
}

/// Connects. Retries until the deadline while the server reports that it is starting up.
async fn connect(
    config: &Config,
    tls: &MakeRustlsConnect,
    place: &str,
    deadline: Instant,
) -> Result<Connected> {
    let mut delays = ExponentialBuilder::new()
        .with_min_delay(Duration::from_millis(10))
        .with_max_delay(Duration::from_millis(250))
        .without_max_times()
        .with_jitter()
        .build();
    loop {
        let starting = match attempt(config, tls, deadline).await {
            Err(fault) if fault.code() == Some(CANNOT_CONNECT_NOW) => fault,
            Err(fault) => return Err(unreachable_at(place, fault)),
            Ok(connected) => return Ok(connected),
        };
        let delay = delays.next().unwrap_or_default();
        if Instant::now() + delay >= deadline {
            return Err(unreachable_at(place, starting));
        }
        sleep(delay).await;
    }
}

fn unreachable_at(place: &str, fault: Fault) -> Error {
    let error = failed(fault, Asked::Connect);
    Error::new(error.kind(), format!("cannot connect to {place}: {error}")).because(error)
}

async fn attempt(config: &Config, tls: &MakeRustlsConnect, deadline: Instant) -> Result<Connected, Fault> {
    let Ok(connected) = timeout_at(deadline, config.connect(tls.clone())).await else {
        let message =
            "no answer within half of the timeout (if a test pauses tokio's clock, use `own_thread`)";
        return Err(Fault::Refused(Error::new(ErrorKind::Unavailable, message)));
    };
    let (client, mut connection) = connected.map_err(unconnected)?;
    let warning = Arc::new(Mutex::new(None));
    let heard = warning.clone();
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notice(notice) = message
                && notice.parsed_severity() == Some(Severity::Warning)
                && is_of_commit(notice.message(), notice.code().code())
            {
                *heard.lock() = Some(notice.message().to_owned());
            }
        }
    });
    Ok((client, warning))
}

#[cfg(test)]
mod tests {
    use idmill_sql::Asked::Write;
    use idmill_sql::postgres::classify;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio_postgres::NoTls;

    use super::*;

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let len = u32::try_from(body.len() + 4).unwrap();
        [&[kind], &len.to_be_bytes()[..], body].concat()
    }

    /// A row of texts in columns of these names, as the answer to a parsed, bound and executed
    /// statement.
    fn row(columns: &[(&str, &str)]) -> Vec<u8> {
        let count = i16::try_from(columns.len()).unwrap().to_be_bytes().to_vec();
        let (mut names, mut values) = (count.clone(), count);
        for (name, value) in columns {
            let of_text = [&[0; 6][..], &25_i32.to_be_bytes(), &[0xff; 6], &[0, 1]].concat();
            names.extend([name.as_bytes(), &[0], &of_text].concat());
            values.extend(i32::try_from(value.len()).unwrap().to_be_bytes());
            values.extend(value.as_bytes());
        }
        let [begun, bound] = [b'1', b'2'].map(|kind| message(kind, &[]));
        let [names, values] = [(b'T', names), (b'D', values)].map(|(kind, body)| message(kind, &body));
        [begun, bound, names, values, message(b'C', b"UPDATE 1\0"), message(b'Z', b"I")].concat()
    }

    /// A client of a server that accepts it and answers each statement with the next answer.
    async fn answered(answers: Vec<Vec<u8>>) -> Client {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let welcome = [message(b'R', &[0; 4]), message(b'Z', b"I")].concat();
            for answer in [welcome].into_iter().chain(answers) {
                assert_ne!(stream.read(&mut [0; 4096]).await.unwrap(), 0);
                stream.write_all(&answer).await.unwrap();
            }
            while stream.read(&mut [0; 4096]).await.is_ok_and(|read| read > 0) {}
        });
        let (client, connection) =
            Config::new().host("127.0.0.1").port(port).user("u").connect(NoTls).await.unwrap();
        tokio::spawn(async move { drop(connection.await) });
        client
    }

    /// A statement must not wait for the full timeout of the statements before it, and then for its own.
    #[tokio::test]
    async fn place_for_a_statement_is_waited_for_half_the_timeout() {
        let timeout = Duration::from_secs(10);
        let sessions = given(Arc::new(answered(Vec::new()).await), timeout, Keeps::Disk);
        tokio::time::pause();
        let began = Instant::now();
        let run = || async {
            let outcome = sessions.run(Statement::write("UPDATE", [])).await;
            (outcome.err().map(|fault| classify(&fault, Write)), began.elapsed().as_secs())
        };
        let (silent, late) = (Some(ErrorKind::UnknownOutcome), Some(ErrorKind::Unavailable));
        let outcomes = tokio::join!(run(), run(), run(), run(), run());
        let expected = ((silent, 10), (silent, 10), (silent, 10), (silent, 10), (late, 5));
        assert_eq!(outcomes, expected);
    }

    #[tokio::test]
    async fn failure_after_a_write_is_not_reported_as_unapplied() {
        use ErrorKind::{Conflict, UnknownOutcome};
        let error = |code: &str| {
            let said = format!("SERROR\0VERROR\0C{code}\0Mtext of it\0\0");
            [message(b'E', said.as_bytes()), message(b'Z', b"I")].concat()
        };
        let status = |status| row(&[("txid_status", status)]);
        for (answer, kind) in [
            (status("committed"), None),
            (status("in progress"), Some(Conflict)),
            // statement_timeout; missing privilege; missing function
            (error("57014"), Some(UnknownOutcome)),
            (error("42501"), Some(UnknownOutcome)),
            (error("42883"), Some(UnknownOutcome)),
        ] {
            let written = row(&[("durable", "on on on"), ("xid", "4711")]);
            let client = answered(vec![written, answer]).await;
            let sessions = given(Arc::new(client), Duration::from_secs(5), Keeps::Disk);
            let outcome = sessions.run(Statement::write("UPDATE", [])).await;
            assert_eq!(outcome.err().map(|fault| classify(&fault, Write)), kind);
        }
    }
}
