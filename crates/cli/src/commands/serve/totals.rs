//! What became of the ids of a server that has ended.

/// Gaps of reserves of which nobody knows whether they were granted.
const UNKNOWN: &str = "reason=\"unknown\"";
/// Gaps of ids that count as draws too.
const DROPPED: &str = "reason=\"dropped\"";

/// Says it in the log. Of what it was granted, everything was handed out, given back, or is a gap; what was
/// handed out and not read, or skipped, is a gap too. Of what is unknown, the store may have granted all or
/// nothing: it was asked, and did not answer before the end.
pub(super) fn report(metrics: &str) {
    let all = |name| sum(metrics, name, |_| true);
    let gaps = |counts: fn(&str) -> bool| sum(metrics, "idmill_gaps_total", counts);
    tracing::info!(
        granted = all("idmill_granted_total"),
        handed_out = all("idmill_draws_total").saturating_sub(gaps(|labels| labels.contains(DROPPED))),
        given_back = all("idmill_given_back_total"),
        gaps = gaps(|labels| !labels.contains(UNKNOWN)),
        unknown = gaps(|labels| labels.contains(UNKNOWN)),
        unread = all("idmill_server_unread_ids_total"),
        skipped = all("idmill_server_skipped_ids_total"),
        "ended"
    );
}

/// Of all sequences: what the lines say whose labels count.
fn sum(metrics: &str, name: &str, counts: impl Fn(&str) -> bool) -> u64 {
    let lines = metrics.lines().filter_map(|line| line.strip_prefix(name));
    let lines = lines.filter(|rest| rest.starts_with('{') || rest.starts_with(' '));
    let labelled = lines.filter_map(|rest| rest.rsplit_once(' ')).filter(|(labels, _)| counts(labels));
    labelled.filter_map(|(_, value)| value.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_and_reasons_are_added_up() {
        let metrics = "# TYPE idmill_gaps_total counter\nidmill_gaps_total{sequence=\"a\",reason=\"dropped\"} 3\n\
                       idmill_gaps_total{sequence=\"a\",reason=\"unknown\"} 100\nidmill_gaps_total{sequence=\"b\",reason=\"revoked\"} 4\n\
                       idmill_gaps_total_more 50\nidmill_server_unread_ids_total 7\n";
        let unknown = |labels: &str| labels.contains(UNKNOWN);
        let gaps = |counts: &dyn Fn(&str) -> bool| sum(metrics, "idmill_gaps_total", counts);
        assert_eq!((gaps(&unknown), gaps(&|labels| !unknown(labels))), (100, 7));
        assert_eq!(gaps(&|labels| labels.contains(DROPPED)), 3);
        assert_eq!(sum(metrics, "idmill_server_unread_ids_total", |_| true), 7);
        assert_eq!(sum(metrics, "idmill_draws_total", |_| true), 0);
    }
}
