# shellcheck shell=bash
# What ci/test and every step share. Sourced, never run: it moves to the root of the tree.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$ROOT"

# Absolute, because a step may run cargo elsewhere (readme) or name a directory below it (loom, tsan).
TARGET=${CARGO_TARGET_DIR:-$ROOT/target}
[[ $TARGET == /* ]] || TARGET=$ROOT/$TARGET

# Outside the tree, so that a fresh clone and `cargo clean` keep the minutes that an install takes.
TOOLS=${IDMILL_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/idmill/tools}

# A dated nightly can be named here when the newest one lacks a component.
NIGHTLY=${IDMILL_NIGHTLY:-nightly}

# automake's convention for a test that could not run.
SKIPPED=77

# The command and the variables that steer it go to the output: they can be copied and run by hand.
run() {
    local name
    printf '+ ' >&2
    for name in RUSTFLAGS RUSTDOCFLAGS MIRIFLAGS IDMILL_SIM_SEEDS IDMILL_SIM_SEED IDMILL_STRESS_ROUNDS \
        IDMILL_CRASH_ROUNDS IDMILL_SOAK_SECONDS CARGO_TARGET_DIR; do
        [[ -z ${!name:-} ]] || printf '%s=%q ' "$name" "${!name}" >&2
    done
    printf '%s\n' "$*" >&2
    "$@"
}

fail() {
    report failure "$*"
    printf 'FAILED: %s\n' "$*" >&2
    exit 1
}

# skip REASON: what is missing and how to get it. ci/test makes it a failure where CI=true.
skip() {
    report reason "$*"
    printf 'skipped: %s\n' "$*" >&2
    exit "$SKIPPED"
}

# report passed|failed|ignored N, reason|failure TEXT, or slow "SECONDS WHAT": handed to ci/test, dropped when
# a step runs alone. The conformance suite writes to the same file by itself, with a line for each store, its
# words between tabs: engine STORE ENGINE-AND-VERSION SECONDS TRIALS-RUN TRIALS-SKIPPED WHY
# A failure's TEXT, of which there may be several, is shown again in the summary.
report() {
    printf '%s %s\n' "$1" "$2" >>"${IDMILL_CI_REPORT:-/dev/null}"
}

# sum_results 1|3|5 FILE: adds up what cargo test says of passed, failed or ignored tests.
# Not tied to the line: under Miri several seeds run at once and write over each other's lines.
sum_results() {
    awk -v field="$1" '
        { while (match($0, /[0-9]+ passed; [0-9]+ failed; [0-9]+ ignored;/)) {
              split(substr($0, RSTART, RLENGTH), words, " ")
              sum += words[field]
              $0 = substr($0, RSTART + RLENGTH)
        } }
        END { print sum + 0 }' "$2"
}

# logged FILE COMMAND…: shows the output of COMMAND, keeps it in FILE, answers with its status.
logged() {
    local file=$1
    shift
    mkdir -p "$(dirname "$file")"
    run "$@" 2>&1 | tee "$file"
}

# tests COMMAND…: a `cargo test` command that has to run at least one test, or the same ones TIMES times.
# cargo test is content with none at all, for instance when a filter or a cfg has hidden them.
tests() {
    local log status=0 passed failed times=${TIMES:-1}
    log=$TARGET/ci/$(basename "$0").log
    logged "$log" "$@" || status=$?
    passed=$(sum_results 1 "$log")
    failed=$(sum_results 3 "$log")
    report passed $((passed / times))
    report failed $(((failed + times - 1) / times))
    report ignored $(($(sum_results 5 "$log") / times))
    report_slow "$log"
    ((status == 0)) || report_failures "$log"
    ((status == 0)) || fail "exit status $status"
    ((passed > 0)) || fail "no test ran"
    ((passed % times == 0)) || fail "$passed passed, which is not the same tests $times times"
}

# report_slow FILE: how long each test executable took, as cargo test says.
report_slow() {
    awk '/^ *Running / { name = $NF; gsub(/.*\/|-[0-9a-f]+\)$/, "", name) }
         /^test result: .* finished in / {
             sub(/s$/, "", $NF)
             if ($NF > 1) print "slow " $NF " " name
         }' "$1" >>"${IDMILL_CI_REPORT:-/dev/null}"
}

# at_once N COMMAND ARGUMENT…: runs `COMMAND ARGUMENT` for each of the arguments, N at a time. Sets FAILURES
# to how many failed.
at_once() {
    local most=$1 command=$2 argument
    shift 2
    FAILURES=0
    for argument in "$@"; do
        while (($(jobs -rp | wc -l) >= most)); do
            wait -n || FAILURES=$((FAILURES + 1))
        done
        "$command" "$argument" &
    done
    while (($(jobs -p | wc -l) > 0)); do
        wait -n || FAILURES=$((FAILURES + 1))
    done
}

# write_to_memory: has the databases of the tests stand in memory, where there is room. They sync thousands of
# times, which is slow on some disks, and what is left after a SIGKILL is the same. TMPDIR names another place.
write_to_memory() {
    local kib
    [[ -z ${TMPDIR:-} ]] || return 0
    kib=$(df -kP /dev/shm 2>/dev/null | awk 'NR == 2 { print $4 }')
    ((${kib:-0} > 8 * 1024 * 1024)) || return 0
    TMPDIR=$(mktemp -d /dev/shm/idmill.XXXXXX)
    export TMPDIR
    # Some engines run as a user of their own.
    chmod 711 "$TMPDIR"
    # shellcheck disable=SC2064 # the directory as it is called now
    trap "rm -rf '$TMPDIR'" EXIT
}

# patience SECONDS: sets PATIENCE to what ends the command after it in that time. macOS has no timeout(1):
# there a hang stays one.
patience() {
    PATIENCE=()
    ! command -v timeout >/dev/null || PATIENCE=(timeout --kill-after=10 "$1")
}

# within MINUTES COMMAND…: ends it after that time, with all that it started, and says so in the summary.
within() {
    local child status=0
    patience "$1m"
    "${PATIENCE[@]}" "${@:2}" &
    child=$!
    # timeout moves it to a process group of its own, which a signal to this one does not reach.
    # shellcheck disable=SC2064 # the process as it is called now
    trap "kill $child" TERM INT
    wait "$child" || status=$?
    trap - TERM INT
    ((status != 124)) || report failure "not done in $1 minutes: ${*:2}"
    return "$status"
}

# among WORD WORD…: whether the first word is one of the others.
among() {
    [[ " ${*:2} " == *" $1 "* ]]
}

# in_order "NAME NAME…" NAME…: the names, those first that the first argument has too, in its order.
in_order() {
    local name
    for name in $1; do
        ! among "$name" "${@:2}" || printf '%s\n' "$name"
    done
    for name in "${@:2}"; do
        among "$name" "$1" || printf '%s\n' "$name"
    done
}

# report_failures FILE [PATTERN]: the lines of FILE that tell what failed, for the summary: the output of a
# whole run is long, and who looks after it may have been left no more than its end. Without PATTERN, what
# cargo test says of each test that failed.
report_failures() {
    awk -v pattern="${2:-}" '
        /^failures:$/ { on = 1 }
        /^test result:/ { on = 0 }
        /^ +([0-9]+:|at) / { next } # of a backtrace
        (pattern == "" ? on && NF : $0 ~ pattern) && shown++ < 80 {
            print "failure " substr($0, 1, 400)
        }' "$1" >>"${IDMILL_CI_REPORT:-/dev/null}"
}

# The crates that stores may share.
SHARED=(sql tls)

# find_stores: sets STORES to the stores in stores/, by their directories.
find_stores() {
    local path
    STORES=()
    for path in stores/*/Cargo.toml; do
        STORES+=("$(basename "${path%/Cargo.toml}")")
    done
    [[ -d stores/${STORES[0]} ]] || fail "there is no crate in stores/"
}

# test_files: every test target of the workspace, by its main file.
test_files() {
    local path
    for path in {,benches/,loom-tests/,crates/*/,stores/*/,examples/blocking/}tests/{*,*/main}.rs; do
        [[ ! -f $path ]] || printf '%s\n' "$path"
    done
}

# test_name FILE: what cargo calls it.
test_name() {
    local path=${1%/main.rs}
    basename "$path" .rs
}

# starts_engines FILE: whether a test starts real engines. The module that does so gives it away, in any of
# the test's files.
starts_engines() {
    local files=("$1")
    [[ $1 != */main.rs ]] || mapfile -t files < <(find "${1%/main.rs}" -name '*.rs')
    # As one line without comments, since it may be one of a list of imports.
    grep -qE 'idmill_testing::(\{([^;]*[ ,{])?)?engines([^a-z0-9_]|$)' \
        <<<"$(sed 's,//.*,,' "${files[@]}" | tr '\n' ' ')"
}

# has_browser_in FILE: whether a test has a browser. The library that tells it what to do gives it away.
has_browser_in() {
    grep -qrE '(^|[^a-z0-9_])thirtyfour::' "${1%/main.rs}"
}

# Tests that compute for minutes where they are not optimised. The step `sim` runs them, with assertions.
COMPUTING=(simulation simulation_tiers simulation_cache simulation_guard tails reserves million)

# The packages that `sim` and `crash` test. Each names all of them: that decides which features the other
# crates are built with, and so the second step finds most of its build done.
OPTIMISED=(-p idmill -p idmill-cli)

# Our own code optimised, yet with its assertions, that which tests share included. The other crates are those
# of any release build.
ASSERTED=()
for package in idmill idmill-any idmill-conformance idmill-memcached idmill-sql idmill-sqlite idmill-testing; do
    ASSERTED+=(
        --config "profile.release.package.$package.debug-assertions=true"
        --config "profile.release.package.$package.overflow-checks=true"
    )
done
unset package

# sort_tests: sets CONFORMANCE, ENGINES, BROWSERS and PLAIN to the names of the test targets that the steps
# conformance, engines, page and test run. All others are in COMPUTING.
sort_tests() {
    local file name names=() need=()
    CONFORMANCE=() ENGINES=() BROWSERS=() PLAIN=()
    for file in $(test_files); do
        name=$(test_name "$file")
        names+=("$name")
        if [[ $name == *_conformance ]]; then
            CONFORMANCE+=("$name")
            ! starts_engines "$file" || need+=("${name%_conformance}")
        elif starts_engines "$file"; then
            ENGINES+=("$name")
        elif has_browser_in "$file"; then
            BROWSERS+=("$name")
        elif ! among "$name" "${COMPUTING[@]}"; then
            PLAIN+=("$name")
        fi
    done
    check_names "${names[@]}"
    check_stores "${need[@]}"
}

# check_names NAME…: a target that none of the patterns above finds would never run, and nobody would know.
check_names() {
    local name odd
    odd=$(comm -3 <(cargo_tests | sort) <(printf '%s\n' "$@" | sort) | tr -d '\t')
    [[ -z $odd ]] || fail "test targets that only cargo or only ci/lib.sh finds: ${odd//$'\n'/ }"
    odd=$(printf '%s\n' "$@" | sort | uniq -d)
    [[ -z $odd ]] || fail "names of more than one test target, which no step can tell apart: ${odd//$'\n'/ }"
    for name in "${COMPUTING[@]}"; do
        among "$name" "$@" || fail "there is no test target $name, which ci/lib.sh calls COMPUTING"
    done
}

# cargo_tests: the names of all test targets of the workspace, as cargo finds them.
cargo_tests() {
    cargo metadata --no-deps --format-version 1 |
        grep -oE '"kind":\["test"\],"crate_types":\["bin"\],"name":"[^"]*"' | sed -E 's/.*:"([^"]*)"/\1/'
}

# check_stores NAME…: each store has its suite; those named, which have an engine, a test of that name too.
check_stores() {
    local name
    find_stores
    for name in "${STORES[@]}"; do
        among "${name}_conformance" "${CONFORMANCE[@]}" || fail "stores/$name has no ${name}_conformance"
    done
    (($# > 0)) || fail "no suite starts an engine"
    for name in "$@"; do
        among "$name" "${ENGINES[@]}" || fail "${name}_conformance starts an engine, and no test $name does"
    done
}

# find_features MANIFEST…: sets FEATURES to those that the first one declares that is there, without `default`.
find_features() {
    while [[ ! -f $1 ]]; do
        (($# > 1)) || fail "there is no $1"
        shift
    done
    mapfile -t FEATURES < <(
        awk '/^\[/ { on = /^\[features\]/ } on && /^[a-z][a-z0-9_-]* *=/ && $1 != "default" { print $1 }' "$1"
    )
}

# The oldest Rust that Cargo.toml promises.
oldest_rust() {
    local version
    version=$(sed -n 's/^rust-version = "\([0-9.]*\)".*/\1/p' Cargo.toml)
    [[ -n $version ]] || fail "Cargo.toml states no rust-version"
    printf '%s\n' "$version"
}

# use_oldest: sets OLDEST to the cargo of the oldest Rust. All steps that only check use it, and so share what
# they check of three hundred other crates; and a new Rust brings no new lints. Where it cannot be had, the
# lint clippy::incompatible_msrv of this one has to do, which looks at uses of the standard library alone.
use_oldest() {
    local version
    version=$(oldest_rust)
    OLDEST=(cargo)
    if has_toolchain "$version" cargo-clippy --component clippy; then
        OLDEST+=("+$version")
    else
        printf 'NOTE: Rust %s cannot be had here; %s is used\n' "$version" "$(rustc --version)" >&2
    fi
}

# has_toolchain NAME PROGRAM OPTION…: whether it has PROGRAM; installs it with these options where it may.
has_toolchain() {
    command -v rustup >/dev/null || return 1
    rustup run "$1" "$2" --version >/dev/null 2>&1 ||
        run rustup toolchain install "$1" --profile minimal "${@:3}"
}

host_triple() {
    rustc -vV | sed -n 's/^host: //p'
}

need_rustup() {
    command -v rustup >/dev/null || skip "rustup is missing: see https://rustup.rs"
}

# need_nightly [COMPONENT…]: components by the name that rustup lists them under.
need_nightly() {
    local component installed
    need_rustup
    has_toolchain "$NIGHTLY" rustc ||
        skip "no nightly toolchain: rustup toolchain install $NIGHTLY --profile minimal"
    installed=$(rustup component list --toolchain "$NIGHTLY" --installed)
    for component in "$@"; do
        grep -qE "^$component(-|$)" <<<"$installed" ||
            run rustup component add "$component" --toolchain "$NIGHTLY" ||
            skip "no $component: rustup component add $component --toolchain $NIGHTLY" \
                "(IDMILL_NIGHTLY names another)"
    done
}

# need_tool CRATE VERSION: puts a pinned cargo subcommand on PATH, installing it on first use.
# A directory for each version: an upgrade here never runs the old binary of a warm cache.
need_tool() {
    local home=$TOOLS/$1-$2
    if [[ ! -x $home/bin/$1 ]]; then
        # Not optimised: compiling one so takes minutes, and what it does here seconds.
        CARGO_PROFILE_DEV_DEBUG=false run cargo install --debug --locked --root "$home" "$1@$2" ||
            skip "no $1: cargo install --locked --root $home $1@$2"
    fi
    PATH=$home/bin:$PATH
}
