//! Requests to the members of a cluster, over gRPC.
//!
//! The layers below never resend: the channel reconnects only for the next request, and gRPC retries need a
//! configuration that is not set. So only [`Client::call`] decides whether an unanswered request is resent.

use std::path::Path;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use idmill::{Error, ErrorKind, Result};
use idmill_kit::{Address, Asked, Preferred, Resend, refuse};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout_at};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic_prost::ProstCodec;

use super::classify::{Fate, Fault, beforehand, failed, fate, is_expired, not_sent, of_status, unreachable};
use super::guard::Guard;
use super::options::EtcdOptions;
use super::wire::{Authenticate, Call, Header, Range, RangeAnswer, Txn, TxnAnswer};

/// Longest time for a connect. Never more than half of the timeout, so that a failed connect is detected
/// before the request counts as lost.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// An answer, and whether an earlier copy of the request may have been applied before it.
#[derive(Debug)]
pub(super) struct Answered<A> {
    pub(super) answer: A,
    pub(super) resent: bool,
}

/// A client for a cluster, through any of its members.
pub(super) struct Client {
    members: Vec<Member>,
    preferred: Preferred,
    user: Option<(String, String)>,
    token: Mutex<Option<AsciiMetadataValue>>,
    timeout: Duration,
    pub(super) guard: Guard,
}

struct Member {
    endpoint: Endpoint,
    channel: Mutex<Line>,
}

/// A channel, and the number of channels before it.
#[derive(Clone)]
struct Line {
    channel: Channel,
    number: u64,
}

impl Client {
    pub(super) fn new(options: &EtcdOptions) -> Result<Self> {
        let tls = options.tls.is_on().then(|| tls(options)).transpose()?;
        let member = |address: &Address| Member::new(address, options.timeout, tls.as_ref());
        let members: Vec<_> = options.addresses()?.iter().map(member).collect::<Result<_>>()?;
        Ok(Self {
            preferred: Preferred::new(members.len()),
            members,
            user: options.authority.login()?.map(|(user, password)| (user.to_owned(), password.to_owned())),
            token: Mutex::new(None),
            timeout: options.timeout,
            guard: Guard::default(),
        })
    }

    /// A linearizable read.
    pub(super) async fn range(&self, range: &Range) -> Result<RangeAnswer> {
        let read = self.call(range, Resend::Harmless).await;
        read.map(|answered| answered.answer).map_err(|fault| failed(fault, Asked::Read))
    }

    pub(super) async fn txn(&self, txn: &Txn, resend: Resend) -> Result<Answered<TxnAnswer>, Fault> {
        self.call(txn, resend).await
    }

    /// Sends the request to one member after the other until one answers. A request that may have been
    /// applied is resent only if that is harmless, for at most one more timeout.
    async fn call<Q: Call<Answer: Answer>>(
        &self,
        request: &Q,
        resend: Resend,
    ) -> Result<Answered<Q::Answer>, Fault> {
        let mut lost: Option<(Fault, Instant)> = None;
        // The pauses between rounds through the members.
        let mut waits = ExponentialBuilder::new()
            .with_min_delay(Duration::from_millis(10))
            .with_max_delay(Duration::from_millis(500))
            .without_max_times()
            .build();
        loop {
            let mut last = None;
            for number in self.preferred.order() {
                let until = lost.as_ref().map_or_else(|| Instant::now() + self.timeout, |(_, until)| *until);
                let fault = match self.ask(number, request, until).await {
                    Ok(answer) => return Ok(Answered { answer, resent: lost.is_some() }),
                    Err(fault) => fault,
                };
                match fate(&fault) {
                    Fate::Final if matches!(fault, Fault::Violation(_)) => return Err(fault),
                    Fate::Elsewhere => last = Some(fault),
                    Fate::Final => return Err(lost.map_or(fault, |(lost, _)| lost)),
                    Fate::Open if resend == Resend::Never => return Err(fault),
                    Fate::Open if lost.is_none() => lost = Some((fault, Instant::now() + self.timeout)),
                    Fate::Open => {}
                }
            }
            let Some((_, until)) = &lost else { return Err(last.expect("there is a member")) };
            let wait = waits.next().unwrap_or_default();
            if Instant::now() + wait >= *until {
                return Err(lost.expect("seen").0);
            }
            sleep(wait).await;
        }
    }

    async fn ask<Q: Call<Answer: Answer>>(
        &self,
        number: usize,
        request: &Q,
        until: Instant,
    ) -> Result<Q::Answer, Fault> {
        let member = &self.members[number];
        let floor = self.guard.floor().map_err(Fault::Violation)?;
        let mut token = self.token(member, until).await?;
        let mut asked = member.send(request.clone(), token.as_ref(), until).await;
        if token.is_some() && asked.as_ref().is_err_and(is_expired) {
            self.forget(token.as_ref());
            token = self.token(member, until).await?;
            asked = member.send(request.clone(), token.as_ref(), until).await;
        }
        if asked.is_ok() {
            self.preferred.prefer(number);
        } else {
            self.preferred.leave(number);
        }
        let answer = asked?;
        let (header, wrote) = answer.header();
        let floor = if wrote { floor.above() } else { floor };
        self.guard.check(header, floor).map_err(Fault::Violation)?;
        Ok(answer)
    }

