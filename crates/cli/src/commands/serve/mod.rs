//! `idmill serve`: serves ids over the Redis protocol and HTTP.

#[cfg(unix)]
mod limit;
#[cfg(not(unix))]
mod limit {
    /// Returns `wanted`, because this system does not limit open files.
    pub(super) fn places(wanted: usize) -> usize {
        wanted
    }
}
mod reload;
mod settings;
mod signals;
mod sizes;
#[cfg(target_os = "linux")]
mod systemd;
#[cfg(not(target_os = "linux"))]
#[path = "unmanaged.rs"]
mod systemd;
mod tokens;
#[cfg(feature = "otel")]
mod traces;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use idmill::Sequences;
use idmill::store::Store;
use idmill_kit::{CONNECT_TIMEOUT, Existing};
use idmill_server::Server;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use metrics_util::MetricKindMask;
use tokio::time::interval;

use crate::args::{Global, Serve};
use crate::error::{CliError, Outcome};
use crate::{logging, opening};
use settings::Settings;
pub(crate) use tokens::run as token;

/// Default time after which an idle sequence is evicted.
const IDLE: Duration = Duration::from_secs(600);
/// Interval of the metrics recorder's upkeep.
const UPKEEP: Duration = Duration::from_secs(5);
/// How long an unreachable store is retried at startup.
const REACHED_WITHIN: Duration = CONNECT_TIMEOUT;
/// How long the series of an evicted sequence stay in `/metrics`. Each scrape records all other series again.
const SERIES_KEPT: Duration = Duration::from_secs(300);

/// Listeners that the service manager opened and passed to this process.
#[derive(Debug, Default)]
struct Handed {
    resp: Option<TcpListener>,
    http: Option<TcpListener>,
}

impl Handed {
    fn address(listener: Option<&TcpListener>) -> Outcome<Option<SocketAddr>> {
        let address = listener.map(TcpListener::local_addr).transpose();
        address.map_err(|error| {
            CliError::usage(format!(
                "the service manager passed a socket that is not a TCP listener: {error}"
            ))
        })
    }
}

pub(crate) async fn run(global: &Global, args: Serve) -> Outcome {
    let check = args.check;
    let handed = systemd::handed()?;
    let settings = Settings::of(global, args, &handed)?;
    if check {
        return settings.print();
    }
    // Handle SIGHUP before the store is opened, which may take a while.
    let hangups = reload::Hangups::new();
    signals::ignore();
    #[cfg(feature = "otel")]
    let traces = traces::Traces::begin()?;
    #[cfg(feature = "otel")]
    let spans = traces.layer();
    #[cfg(not(feature = "otel"))]
    let spans = None::<tracing_subscriber::layer::Identity>;
    let log = logging::serve(global, settings.logs_json, spans);
    let metrics = recorder()?;
    // Handle signals from here on. The first process of a container ignores signals without a handler, and
    // the store may take a while to open.
    let (mut told_once, told_twice) = (Box::pin(signals::stopped()), signals::stopped_twice());
    let server = tokio::select! {
        server = bound(&settings, handed, metrics.clone()) => server?,
        () = &mut told_once => {
            tracing::info!("stopped before the store was open");
            return Ok(());
        }
    };
    let figures = server.figures();
    systemd::ready(&figures);
    for (what, address) in [("Redis protocol", server.resp_address()), ("HTTP", server.http_address())] {
        if let Some(address) = address {
            tracing::info!(%address, "{what} is served");
        }
    }
    let told_to_end = async {
        told_once.await;
        systemd::stopping();
        tracing::info!("stopping; pending requests have {:?} to finish", settings.shutdown_timeout);
    };
    tokio::select! {
        () = server.run(told_to_end) => report(&metrics.render()),
        () = reload::keep(&settings, &figures, hangups) => {}
        () = systemd::keep(&figures) => {}
        () = upkeep(&metrics) => {}
        () = log.keep() => {}
        () = told_twice => tracing::warn!("stopped by a second signal: ids in memory leave a gap"),
    }
    #[cfg(feature = "otel")]
    traces.end().await;
    Ok(())
}

