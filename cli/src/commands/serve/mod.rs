//! `idmill serve`: ids for clients of Redis and of HTTP.

mod reload;
mod settings;
mod tokens;
mod totals;

use std::sync::Arc;
use std::time::Duration;

use idmill::Sequences;
use idmill::store::{Existing, Store, StoreUrl};
use idmill_server::Server;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio::time::interval;

use crate::args::{Global, Serve};
use crate::failure::{Failure, Outcome};
use crate::{opening, signalled};
use settings::Settings;

/// A sequence that nobody draws from is let go after this long.
const IDLE: Duration = Duration::from_secs(600);
/// How often the recorder of metrics is tidied up, as it asks for.
const UPKEEP: Duration = Duration::from_secs(5);

pub(crate) async fn run(global: &Global, args: Serve) -> Outcome {
    let check = args.check;
    let settings = Settings::of(global, args)?;
    if check {
        return settings.print();
    }
    let metrics = recorder()?;
    let server = bound(&settings, metrics.clone()).await?;
    for (what, address) in [("Redis protocol", server.resp_address()), ("HTTP", server.http_address())] {
        if let Some(address) = address {
            tracing::info!(%address, "{what} is served");
        }
    }
    let told_to_end = async {
        signalled().await;
        tracing::info!("told to end; clients that are being answered have {:?}", settings.drain);
    };
    tokio::select! {
        () = server.run(told_to_end) => totals::report(&metrics.render()),
        () = reload::keep(&settings) => {}
        () = upkeep(&metrics) => {}
        () = told_twice() => tracing::warn!("told to end a second time: ended at once; what was in memory is a gap"),
    }
    Ok(())
}

async fn bound(settings: &Settings, metrics: PrometheusHandle) -> Outcome<Server> {
    let store = opening::create(&settings.global, StoreUrl::CONNECT_TIMEOUT).await?;
    let administered = Sequences::new(store.clone())?;
    let drawn: Arc<dyn Store> = if settings.creates { store } else { Arc::new(Existing::of(store)) };
    let mut sequences = Sequences::builder(drawn).idle_eviction(IDLE);
    if let Some(age) = settings.freshness {
        sequences = sequences.freshness(age);
    }
    let mut server = Server::builder(sequences.start()?)
        .administers(administered)
        .access(settings.access.clone())
        .patience(settings.patience)
        .drain(settings.drain)
        .max_connections(settings.max_connections)
        .http_hosts(settings.http_hosts.clone())
        .store_url(&opening::url(&settings.global)?.to_string())
        .metrics(move || metrics.render());
    if let Some(certificate) = &settings.certificate {
        server = server.tls(certificate.tls.clone());
    }
    if let Some(address) = settings.resp {
        server = server.resp(address);
    }
    if let Some(address) = settings.http {
        server = server.http(address);
    }
    Ok(server.bind().await?)
}

fn recorder() -> Outcome<PrometheusHandle> {
    let recorder = PrometheusBuilder::new().install_recorder();
    recorder.map_err(|error| Failure::usage(format!("metrics cannot be recorded: {error}")))
}

async fn upkeep(metrics: &PrometheusHandle) {
    let mut ticks = interval(UPKEEP);
    loop {
        ticks.tick().await;
        metrics.run_upkeep();
    }
}

/// The second signal, counted from the start.
async fn told_twice() {
    signalled().await;
    signalled().await;
}

pub(crate) use tokens::run as token;
