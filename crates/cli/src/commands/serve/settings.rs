//! The settings from the command line, the environment and the file.

use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use idmill_server::{Access, Server, Tls};

use super::sizes::Sizes;
use super::tokens;
use super::{Handed, IDLE};
use crate::args::{Global, Keys, LogFormat, Serve, Spot};
use crate::error::{CliError, Outcome};
use crate::{opening, output};

pub(super) struct Settings {
    pub(super) global: Global,
    pub(super) resp: Option<SocketAddr>,
    pub(super) http: Option<SocketAddr>,
    pub(super) http_hosts: Vec<String>,
    pub(super) tokens: Option<PathBuf>,
    /// Files to reload when they change.
    pub(super) files: Files,
    pub(super) access: Access,
    pub(super) certificate: Option<Certificate>,
    pub(super) creates: bool,
    pub(super) timeout: Duration,
    pub(super) max_age: Option<Duration>,
    pub(super) sizes: Sizes,
    pub(super) idle: Duration,
    pub(super) shutdown_timeout: Duration,
    pub(super) shutdown_delay: Duration,
    pub(super) max_connections: usize,
    pub(super) logs_json: bool,
}

impl Settings {
    pub(super) fn of(global: &Global, args: Serve, handed: &Handed) -> Outcome<Self> {
        let Serve { config, keys, .. } = args;
        let keys = match config {
            None => keys,
            Some(file) => keys.over(tokens::in_toml::<Keys>(&file)?),
        };
        let address = |spot: Option<Spot>, default| spot.map_or(Some(default), |Spot(address)| address);
        // A listener from the service manager takes precedence over an address.
        let resp = Handed::address(handed.resp.as_ref())?.or_else(|| address(keys.resp, Server::RESP));
        let http = Handed::address(handed.http.as_ref())?.or_else(|| address(keys.http, Server::HTTP));
        if resp.is_none() && http.is_none() {
            return Err(CliError::usage("`--resp` and `--http` are both `none`; give one an address"));
        }
        if let (Some(resp), Some(http)) = (resp, http) {
            must_differ(resp, http)?;
        }
        // Hash the files before they are read, so that a change in between is detected.
        let secrets = [&keys.tokens, &keys.tls_cert, &keys.tls_key, &keys.tls_client_ca];
        let files = Files::of(secrets.into_iter().flatten().cloned());
        let certificate = Certificate::of(&keys)?;
        let secured = keys.tokens.is_some();
        let secure = secured && certificate.is_some();
        if !secure && !keys.insecure.unwrap_or(false) {
            [("resp", resp), ("http", http)].into_iter().try_for_each(of_this_machine)?;
        }
        let access = match &keys.tokens {
            Some(file) => Access::by(tokens::read_some(file)?),
            None => Access::open(),
        };
        Ok(Self {
            global: opening::with(global, keys.store, keys.guard),
            resp,
            http,
            http_hosts: keys.http_hosts.unwrap_or_default(),
            tokens: keys.tokens,
            files,
            access,
            certificate,
            creates: match keys.create {
                Some(creates) => creates,
                None => !secured && !opening::requires_existing(false)?,
            },
            timeout: keys.timeout.unwrap_or(Server::TIMEOUT),
            max_age: keys.max_age,
            sizes: Sizes::of(keys.sequences, keys.all)?,
            idle: keys.idle.unwrap_or(IDLE),
            shutdown_timeout: keys.shutdown_timeout.unwrap_or(Server::SHUTDOWN_TIMEOUT),
            max_connections: keys
                .max_connections
                .map_or(Server::MAX_CONNECTIONS, |clients| clients.get() as usize),
            shutdown_delay: keys.shutdown_delay.unwrap_or_default(),
            logs_json: keys.log_format.map_or(global.json, |format| format == LogFormat::Json),
        })
    }

    /// Prints the settings, for `--check`.
    pub(super) fn print(&self) -> Outcome {
        let shown = self.certificate.as_ref();
        if let Some(warning) = shown.and_then(|shown| shown.tls.warning(SystemTime::now())) {
            output::note(self.global.json, &warning);
        }
        let store = opening::url(&self.global)?;
        let at = |address: Option<SocketAddr>| {
            address.map_or_else(|| "none".to_owned(), |address| address.to_string())
        };
        let tokens = self.tokens.as_ref().map(|file| file.display().to_string());
        if self.global.json {
            return output::print_json(&serde_json::json!({
                "store": store.to_string(),
                "guard": store.guard().map(ToString::to_string),
                "resp": at(self.resp),
                "http": at(self.http),
                "http-hosts": self.http_hosts,
                "tokens": tokens,
                "tls": self.certificate.is_some(),
                "certificate-expires": self.expires(),
                "create": self.creates,
                "timeout": humantime::format_duration(self.timeout).to_string(),
                "sequences": self.sizes.json(),
                "idle": humantime::format_duration(self.idle).to_string(),
                "max-age": self.max_age.map(|age| humantime::format_duration(age).to_string()),
                "shutdown-delay": humantime::format_duration(self.shutdown_delay).to_string(),
                "log-format": if self.logs_json { "json" } else { "text" },
                "shutdown-timeout": humantime::format_duration(self.shutdown_timeout).to_string(),
                "max-connections": self.max_connections,
            }));
        }
        let created = if self.creates { "are created on their first use" } else { "must exist" };
        let who =
            tokens.map_or_else(|| "any that can connect".to_owned(), |file| format!("the tokens of {file}"));
        output::print(&format!(
            "would serve {store}\n  TLS             {}\n  Redis protocol  {}\n  HTTP            {}\n    \
             clients         {who}\n  sequences       {created}\n",
            self.encryption(),
            at(self.resp),
            at(self.http),
        ))
    }

