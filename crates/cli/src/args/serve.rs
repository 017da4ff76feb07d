//! The arguments of `idmill serve` and `idmill token`, which are read in every build, so that the help is
//! one.

#![cfg_attr(not(feature = "serve"), allow(dead_code))]

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Deserializer};

use super::values::{duration, length, time};

#[derive(Args, Clone, Debug)]
pub(crate) struct Serve {
    /// Read what is not given here from this file, in TOML
    ///
    /// Each option is a key of the same name, such as `resp = "127.0.0.1:7380"`; `store` and `guard` are
    /// too. What is given on the command line goes first, then the environment, then the file.
    #[arg(long, value_name = "FILE", env = "IDMILL_SERVE_CONFIG", hide_env_values = true)]
    pub(crate) config: Option<PathBuf>,
    /// Say what would be done, and do not do it: the file and the tokens are read, the store is not asked
    #[arg(long)]
    pub(crate) check: bool,
    #[command(flatten)]
    pub(crate) keys: Keys,
}

/// What can be given on the command line, in the environment and in the file.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Keys {
    #[arg(skip)]
    pub(crate) store: Option<String>,
    #[arg(skip)]
    pub(crate) guard: Option<String>,
    /// Where clients of Redis connect; `none` for nowhere [default: 127.0.0.1:7380]
    #[arg(long, value_name = "ADDR", env = "IDMILL_SERVE_RESP", value_parser = spot)]
    #[serde(default, deserialize_with = "spot_in_file")]
    pub(crate) resp: Option<Spot>,
    /// Where HTTP is served; `none` for nowhere [default: 127.0.0.1:7381]
    #[arg(long, value_name = "ADDR", env = "IDMILL_SERVE_HTTP", value_parser = spot)]
    #[serde(default, deserialize_with = "spot_in_file")]
    pub(crate) http: Option<Spot>,
    /// Answer HTTP under this name; can be given several times, or with commas
    ///
    /// Addresses and `localhost` are always answered. Without it, a server that only this machine reaches and
    /// that has no tokens answers under no other name, so that no page of another site reaches it by a name
    /// of its own; any other server answers under every name. Given once, it holds for every server.
    #[arg(long, value_name = "NAME", env = "IDMILL_SERVE_HTTP_HOSTS", value_delimiter = ',')]
    pub(crate) http_hosts: Option<Vec<String>>,
    /// Who may do what: a file of tokens, as `idmill token` prints them
    ///
    /// Without it, whoever reaches the server may do everything. It is read again when it changes, and on
    /// SIGHUP.
    #[arg(long, value_name = "FILE", env = "IDMILL_SERVE_TOKENS", hide_env_values = true)]
    pub(crate) tokens: Option<PathBuf>,
    /// The certificate to show to clients, with those that it is signed by, in PEM: TLS over both protocols
    ///
    /// It is read again when it changes, and on SIGHUP, as the other two files are.
    #[arg(long, value_name = "FILE", env = "IDMILL_SERVE_TLS_CERT", hide_env_values = true)]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The key of that certificate, in PEM
    #[arg(long, value_name = "FILE", env = "IDMILL_SERVE_TLS_KEY", hide_env_values = true)]
    pub(crate) tls_key: Option<PathBuf>,
    /// Serve only clients whose certificate one of these authorities has signed, in PEM
    #[arg(long, value_name = "FILE", env = "IDMILL_SERVE_TLS_CLIENT_CA", hide_env_values = true)]
    pub(crate) tls_client_ca: Option<PathBuf>,
    /// Serve an address that others than this machine reach, without TLS or without tokens
    ///
    /// For a network that is trusted, or behind a proxy that sees to both.
    #[arg(long, env = "IDMILL_SERVE_INSECURE", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) insecure: Option<bool>,
    /// Create a sequence on its first use; otherwise a name that was mistyped is an error
    #[arg(long, env = "IDMILL_SERVE_CREATE", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) create: Option<bool>,
    /// How long a client waits for an id that is not in memory [default: 5s]
    #[arg(long, value_name = "DURATION", env = "IDMILL_SERVE_PATIENCE", value_parser = duration)]
    #[serde(default, deserialize_with = "duration_in_file")]
    pub(crate) patience: Option<Duration>,
    /// Hand out only ids that were reserved, or confirmed, at most this long ago
    #[arg(long, value_name = "DURATION", env = "IDMILL_SERVE_FRESHNESS", value_parser = duration)]
    #[serde(default, deserialize_with = "duration_in_file")]
    pub(crate) freshness: Option<Duration>,
    /// How long clients that are being answered have, once the server ends [default: 10s]
    #[arg(long, value_name = "DURATION", env = "IDMILL_SERVE_DRAIN", value_parser = duration)]
    #[serde(default, deserialize_with = "duration_in_file")]
    pub(crate) drain: Option<Duration>,
    /// How long to go on as before once it is told to end, but that `/readyz` says so [default: 0s]
    ///
    /// Whoever sends clients here needs a while to notice: in Kubernetes a few seconds.
    #[arg(long, value_name = "DURATION", env = "IDMILL_SERVE_DRAIN_DELAY", value_parser = time)]
    #[serde(default, deserialize_with = "time_in_file")]
    pub(crate) drain_delay: Option<Duration>,
    /// So many clients are served at once [default: 20000]
    #[arg(long, value_name = "CLIENTS", env = "IDMILL_SERVE_MAX_CONNECTIONS")]
    pub(crate) max_connections: Option<NonZeroU32>,
    /// How the log is written, to stderr [default: json with --json, else text]
    #[arg(long, value_name = "FORMAT", env = "IDMILL_SERVE_LOG_FORMAT")]
    pub(crate) log_format: Option<LogFormat>,
}

