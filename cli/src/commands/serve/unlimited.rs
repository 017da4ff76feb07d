//! No limit of open files is known here.

/// As many as are wanted.
pub(super) fn places(wanted: usize) -> usize {
    wanted
}
