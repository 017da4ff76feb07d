# shellcheck shell=bash
# What the engines' scripts share. Sourced by them, never run. Each defines `fetch`, `version` and `serve`, more verbs if
# it has any, and ends with `engine "$@"`.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# For what is not a package of the system. Outside the tree, so that a fresh clone finds it again.
# shellcheck disable=SC2034 # for those who source this
ENGINES=${IDMILL_ENGINES:-${XDG_CACHE_HOME:-$HOME/.cache}/idmill/engines}

# Where distributions keep servers, which is not on everybody's path.
PATH=$PATH:/usr/sbin

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
    [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null || return 1
    (
        # One at a time: tests fetch several engines at once, and an update does not wait for another to end.
        flock 9 || true
        # Lists of packages that are missing or old are a failure of the first.
        apt_get install -y --no-install-recommends "$@" || {
            apt_get update && apt_get install -y --no-install-recommends "$@"
        }
    ) 9>"${TMPDIR:-/tmp}/idmill-apt.lock"
}

# need PROGRAM PACKAGE…: a program of the distribution's.
need() {
    command -v "$1" >/dev/null || try_apt "${@:2}" || missing "$1 is missing: apt-get install ${*:2}"
}

# address PORT N: where member N of a cluster listens. A prefix of its own for every PORT, so that the clusters of two
# test processes never meet.
address() {
    printf '127.%d.%d.%d\n' $(($1 >> 8)) $(($1 & 255)) "$2"
}

# built NAME FILE…: where what is made of these files of NAME.d is kept. Named by what it is built from, so that a
# changed source, or another version of what it embeds, is another one.
built() {
    printf '%s/%s/%s' "$ENGINES" "$1" "$(cd "$HERE/$1.d" && cat "${@:2}" | sha256sum | cut -c 1-16)"
}

# go_binary NAME: where the binary that go_build makes of NAME.d is.
go_binary() {
    (cd "$HERE/$1.d" && printf '%s/idmill-%s' "$(built "$1" ./*.go go.mod go.sum)" "$1")
}

# go_build NAME: builds it where it is not there yet. Beside its place and then moved, so that two at once do no harm
# and half a build is never found.
go_build() {
    local binary
    binary=$(go_binary "$1")
    [[ ! -x $binary ]] || return 0
    command -v go >/dev/null ||
        missing "Go is missing, with which $1 is built: see https://go.dev/dl (1.21 or later, which fetches the one that it needs)"
    mkdir -p "$(dirname "$binary")"
    printf 'building %s, which takes some minutes the first time\n' "$1" >&2
    (cd "$HERE/$1.d" && CGO_ENABLED=0 GOFLAGS=-buildvcs=false go build -mod=readonly -trimpath -ldflags '-s -w' -o "$binary.$$" .) >&2
    mv "$binary.$$" "$binary"
}

# engine VERB…
engine() {
    local name=${0##*/}
    # What `ci/test` without `full` leaves out.
    [[ ${1:-} != fetch || $name =~ ^(${IDMILL_QUICK_ENGINES:-.*})$ ]] ||
        missing "$name is left to ci/test full"
    [[ ${1:-} =~ ^(fetch|version|serve|address|tool)$ && $(type -t "$1") == function ]] && (($# >= ${LEAST[$1]:-1})) || {
        printf 'usage: %s fetch | version | serve DIR PORT%s\n' "$0" "$MORE" >&2
        exit 2
    }
    "$@"
}

# How many words a call has at least, its verb among them; and what `serve` takes besides, if anything.
declare -A LEAST=([serve]=3 [address]=3)
MORE=