async fn bound(settings: &Settings, handed: Handed, metrics: PrometheusHandle) -> Outcome<Server> {
    let max_connections = limit::places(settings.max_connections);
    let store = opening::to_serve(&settings.global, REACHED_WITHIN).await?;
    let administered = Sequences::new(store.clone())?;
    let drawn: Arc<dyn Store> = if settings.creates { store } else { Arc::new(Existing::of(store)) };
    let mut sequences = Sequences::builder(drawn).idle_eviction(settings.idle);
    if let Some(age) = settings.max_age {
        sequences = sequences.max_age(age);
    }
    let sizes = settings.sizes.clone();
    let mut server = Server::builder(sequences.start()?)
        .configure(move |name, builder| sizes.apply(name, builder))
        .administers(administered)
        .access(settings.access.clone())
        .timeout(settings.timeout)
        .shutdown_timeout(settings.shutdown_timeout)
        .shutdown_delay(settings.shutdown_delay)
        .max_connections(max_connections)
        .http_hosts(settings.http_hosts.clone())
        .store_url(&opening::url(&settings.global)?.to_string())
        .metrics(move || metrics.render());
    if let Some(certificate) = &settings.certificate {
        server = server.tls(certificate.tls.clone());
    }
    server = match (handed.resp, settings.resp) {
        (Some(listener), _) => server.resp_listener(listener),
        (None, Some(address)) => server.resp(address),
        (None, None) => server,
    };
    server = match (handed.http, settings.http) {
        (Some(listener), _) => server.http_listener(listener),
        (None, Some(address)) => server.http(address),
        (None, None) => server,
    };
    #[cfg(feature = "otel")]
    let server = traces::adopt(server);
    Ok(server.bind().await?)
}

fn recorder() -> Outcome<PrometheusHandle> {
    let recorder = keeping(SERIES_KEPT).install_recorder();
    recorder.map_err(|error| CliError::usage(format!("cannot install the metrics recorder: {error}")))
}

/// Drops series that were not recorded for this time.
fn keeping(time: Duration) -> PrometheusBuilder {
    PrometheusBuilder::new().idle_timeout(MetricKindMask::ALL, Some(time))
}

async fn upkeep(metrics: &PrometheusHandle) {
    let mut ticks = interval(UPKEEP);
    loop {
        ticks.tick().await;
        metrics.run_upkeep();
    }
}

/// Logs the use of all granted ids at shutdown. Each id was handed out, given back, or is a gap. `unread`
/// counts handed-out ids whose answer could not be written. The ids of unanswered reserves are unknown: the
/// store may have granted all of them or none.
fn report(metrics: &str) {
    let [draws, granted, _, _, _, _, given_back, revoked, abandoned, dropped, unknown] =
        idmill::__private::totals();
    tracing::info!(
        granted,
        // Dropped ids were drawn, and count as draws too.
        handed_out = draws.saturating_sub(dropped),
        given_back,
        gaps = revoked + abandoned + dropped,
        unknown,
        unread = value(metrics, "idmill_server_unread_ids_total"),
        "ended"
    );
}

/// Returns the value of a counter without labels.
fn value(metrics: &str, name: &str) -> u64 {
    let values =
        metrics.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse::<u64>().ok());
    values.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_that_is_not_recorded_is_dropped() {
        assert_eq!(SERIES_KEPT.as_secs(), 300, "as in docs/guide/metrics.md");
        for (time, is_kept) in [(SERIES_KEPT, true), (Duration::from_millis(1), false)] {
            let recorder = keeping(time).build_recorder();
            metrics::with_local_recorder(&recorder, || metrics::gauge!("idmill_a").set(7));
            assert!(recorder.handle().render().contains("idmill_a 7"));
            std::thread::sleep(Duration::from_millis(30));
            assert_eq!(recorder.handle().render().contains("idmill_a 7"), is_kept, "{time:?}");
        }
    }

    #[test]
    fn counter_without_labels_is_read() {
        let metrics = "# TYPE idmill_a_total counter\nidmill_a_total 7\nidmill_a_total_more 50\n";
        assert_eq!((value(metrics, "idmill_a_total"), value(metrics, "idmill_b_total")), (7, 0));
    }
}
