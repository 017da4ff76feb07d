//! Systems without a limit of open files.

/// All of them fit.
pub(super) fn places(wanted: usize) -> usize {
    wanted
}
