# shellcheck shell=bash
# Functions that the scripts of the engines share. Each script sources this file, defines `fetch`, `version`,
# `serve` and optional verbs, and ends with `engine "$@"`.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# The directory of engines that are not system packages is outside the tree, so that fresh clones reuse it.
# shellcheck disable=SC2034 # used by the scripts that source this file
ENGINES=${IDMILL_ENGINES:-${XDG_CACHE_HOME:-$HOME/.cache}/idmill/engines}

# Distributions install servers in /usr/sbin, which is not on the PATH of all users.
PATH=$PATH:/usr/sbin

# missing TEXT…: ends the script with status 77; tests that need the engine are skipped, or fail if CI=true.
# TEXT names the missing program and its package.
missing() {
    printf '%s\n' "$*" >&2
    exit 77
}

apt_get() {
    apt-get -o DPkg::Lock::Timeout=300 "$@" >&2
}

# try_apt PACKAGE…: installs system packages. Fails without root, without apt-get, or if the installation
# fails.
try_apt() {
    [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null || return 1
    (
        # Tests fetch several engines in parallel, and `apt-get update` does not wait for another process.
        flock 9 || true
        # The first try fails if the package lists are missing or outdated.
        apt_get install -y --no-install-recommends "$@" || {
            apt_get update && apt_get install -y --no-install-recommends "$@"
        }
    ) 9>"${TMPDIR:-/tmp}/idmill-apt.lock"
}

# need PROGRAM PACKAGE…: installs the system packages if PROGRAM is missing.
need() {
    command -v "$1" >/dev/null || try_apt "${@:2}" || missing "$1 is missing: apt-get install ${*:2}"
}

# address PORT N: prints the address of member N of a cluster. The address contains PORT, so that clusters of
# different test processes do not collide.
address() {
    printf '127.%d.%d.%d\n' $(($1 >> 8)) $(($1 & 255)) "$2"
}

# built NAME FILE…: prints the build directory for the sources FILE… of NAME.d. The directory is named after a
# hash of the files, so that a changed source or dependency triggers a new build.
built() {
    printf '%s/%s/%s' "$ENGINES" "$1" "$(cd "$HERE/$1.d" && cat "${@:2}" | sha256sum | cut -c 1-16)"
}

# go_binary NAME: prints the path of the binary that go_build makes from NAME.d.
go_binary() {
    (cd "$HERE/$1.d" && printf '%s/idmill-%s' "$(built "$1" ./*.go go.mod go.sum)" "$1")
}

# go_build NAME: builds the binary if it does not exist. The binary is renamed after the build, so that
# parallel builds do not collide, and an interrupted build leaves no binary.
go_build() {
    local binary
    binary=$(go_binary "$1")
    [[ ! -x $binary ]] || return 0
    command -v go >/dev/null ||
        missing "Go is missing; it builds $1: see https://go.dev/dl (1.21 or later, which fetches the version that it needs)"
    mkdir -p "$(dirname "$binary")"
    printf 'building %s, which takes some minutes\n' "$1" >&2
    (cd "$HERE/$1.d" && CGO_ENABLED=0 GOFLAGS=-buildvcs=false go build -mod=readonly -trimpath -ldflags '-s -w' -o "$binary.$$" .) >&2
    mv "$binary.$$" "$binary"
}

# engine VERB ARGUMENT…: checks the arguments, and calls the function of the verb.
engine() {
    local name=${0##*/}
    # A quick run fetches only the engines in IDMILL_QUICK_ENGINES.
    [[ ${1:-} != fetch || $name =~ ^(${IDMILL_QUICK_ENGINES:-.*})$ ]] ||
        missing "$name is used only in ci/test full"
    [[ ${1:-} =~ ^(fetch|version|serve|address|tool)$ && $(type -t "$1") == function ]] && (($# >= ${LEAST[$1]:-1})) || {
        printf 'usage: %s fetch | version | serve DIR PORT%s\n' "$0" "$MORE" >&2
        exit 2
    }
    "$@"
}

# LEAST: the minimum number of arguments of a verb, including the verb. MORE: the end of the usage, with
# further arguments and verbs.
declare -A LEAST=([serve]=3 [address]=3)
MORE=
