//! What became of the ids of a server that has ended.

/// Says it in the log. Of what it was granted, everything was handed out, given back, or is a gap; what was
/// handed out and not read, or skipped, is a gap too.
pub(super) fn report(metrics: &str) {
    let sum = |name| sum(metrics, name);
    tracing::info!(
        granted = sum("idmill_granted_total"),
        handed_out = sum("idmill_draws_total"),
        given_back = sum("idmill_given_back_total"),
        gaps = sum("idmill_gaps_total"),
        unread = sum("idmill_server_unread_ids_total"),
        skipped = sum("idmill_server_skipped_ids_total"),
        "ended"
    );
}

/// Of all sequences.
fn sum(metrics: &str, name: &str) -> u64 {
    let lines = metrics.lines().filter(|line| {
        line.strip_prefix(name).is_some_and(|rest| rest.starts_with('{') || rest.starts_with(' '))
    });
    // A reserve of which nobody knows whether it was granted is none.
    let lines = lines.filter(|line| !line.contains("reason=\"unknown\""));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_and_reasons_are_added_up() {
        let metrics = "# TYPE idmill_gaps_total counter\nidmill_gaps_total{sequence=\"a\",reason=\"dropped\"} 3\n\
                       idmill_gaps_total{sequence=\"a\",reason=\"unknown\"} 100\nidmill_gaps_total{sequence=\"b\",reason=\"revoked\"} 4\n\
                       idmill_gaps_total_more 50\nidmill_server_unread_ids_total 7\n";
        assert_eq!(sum(metrics, "idmill_gaps_total"), 7);
        assert_eq!(sum(metrics, "idmill_server_unread_ids_total"), 7);
        assert_eq!(sum(metrics, "idmill_draws_total"), 0);
    }
}
