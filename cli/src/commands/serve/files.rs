//! How many files the process may have open: each client is one.

use rlimit::Resource;

/// Kept free of clients: for the store's connections, listeners, files that are read, and probes.
const RESERVE: u64 = 128;

/// How many clients can be served of those that are wanted. Raises the soft limit as far as they need.
pub(super) fn places(wanted: usize) -> usize {
    let needed = (wanted as u64).saturating_add(RESERVE);
    match raised(needed) {
        Some(limit) if limit < needed => {
            let places = places_of(limit);
            tracing::warn!(
                "{limit} files may be open, so {places} clients are served, not {wanted}: raise LimitNOFILE or `ulimit -n`"
            );
            places
        }
        _ => wanted,
    }
}

/// The limit, at least as large as needed where the system allows that; `None` where it is not known.
fn raised(needed: u64) -> Option<u64> {
    let (soft, hard) = Resource::NOFILE.get().ok()?;
    let wanted = needed.min(hard);
    if soft >= wanted {
        return Some(soft);
    }
    Some(Resource::NOFILE.set(wanted, hard).map_or(soft, |()| wanted))
}

/// So few files are shared between both.
fn places_of(limit: u64) -> usize {
    let places = limit - RESERVE.min(limit / 2);
    usize::try_from(places).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserve_is_kept_of_any_limit() {
        assert_eq!([64, 256, 1024].map(places_of), [32, 128, 896]);
        assert_eq!(places(0), 0);
    }
}
