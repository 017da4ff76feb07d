//! The arguments of `idmill serve` and `idmill token`. Every build parses these arguments, even without the
//! feature `serve`, so that the help of both commands does not depend on this feature.

#![cfg_attr(not(feature = "serve"), allow(dead_code))]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use idmill::Order;
use serde::{Deserialize, Deserializer};

use super::values::{boolean, duration, length, order, time};

#[derive(Args, Clone, Debug)]
pub(crate) struct Serve {
    /// TOML file with settings
    ///
    /// Each option except `--config` and `--check` is a key of the same name, such as
    /// `resp = "127.0.0.1:7380"`; so are `store` and `guard`. `outage-budget`, `max-buffered` and `order` are
    /// keys of a table for a name or a prefix of names, such as `[sequences."shop.*"]`, or `[sequences."*"]`
    /// for all. The command line overrides the environment, which overrides the file.
    #[arg(long, value_name = "FILE", env = "IDMILL_SERVE_CONFIG", hide_env_values = true)]
    pub(crate) config: Option<PathBuf>,
    /// Check the settings and tokens without contacting the store
    #[arg(long)]
    pub(crate) check: bool,
    #[command(flatten)]
    pub(crate) keys: Keys,
}

/// The settings that the command line, the environment and the file can set.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Keys {
    #[arg(skip)]
    pub(crate) store: Option<String>,
    #[arg(skip)]
    pub(crate) guard: Option<String>,
    /// The settings of sequences, by pattern. The longest pattern that matches has precedence.
    #[arg(skip)]
    #[serde(default)]
    pub(crate) sequences: BTreeMap<String, SequenceKeys>,
    /// Address for Redis clients, or `none` [default: 127.0.0.1:7380]
    #[arg(long, value_name = "ADDR", env = "IDMILL_SERVE_RESP", value_parser = spot)]
    #[serde(default, deserialize_with = "spot_in_file")]
    pub(crate) resp: Option<Spot>,
    /// Address for HTTP, or `none` [default: 127.0.0.1:7381]
    #[arg(long, value_name = "ADDR", env = "IDMILL_SERVE_HTTP", value_parser = spot)]
    #[serde(default, deserialize_with = "spot_in_file")]
    pub(crate) http: Option<Spot>,
    /// Accepted HTTP host names, comma-separated; repeatable
    ///
    /// IP addresses and `localhost` are always accepted. Without this option, a server on a loopback address
    /// without tokens accepts no other name, which prevents DNS rebinding by other sites. Any other server
    /// accepts every name.
    #[arg(long, value_name = "NAME", env = "IDMILL_SERVE_HTTP_HOSTS", value_delimiter = ',')]
    pub(crate) http_hosts: Option<Vec<String>>,
    /// File of client tokens, as `idmill token` prints them
    ///
    /// Without it, every client has all rights. The file is reloaded when it changes and on SIGHUP.
    #[arg(long, value_name = "FILE", env = "IDMILL_SERVE_TOKENS", hide_env_values = true)]
    pub(crate) tokens: Option<PathBuf>,
    /// TLS certificate chain in PEM; enables TLS for both protocols
    ///
    /// The three TLS files are reloaded when they change and on SIGHUP.
    #[arg(long, value_name = "FILE", env = "IDMILL_SERVE_TLS_CERT", hide_env_values = true)]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Private key of the certificate, in PEM
    #[arg(long, value_name = "FILE", env = "IDMILL_SERVE_TLS_KEY", hide_env_values = true)]
    pub(crate) tls_key: Option<PathBuf>,
    /// Require client certificates signed by these authorities, in PEM
    #[arg(long, value_name = "FILE", env = "IDMILL_SERVE_TLS_CLIENT_CA", hide_env_values = true)]
    pub(crate) tls_client_ca: Option<PathBuf>,
    /// Allow a non-loopback address without TLS or without tokens
    ///
    /// Use it in a trusted network, or behind a proxy that provides both.
    #[arg(long, env = "IDMILL_SERVE_INSECURE", value_parser = boolean, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) insecure: Option<bool>,
    /// Create sequences on first use [default: true without --tokens, else false]
    ///
    /// With `--create=false`, a draw from an unknown sequence is an error, so that a mistyped name does not
    /// create a sequence that starts at 1. IDMILL_EXISTING=true prevents new sequences in `next`, and here
    /// unless you set --create.
    #[arg(long, env = "IDMILL_SERVE_CREATE", value_parser = boolean, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) create: Option<bool>,
    /// How long a request waits for an id that is not in memory [default: 5s]
    #[arg(long, value_name = "DURATION", env = "IDMILL_SERVE_TIMEOUT", value_parser = duration)]
    #[serde(default, deserialize_with = "duration_in_file")]
    pub(crate) timeout: Option<Duration>,
    /// Drop ids that were not reserved or confirmed within this time
    #[arg(long, value_name = "DURATION", env = "IDMILL_SERVE_MAX_AGE", value_parser = duration)]
    #[serde(default, deserialize_with = "duration_in_file")]
    pub(crate) max_age: Option<Duration>,
    #[command(flatten)]
    #[serde(skip)]
    pub(crate) all: SequenceKeys,
    /// Evict a sequence without draws after this time [default: 10m]
    ///
    /// The eviction may take up to twice this time, and two minutes more.
    #[arg(long, value_name = "DURATION", env = "IDMILL_SERVE_IDLE", value_parser = duration)]
    #[serde(default, deserialize_with = "duration_in_file")]
    pub(crate) idle: Option<Duration>,
    /// How long requests may take to finish at shutdown [default: 10s]
    #[arg(long, value_name = "DURATION", env = "IDMILL_SERVE_SHUTDOWN_TIMEOUT", value_parser = duration)]
    #[serde(default, deserialize_with = "duration_in_file")]
    pub(crate) shutdown_timeout: Option<Duration>,
    /// How long to keep serving after a stop signal [default: 0s]
    ///
    /// Meanwhile `/readyz` reports that the server is shutting down. Load balancers need a few seconds to
    /// notice.
    #[arg(long, value_name = "DURATION", env = "IDMILL_SERVE_SHUTDOWN_DELAY", value_parser = time)]
    #[serde(default, deserialize_with = "time_in_file")]
    pub(crate) shutdown_delay: Option<Duration>,
    /// Maximum concurrent client connections [default: 20000]
    #[arg(long, value_name = "CLIENTS", env = "IDMILL_SERVE_MAX_CONNECTIONS")]
    pub(crate) max_connections: Option<NonZeroU32>,
    /// Log format on stderr [default: json with --json, else text]
    #[arg(long, value_name = "FORMAT", env = "IDMILL_SERVE_LOG_FORMAT")]
    pub(crate) log_format: Option<LogFormat>,
}