/// How the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum LogFormat {
    /// A line of words for each event
    Text,
    /// A line of JSON for each event
    Json,
}

impl Keys {
    /// These, and those of another where these have none.
    pub(crate) fn over(self, other: Self) -> Self {
        macro_rules! first {
            ($($key:ident)*) => { Self { $($key: self.$key.or(other.$key)),* } };
        }
        first! {
            store guard resp http http_hosts tokens tls_cert tls_key tls_client_ca insecure create patience
            freshness drain drain_delay max_connections log_format
        }
    }
}

/// An address to listen at, or none.
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

fn time_in_file<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    time(&String::deserialize(from)?).map(Some).map_err(serde::de::Error::custom)
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Token {
    /// Who is to have it; for logs
    pub(crate) name: String,
    /// What it allows: draw, reserve, administer or observe; can be given several times
    #[arg(long = "right", value_name = "RIGHT", required = true)]
    pub(crate) rights: Vec<String>,
    /// With which sequences: a name, or how names begin with `*` behind it; can be given several times
    #[arg(long = "sequence", value_name = "PATTERN", required = true)]
    pub(crate) sequences: Vec<String>,
    /// The most ids of one request
    #[arg(long, value_name = "IDS", value_parser = length)]
    pub(crate) max_ids: Option<u64>,
    /// The most requests a second, on average; commands of a pipeline count each
    #[arg(long, value_name = "REQUESTS")]
    pub(crate) requests_per_second: Option<NonZeroU32>,
    /// The most requests at once [default: as many as a second]
    #[arg(long, value_name = "REQUESTS", requires = "requests_per_second")]
    pub(crate) burst: Option<NonZeroU32>,
    /// The most connections that show it
    #[arg(long, value_name = "CONNECTIONS")]
    pub(crate) max_connections: Option<NonZeroU32>,
    /// The most sequences that it creates a day, by drawing from them, at a server with `--create`
    #[arg(long, value_name = "SEQUENCES")]
    pub(crate) new_sequences: Option<u32>,
    /// End it after this time
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) expires: Option<Duration>,
}
