//! What became of the ids of a server that has ended.

/// Gaps of reserves of which nobody knows whether they were granted.
const UNKNOWN: &str = "reason=\"unknown\"";

/// Says it in the log. Of what it was granted, everything was handed out, given back, or is a gap; what was
/// handed out and not read, or skipped, is a gap too. Of what is unknown, the store may have granted all or
/// nothing: it was asked, and did not answer before the end.
pub(super) fn report(metrics: &str) {
    let sum = |name| sum(metrics, name, UNKNOWN).0;
    tracing::info!(
        granted = sum("idmill_granted_total"),
        handed_out = sum("idmill_draws_total"),
        given_back = sum("idmill_given_back_total"),
        gaps = sum("idmill_gaps_total"),
        unknown = self::sum(metrics, "idmill_gaps_total", UNKNOWN).1,
        unread = sum("idmill_server_unread_ids_total"),
        skipped = sum("idmill_server_skipped_ids_total"),
        "ended"
    );
}

/// Of all sequences: what lines without this label say, and what those with it do.
fn sum(metrics: &str, name: &str, label: &str) -> (u64, u64) {
    let lines = metrics.lines().filter(|line| {
        line.strip_prefix(name).is_some_and(|rest| rest.starts_with('{') || rest.starts_with(' '))
    });
    let (with, without): (Vec<_>, Vec<_>) = lines.partition(|line| line.contains(label));
    let total =
        |lines: Vec<&str>| lines.iter().filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum();
    (total(without), total(with))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_and_reasons_are_added_up() {
        let metrics = "# TYPE idmill_gaps_total counter\nidmill_gaps_total{sequence=\"a\",reason=\"dropped\"} 3\n\
                       idmill_gaps_total{sequence=\"a\",reason=\"unknown\"} 100\nidmill_gaps_total{sequence=\"b\",reason=\"revoked\"} 4\n\
                       idmill_gaps_total_more 50\nidmill_server_unread_ids_total 7\n";
        assert_eq!(sum(metrics, "idmill_gaps_total", UNKNOWN), (7, 100));
        assert_eq!(sum(metrics, "idmill_server_unread_ids_total", UNKNOWN), (7, 0));
        assert_eq!(sum(metrics, "idmill_draws_total", UNKNOWN), (0, 0));
    }
}