    /// Returns the authentication token; `None` without a user.
    async fn token(&self, member: &Member, until: Instant) -> Result<Option<AsciiMetadataValue>, Fault> {
        let Some((name, password)) = self.user.clone() else { return Ok(None) };
        if let Some(token) = self.token.lock().clone() {
            return Ok(Some(token));
        }
        let request = Authenticate { name, password };
        let answer = member.send(request, None, until).await.map_err(beforehand)?;
        let mut token: AsciiMetadataValue =
            answer.token.parse().map_err(|_| not_sent("the token cannot be sent in a header"))?;
        token.set_sensitive(true);
        Ok(Some(self.token.lock().insert(token).clone()))
    }

    /// Drops an expired token, unless another call has logged in since.
    fn forget(&self, token: Option<&AsciiMetadataValue>) {
        let mut current = self.token.lock();
        if current.as_ref() == token {
            *current = None;
        }
    }
}

idmill_kit::debug_fields!(
    Client | client | members =
        client.members.iter().map(|member| member.endpoint.uri().to_string()).collect::<Vec<_>>(),
    guard = client.guard
);

/// An answer whose header is checked.
trait Answer {
    /// The header, and whether the answer confirms a write, whose revision the header then contains.
    fn header(&self) -> (Option<Header>, bool);
}

impl Answer for RangeAnswer {
    fn header(&self) -> (Option<Header>, bool) {
        (self.header, false)
    }
}

impl Answer for TxnAnswer {
    fn header(&self) -> (Option<Header>, bool) {
        (self.header, self.succeeded)
    }
}

impl Member {
    fn new(address: &Address, timeout: Duration, tls: Option<&ClientTlsConfig>) -> Result<Self> {
        let scheme = if tls.is_some() { "https" } else { "http" };
        let endpoint = Endpoint::from_shared(format!("{scheme}://{address}"))
            .map_err(|error| refuse(format!("the host {address} is invalid: {error}")))?
            .connect_timeout(CONNECT_TIMEOUT.min(timeout / 2));
        let endpoint = match tls {
            Some(tls) => endpoint.tls_config(tls.clone()).map_err(|error| bad_tls(&error))?,
            None => endpoint,
        };
        let channel = Mutex::new(Line { channel: endpoint.connect_lazy(), number: 0 });
        Ok(Self { endpoint, channel })
    }

    async fn send<Q: Call>(
        &self,
        request: Q,
        token: Option<&AsciiMetadataValue>,
        until: Instant,
    ) -> Result<Q::Answer, Fault> {
        let line = self.channel.lock().clone();
        let address = self.endpoint.uri().authority().map_or("", |authority| authority.as_str());
        let mut request = tonic::Request::new(request);
        // A member without a leader then fails immediately.
        request.metadata_mut().insert("hasleader", AsciiMetadataValue::from_static("true"));
        if let Some(token) = token {
            request.metadata_mut().insert("token", token.clone());
        }
        let unary = async {
            let mut grpc = Grpc::new(line.channel);
            grpc.ready().await.map_err(|error| unreachable(address, &error))?;
            let answer = grpc.unary(request, PathAndQuery::from_static(Q::PATH), ProstCodec::default()).await;
            Ok(answer.map_err(|status| of_status(address, status))?.into_inner())
        };
        let silent = |_| Err(Fault::lost(format!("{address}: no answer within the timeout")));
        let asked = timeout_at(until, unary).await.unwrap_or_else(silent);
        if matches!(asked, Err(Fault::Lost(_))) {
            self.hang_up(line.number);
        }
        asked
    }

    /// Replaces a channel after a lost request: the channel's connection may be dead without an error for
    /// many minutes.
    fn hang_up(&self, number: u64) {
        let mut line = self.channel.lock();
        if line.number == number {
            *line = Line { channel: self.endpoint.connect_lazy(), number: number + 1 };
        }
    }
}

fn tls(options: &EtcdOptions) -> Result<ClientTlsConfig> {
    let read = |file: &Path| {
        std::fs::read(file).map_err(|error| {
            let is_missing = error.kind() == std::io::ErrorKind::NotFound;
            let kind = if is_missing { ErrorKind::NotFound } else { ErrorKind::Denied };
            Error::new(kind, format!("cannot read {}: {error}", file.display())).because(error)
        })
    };
    let tls = match &options.tls.ca {
        Some(file) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(file)?)),
        None => ClientTlsConfig::new().with_native_roots(),
    };
    match (&options.tls.cert, &options.tls.key) {
        (Some(cert), Some(key)) => Ok(tls.identity(Identity::from_pem(read(cert)?, read(key)?))),
        _ => Ok(tls),
    }
}

fn bad_tls(error: &tonic::transport::Error) -> Error {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
    refuse(format!("the certificates are invalid{cause}"))
}
