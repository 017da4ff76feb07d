//! The server's own metrics. `docs/guide/metrics.md` lists them.

use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};

const UNREAD: &str = "idmill_server_unread_ids_total";
const REFUSED: &str = "idmill_server_refused_total";
const ENDING: &str = "idmill_server_ending_soon_sequences";
const EXPIRY: &str = "idmill_server_certificate_expiry_timestamp_seconds";

/// Why requests and connections are refused: [`Refusal::reason`](crate::access::Refusal::reason), `full`, and
/// `readers`.
const REASONS: [&str; 12] = [
    "no_token",
    "wrong_token",
    "ended_token",
    "right",
    "sequence",
    "max_ids",
    "requests_per_second",
    "max_connections",
    "new_sequences",
    "memory",
    "full",
    "readers",
];

/// Registers the metrics, and the counters at 0: a query for an increase misses the event with which a
/// counter begins. Call it again before each scrape, so that a recorder does not drop counters as idle.
pub(crate) fn describe() {
    describe_counter!(UNREAD, Unit::Count, "Ids in replies that could not be written");
    describe_counter!(REFUSED, Unit::Count, "Requests and connections that were refused, by reason");
    describe_gauge!(ENDING, Unit::Count, "Sequences that end within 30 days at their current rate");
    describe_gauge!(EXPIRY, Unit::Seconds, "Expiry of the server's certificate, in seconds since 1970");
    counter!(UNREAD).increment(0);
    for reason in REASONS {
        counter!(REFUSED, "reason" => reason).increment(0);
    }
}

/// Counts a refused request or connection.
pub(crate) fn refused(reason: &'static str) {
    counter!(REFUSED, "reason" => reason).increment(1);
}

/// Counts ids in a reply that cannot be written.
pub(crate) fn unread(ids: u64) {
    counter!(UNREAD).increment(ids);
}

/// Sets the number of sequences that end soon.
pub(crate) fn ending_soon(sequences: usize) {
    gauge!(ENDING).set(sequences as f64);
}

/// Sets the time at which the server's certificate expires, in seconds since 1970.
pub(crate) fn expires(seconds: f64) {
    gauge!(EXPIRY).set(seconds);
}