/// The settings of sequences: flags for all sequences, or a table of the file for a pattern of names.
#[derive(Args, Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct SequenceKeys {
    /// How long ids in memory last without the store, at the current rate [default: 5s]
    #[arg(long, value_name = "DURATION", env = "IDMILL_SERVE_OUTAGE_BUDGET", value_parser = duration)]
    #[serde(default, deserialize_with = "duration_in_file")]
    pub(crate) outage_budget: Option<Duration>,
    /// Maximum ids of a sequence in memory [default: a ten-thousandth of it, at most 1000000]
    ///
    /// Takes precedence over --outage-budget. `idmill plan` computes both.
    #[arg(long, value_name = "IDS", env = "IDMILL_SERVE_MAX_BUFFERED", value_parser = length)]
    #[serde(default, deserialize_with = "length_in_file")]
    pub(crate) max_buffered: Option<u64>,
    /// Order of the ids: process, thread or global [default: process]
    ///
    /// With `global`, ids grow across all servers, and each draw waits for the store.
    #[arg(long, value_name = "ORDER", env = "IDMILL_SERVE_ORDER", value_parser = order)]
    #[serde(default, deserialize_with = "order_in_file")]
    pub(crate) order: Option<Order>,
}

impl SequenceKeys {
    /// Returns these settings, with the values of `other` for missing settings.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            outage_budget: self.outage_budget.or(other.outage_budget),
            max_buffered: self.max_buffered.or(other.max_buffered),
            order: self.order.or(other.order),
        }
    }
}

/// How the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum LogFormat {
    /// One line of text per event
    Text,
    /// One line of JSON per event
    Json,
}

impl Keys {
    /// Returns these settings, with the values of `other` for missing settings.
    pub(crate) fn over(self, other: Self) -> Self {
        macro_rules! first {
            ($($key:ident)*) => { Self { sequences: other.sequences, $($key: self.$key.or(other.$key)),* } };
        }
        first! {
            store guard resp http http_hosts tokens tls_cert tls_key tls_client_ca insecure create timeout
            max_age all idle shutdown_timeout shutdown_delay max_connections log_format
        }
    }
}

/// An address to listen on; `None` for `none`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spot(pub(crate) Option<SocketAddr>);

fn spot(text: &str) -> Result<Spot, String> {
    match text {
        "none" => Ok(Spot(None)),
        _ => text.parse().map(|address| Spot(Some(address))).map_err(|_| {
            "write an address and a port, such as 127.0.0.1:7380 or [::1]:7380, or `none`".to_owned()
        }),
    }
}

fn spot_in_file<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Spot>, D::Error> {
    spot(&String::deserialize(from)?).map(Some).map_err(serde::de::Error::custom)
}

fn duration_in_file<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    duration(&String::deserialize(from)?).map(Some).map_err(serde::de::Error::custom)
}

fn length_in_file<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    length(&u64::deserialize(from)?.to_string()).map(Some).map_err(serde::de::Error::custom)
}

fn order_in_file<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Order>, D::Error> {
    order(&String::deserialize(from)?).map(Some).map_err(serde::de::Error::custom)
}

fn time_in_file<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    time(&String::deserialize(from)?).map(Some).map_err(serde::de::Error::custom)
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Token {
    /// Name of the client, for logs
    pub(crate) name: String,
    /// Right: draw, reserve, administer or observe; repeatable
    #[arg(long = "right", value_name = "RIGHT", required = true)]
    pub(crate) rights: Vec<String>,
    /// Sequence name, or a prefix and `*`, such as 'shop.*'; repeatable
    #[arg(long = "sequence", value_name = "PATTERN", required = true)]
    pub(crate) sequences: Vec<String>,
    /// Maximum ids per request
    #[arg(long, value_name = "IDS", value_parser = length)]
    pub(crate) max_ids: Option<u64>,
    /// Average requests per second; each pipelined command counts
    #[arg(long, value_name = "REQUESTS")]
    pub(crate) requests_per_second: Option<NonZeroU32>,
    /// Maximum burst of requests [default: --requests-per-second]
    #[arg(long, value_name = "REQUESTS", requires = "requests_per_second")]
    pub(crate) burst: Option<NonZeroU32>,
    /// Maximum connections with this token
    #[arg(long, value_name = "CONNECTIONS")]
    pub(crate) max_connections: Option<NonZeroU32>,
    /// Average sequences per day that draws and reserves create, with `serve --create`
    #[arg(long, value_name = "SEQUENCES")]
    pub(crate) new_sequences: Option<u32>,
    /// Expire the token after this time
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) expires: Option<Duration>,
}
