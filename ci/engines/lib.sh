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

apt_get() {
    apt-get -o DPkg::Lock::Timeout=300 "$@" >&2
}

# try_apt PACKAGE…: installs them where that is allowed; fails where it is not, or they cannot be had.
try_apt() {
    if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
        return 1
    fi
    (
        # One at a time: tests fetch several engines at once, and an update does not wait for another to end.
        flock 9 || true
        # Lists of packages that are missing or old are a failure of the first.
        apt_get install -y --no-install-recommends "$@" || {
            apt_get update && apt_get install -y --no-install-recommends "$@"
        }
    ) 9>"${TMPDIR:-/tmp}/idmill-apt.lock"
}

# go_binary NAME: where the binary that go_build makes of NAME.d is. Named by what it is built from, so that a
# changed source, or another version of what it embeds, is another binary.
go_binary() {
    local sources hash
    sources=$(cd "$(dirname "${BASH_SOURCE[0]}")/$1.d" && pwd)
    hash=$(cd "$sources" && cat ./*.go go.mod go.sum | sha256sum)
    printf '%s/%s/%s/idmill-%s' "$ENGINES" "$1" "${hash:0:16}" "$1"
}

# go_build NAME: builds it where it is not there yet. Into a directory of this process' own and then moved, so
# that two at once do no harm and half a build is never found.
go_build() {
    local binary sources scratch
    binary=$(go_binary "$1")
    [[ ! -x $binary ]] || return 0
    command -v go >/dev/null ||
        missing "Go is missing, with which $1 is built: see https://go.dev/dl (1.21 or later, which fetches the one that it needs)"
    sources=$(cd "$(dirname "${BASH_SOURCE[0]}")/$1.d" && pwd)
    scratch=$(mktemp -d "${TMPDIR:-/tmp}/idmill-$1.XXXXXX")
    # shellcheck disable=SC2064 # the directory as it is called now
    trap "rm -rf '$scratch'" EXIT
    printf 'building %s, which takes some minutes the first time\n' "$1" >&2
    (cd "$sources" && CGO_ENABLED=0 GOFLAGS=-buildvcs=false go build -mod=readonly -trimpath -ldflags '-s -w' -o "$scratch/built" .) >&2
    mkdir -p "$(dirname "$binary")"
    # First beside its place, since a move is only atomic within one file system.
    mv "$scratch/built" "$binary.$$"
    mv "$binary.$$" "$binary"
}

# MORE is what `serve` takes besides, if anything.
usage() {
    printf 'usage: %s fetch | version | serve DIR PORT%s\n' "$0" "${MORE:-}" >&2
    exit 2
}