    fn encryption(&self) -> String {
        match self.expires() {
            Some(end) => format!("yes, until {end}"),
            None => if self.certificate.is_some() { "yes" } else { "no" }.to_owned(),
        }
    }

    /// Returns the time at which the certificate expires.
    fn expires(&self) -> Option<String> {
        let end = self.certificate.as_ref()?.tls.expires()?;
        Some(humantime::format_rfc3339_seconds(end).to_string())
    }
}

/// Files and hashes of their contents. The time and the size do not suffice, because a new file can have
/// the same time and size as the old file.
#[derive(Clone, Debug)]
pub(super) struct Files {
    paths: Vec<PathBuf>,
    hasher: RandomState,
    /// `None` for an unreadable file.
    seen: Vec<Option<u64>>,
}

impl Files {
    pub(super) fn of(paths: impl Iterator<Item = PathBuf>) -> Self {
        let mut files = Self { paths: paths.collect(), hasher: RandomState::new(), seen: Vec::new() };
        files.have_changed();
        files
    }

    /// Returns whether a file has changed since the last call.
    pub(super) fn have_changed(&mut self) -> bool {
        let hash = |path| fs::read(path).ok().map(|content| self.hasher.hash_one(content));
        let now: Vec<_> = self.paths.iter().map(hash).collect();
        let changed = now != self.seen;
        self.seen = now;
        changed
    }
}

/// The files for TLS.
pub(super) struct Certificate {
    pub(super) tls: Tls,
    chain: PathBuf,
    key: PathBuf,
    authorities: Option<PathBuf>,
}

impl Certificate {
    /// Returns `None` if TLS is not configured.
    fn of(keys: &Keys) -> Outcome<Option<Self>> {
        let (chain, key) = match (&keys.tls_cert, &keys.tls_key) {
            (Some(chain), Some(key)) => (chain.clone(), key.clone()),
            (None, None) if keys.tls_client_ca.is_none() => return Ok(None),
            _ => return Err(CliError::usage("TLS needs both `--tls-cert` and `--tls-key`")),
        };
        let authorities = keys.tls_client_ca.clone();
        let tls = Tls::from_files(&chain, &key, authorities.as_deref())?;
        Ok(Some(Self { tls, chain, key, authorities }))
    }

    /// Reloads the files, unless an expired certificate would replace a valid one.
    pub(super) fn read_again(&self) -> Outcome {
        let read = Tls::from_files(&self.chain, &self.key, self.authorities.as_deref())?;
        let now = SystemTime::now();
        let ended = |tls: &Tls| tls.expires().filter(|end| *end <= now);
        if let (None, Some(end)) = (ended(&self.tls), ended(&read)) {
            let end = humantime::format_rfc3339_seconds(end);
            let message = format!(
                "the certificate in {} expired on {end}; replace it with a new one",
                self.chain.display()
            );
            return Err(CliError::usage(message));
        }
        self.tls.replace(&read);
        Ok(())
    }
}

/// Rejects addresses of which only one can be bound. Each listener with port 0 gets a port of its own.
fn must_differ(resp: SocketAddr, http: SocketAddr) -> Outcome {
    let covers = |one: SocketAddr, other: SocketAddr| {
        one.ip() == other.ip() || one.ip().is_unspecified() && one.is_ipv4() == other.is_ipv4()
    };
    if resp.port() != http.port() || resp.port() == 0 || !(covers(resp, http) || covers(http, resp)) {
        return Ok(());
    }
    Err(CliError::usage(format!(
        "`--resp {resp}` and `--http {http}` cannot share a port; give one of them another port"
    )))
}

/// Rejects an address that other machines can reach. Call it only if TLS or tokens are missing.
fn of_this_machine((key, address): (&str, Option<SocketAddr>)) -> Outcome {
    match address {
        Some(address) if !address.ip().is_loopback() => Err(CliError::usage(format!(
            "`--{key} {address}` is reachable from other machines: set `--tls-cert`, `--tls-key` and `--tokens`"
        ))
        .hint("in a trusted network, or behind a proxy with TLS and authentication, pass `--insecure`")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::args::Cli;

    /// The help text is the same in every build, so it cannot use the server's constants.
    #[test]
    fn help_states_the_defaults_of_the_server() {
        let mut command = Cli::command();
        let help = command.find_subcommand_mut("serve").unwrap().render_long_help().to_string();
        let time = |time| humantime::format_duration(time).to_string();
        for (option, constant, default) in [
            ("--resp", Server::RESP.to_string(), "127.0.0.1:7380"),
            ("--http", Server::HTTP.to_string(), "127.0.0.1:7381"),
            ("--timeout", time(Server::TIMEOUT), "5s"),
            ("--idle", time(IDLE), "10m"),
            ("--shutdown-timeout", time(Server::SHUTDOWN_TIMEOUT), "10s"),
            ("--max-connections", Server::MAX_CONNECTIONS.to_string(), "20000"),
        ] {
            let of = help.split(&format!("{option} <")).nth(1).unwrap().split("\n      --").next().unwrap();
            assert!(of.contains(&format!("[default: {default}]")), "{option}: {of}");
            assert_eq!(constant, default, "{option}");
        }
    }
}
