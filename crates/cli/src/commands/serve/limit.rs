//! The limit of open files. Each client needs one open file.

use rlimit::Resource;

/// Descriptors that are reserved for the store's connections, listeners, files and probes.
const RESERVE: u64 = 128;

/// Raises the soft limit for this number of clients. Returns how many fit.
pub(super) fn places(wanted: usize) -> usize {
    let needed = (wanted as u64).saturating_add(RESERVE);
    match rlimit::increase_nofile_limit(needed).or_else(|_| Resource::NOFILE.get_soft()) {
        Ok(limit) if limit < needed => {
            let places = places_of(limit);
            tracing::warn!(
                "the limit of {limit} open files allows {places} clients, not {wanted}; raise `LimitNOFILE` or `ulimit -n`"
            );
            places
        }
        _ => wanted,
    }
}

/// Returns the number of clients that fit into a limit that is too small for all.
fn places_of(limit: u64) -> usize {
    let places = limit - RESERVE.min(limit / 2);
    usize::try_from(places).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_limit_keeps_a_reserve() {
        assert_eq!([64, 256, 1024].map(places_of), [32, 128, 896]);
        assert_eq!(places(0), 0);
    }
}
