# shellcheck shell=bash
# What the engines' scripts share. Sourced by them, never run.
set -euo pipefail

# For what is not a package of the system. Outside the tree, so that a fresh clone finds it again.
# shellcheck disable=SC2034 # for those who source this
ENGINES=${IDMILL_ENGINES:-${XDG_CACHE_HOME:-$HOME/.cache}/idmill/engines}

# missing TEXT…: what is missing and how to get it. The tests that need it are then skipped.
missing() {
    printf '%s\n' "$*" >&2
    exit 77
}

# try_apt PACKAGE…: installs them where that is allowed; fails where it is not, or they cannot be had.
try_apt() {
    if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
        return 1
    fi
    (
        # One at a time: tests fetch several engines at once, and an update does not wait for another's to end.
        flock 9 || true
        apt-get -o DPkg::Lock::Timeout=300 update >&2 &&
            apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "$@" >&2
    ) 9>"${TMPDIR:-/tmp}/idmill-apt.lock"
}

# MORE is what `serve` takes besides, if anything.
usage() {
    printf 'usage: %s fetch | version | serve DIR PORT%s\n' "$0" "${MORE:-}" >&2
    exit 2
}
