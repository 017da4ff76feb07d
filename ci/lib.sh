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

# What a step hands to ci/test, a line each: `passed N`, `failed N`, `ignored N`, `reason WHY-SKIPPED`, `failure TEXT`
# (shown again in the summary), `slow SECONDS WHAT`. The conformance suite writes to it by itself, between tabs:
# engine STORE ENGINE-AND-VERSION SECONDS TRIALS-RUN TRIALS-SKIPPED WHY
REPORT=${IDMILL_CI_REPORT:-/dev/null}

# What the step itself says.
LOG=$TARGET/ci/$(basename "$0").log
mkdir -p "$TARGET/ci"

mapfile -t STORES < <(ls stores)

# macOS has no timeout(1): there a hang stays one.
command -v timeout >/dev/null || timeout() { "${@:3}"; }

# The command and the variables that steer it go to the output: they can be copied and run by hand.
run() {
    printf '+ %s%s\n' "$(env | sed -nE "s/^((RUST|RUSTDOC|MIRI)FLAGS|CARGO_TARGET_DIR|IDMILL_[A-Z]+_(SEEDS?|ROUNDS|SECONDS))=(.+)/\1='\4'/p" |
        tr '\n' ' ')" "$*" >&2
    "$@"
}

report() {
    printf '%s %s\n' "$1" "$2" >>"$REPORT"
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

# among WORD WORD…: whether the first word is one of the others.
among() {
    [[ " ${*:2} " == *" $1 "* ]]
}

# logged COMMAND…: shows its output, keeps it in LOG, answers with its status.
logged() {
    run "$@" 2>&1 | tee "$LOG"
}

# tests COMMAND…: a `cargo test` command that has to run at least one test, or the same ones TIMES times.
tests() {
    local status=0
    logged "$@" || status=$?
    judge_tests "$LOG" "$status"
}

# sum_results 1|3|5 FILE: adds up what cargo test says of passed, failed or ignored tests.
# Not tied to the line: under Miri several seeds run at once and write over each other's lines.
sum_results() {
    { grep -oE '[0-9]+ passed; [0-9]+ failed; [0-9]+ ignored;' "$2" || true; } | awk -v field="$1" '{ sum += $field } END { print sum + 0 }'
}

# judge_tests FILE STATUS: reports what cargo test says in FILE: counts, failures, how long each executable took.
# It is content with no test at all, for instance when a filter or a cfg has hidden them; this is not.
judge_tests() {
    local passed failed times=${TIMES:-1}
    passed=$(sum_results 1 "$1")
    failed=$(sum_results 3 "$1")
    report passed $((passed / times))
    report failed $(((failed + times - 1) / times))
    report ignored $(($(sum_results 5 "$1") / times))
    awk '/^ *Running / { name = $NF; gsub(/.*\/|-[0-9a-f]+\)$/, "", name) }
         /^test result: .* finished in / { sub(/s$/, "", $NF); if ($NF > 1) print "slow " $NF " " name }' "$1" >>"$REPORT"
    (($2 == 0)) || { report_failures "$1" && fail "exit status $2"; }
    ((passed > 0)) || fail "no test ran"
    ((passed % times == 0)) || fail "$passed passed, which is not the same tests $times times"
}

# report_failures FILE [PATTERN]: the lines of FILE that tell what failed, for the summary, since who looks after a
# long run may have been left no more than its end. Without PATTERN, what cargo test says of each test that failed.
report_failures() {
    awk -v pattern="${2:-}" '
        /^failures:$/ { on = 1 }
        /^test result:/ { on = 0 }
        /^ +([0-9]+:|at) / { next } # of a backtrace
        (pattern == "" ? on && NF : $0 ~ pattern) && shown++ < 80 { print "failure " substr($0, 1, 400) }' "$1" >>"$REPORT"
}

# verdicts GOOD BAD COMMAND…: one that prints a line for each thing that it tries, which is like GOOD or like BAD.
verdicts() {
    local status=0 good bad
    logged "${@:3}" || status=$?
    good=$(grep -cE "$1" "$LOG" || true)
    bad=$(grep -cE "$2" "$LOG" || true)
    report passed "$good"
    report failed "$bad"
    report_failures "$LOG" "$2"
    ((status == 0 && bad == 0)) || fail "exit status $status, and $bad lines like $2"
    ((good > 0)) || fail "no line like $1: nothing was tried"
}

# at_once N COMMAND ARGUMENT…: runs `COMMAND ARGUMENT` for each of the arguments, N at a time; all have to succeed.
at_once() {
    local most=$1 command=$2 argument failures=0
    shift 2
    for argument in "$@"; do
        (($(jobs -rp | wc -l) < most)) || wait -n || failures=$((failures + 1))
        "$command" "$argument" &
    done
    while (($(jobs -p | wc -l) > 0)); do
        wait -n || failures=$((failures + 1))
    done
    ((failures == 0)) || fail "$failures times $command failed"
}

# within MINUTES COMMAND…: in a shell of its own; ends it after that time, with all that it started, and says so in the summary.
within() {
    local child status=0
    timeout --kill-after=10 "$1m" "${@:2}" &
    child=$!
    # timeout moves it to a process group of its own, which a signal to this one does not reach.
    # shellcheck disable=SC2064 # the process as it is called now
    trap "kill $child" TERM INT
    wait "$child" || status=$?
    ((status != 124)) || report failure "not done in $1 minutes: ${*:2}"
    return "$status"
}

# write_to_memory: has the databases of the tests stand in memory, where there is room. They sync thousands of
# times, which is slow on some disks, and what is left after a SIGKILL is the same. TMPDIR names another place.
write_to_memory() {
    local kib
    kib=$(df -kP /dev/shm 2>/dev/null | awk 'NR == 2 { print $4 }') || true
    [[ -z ${TMPDIR:-} ]] && ((${kib:-0} > 8 * 1024 * 1024)) || return 0
    TMPDIR=$(mktemp -d /dev/shm/idmill.XXXXXX)
    export TMPDIR
    # Some engines run as a user of their own.
    chmod 711 "$TMPDIR"
    trap 'rm -rf "$TMPDIR"' EXIT
}

# Which cargo commands build the same: the workspace's tests, and what `sim` and `crash` test. Our own code is optimised
# there, yet with its assertions; each of both steps names both packages, which decides features of other crates.
WORKSPACE=(cargo test --locked --workspace --all-features)
OPTIMISED=(cargo test --locked --release --config ci/asserted.toml -p idmill -p idmill-cli)

# Tests that compute for minutes where they are not optimised. The step `sim` runs them, with assertions.
COMPUTING=(simulation simulation_tiers simulation_cache simulation_guard tails reserves million)

# uses FILE PATTERN: whether a test does, in any of its files: as one line without comments, since it may be one of a
# list of imports.
uses() {
    grep -qE "$2" <<<"$(find "${1%/main.rs}" -name '*.rs' -exec sed 's,//.*,,' {} + | tr '\n' ' ')"
}

# sort_tests: sets CONFORMANCE, ENGINES, BROWSERS and PLAIN to the options that name the test targets of the steps
# conformance, engines, page and test. All others are in COMPUTING. What starts real engines, or a browser, is known by
# the library that does so.
sort_tests() {
    local name file need=() engines='idmill_testing::(\{([^;]*[ ,{])?)?engines([^a-z0-9_]|$)'
    CONFORMANCE=() ENGINES=() BROWSERS=() PLAIN=()
    while IFS='"' read -r name file; do
        ! among "$name" "${COMPUTING[@]}" || continue
        if [[ $name == *_conformance ]]; then
            CONFORMANCE+=("$name")
            ! uses "$file" "$engines" || need+=("${name%_conformance}")
        elif uses "$file" "$engines"; then
            ENGINES+=("$name")
        elif uses "$file" '(^|[^a-z0-9_])thirtyfour::'; then
            BROWSERS+=("$name")
        else
            PLAIN+=("$name")
        fi
    done < <(cargo metadata --no-deps --format-version 1 |
        grep -oE '"kind":\["test"\],"crate_types":\["bin"\],"name":"[^"]*","src_path":"[^"]*"' | sed -E 's/.*"name":"(.*)","src_path":"(.*)"/\1"\2/')
    ((${#need[@]} > 0)) || fail "no suite starts an engine"
    for name in "${STORES[@]}"; do
        among "${name}_conformance" "${CONFORMANCE[@]}" || fail "stores/$name has no ${name}_conformance"
    done
    for name in "${need[@]}"; do
        among "$name" "${ENGINES[@]}" || fail "${name}_conformance starts an engine, and no test $name does"
    done
    mapfile -t CONFORMANCE < <(quick "${CONFORMANCE[@]}")
    mapfile -t ENGINES < <(quick "${ENGINES[@]}")
}

# quick NAME…: those of the stores in IDMILL_QUICK_STORES, where it is set.
quick() {
    printf '%s\n' "$@" | grep -xE "(${IDMILL_QUICK_STORES:-.*})(_conformance)?"
}

# first "NAME NAME…" NAME…: the names, those in front that the first argument has too.
first() {
    printf '%s\n' "${@:2}" | grep -xE "${1// /|}" || true
    printf '%s\n' "${@:2}" | grep -vxE "${1// /|}" || true
}

# features MANIFEST: those that it declares, without `default`.
features() {
    awk '/^\[/ { on = /^\[features\]/ } on && /^[a-z][a-z0-9_-]* *=/ && $1 != "default" { print $1 }' "$1"
}

# published [DIRECTORY…]: the manifests of the workspace's crates, and those in DIRECTORY, that are published.
published() {
    printf '%s\n' . crates/* stores/* "$@" | sed 's,$,/Cargo.toml,' | xargs grep -L '^publish = false'
}

# names: of the packages whose manifests are read.
names() {
    xargs grep -hm 1 '^name = ' | cut -d '"' -f 2
}

# use_oldest: sets OLDEST to the cargo of the oldest Rust. All steps that only check use it, and so share what
# they check of three hundred other crates; and a new Rust brings no new lints. Where it cannot be had, the
# lint clippy::incompatible_msrv of this one has to do, which looks at uses of the standard library alone.
use_oldest() {
    local version
    version=$(sed -n 's/^rust-version = "\([0-9.]*\)".*/\1/p' Cargo.toml)
    [[ -n $version ]] || fail "Cargo.toml states no rust-version"
    OLDEST=(cargo "+$version")
    has_toolchain "$version" cargo-clippy --component clippy || {
        OLDEST=(cargo)
        printf 'NOTE: Rust %s cannot be had here; %s is used\n' "$version" "$(rustc --version)" >&2
    }
}

# lint OPTION…
lint() {
    run "${OLDEST[@]}" clippy --locked "$@" -- -D warnings
}

# has_toolchain NAME PROGRAM OPTION…: whether it has PROGRAM; installs it with these options where it may.
has_toolchain() {
    command -v rustup >/dev/null || return 1
    rustup run "$1" "$2" --version >/dev/null 2>&1 || run rustup toolchain install "$1" --profile minimal "${@:3}"
}

# need_nightly [COMPONENT…]: components by the name that rustup lists them under.
need_nightly() {
    local component
    has_toolchain "$NIGHTLY" rustc ||
        skip "no nightly toolchain: rustup (see https://rustup.rs) toolchain install $NIGHTLY --profile minimal"
    for component in "$@"; do
        rustup component list --toolchain "$NIGHTLY" --installed | grep -E "^$component(-|$)" >/dev/null ||
            run rustup component add "$component" --toolchain "$NIGHTLY" ||
            skip "no $component: rustup component add $component --toolchain $NIGHTLY (IDMILL_NIGHTLY names another)"
    done
}

# need_tool CRATE VERSION: puts a pinned cargo subcommand on PATH, installing it on first use.
# A directory for each version: an upgrade here never runs the old binary of a warm cache.
need_tool() {
    local home=$TOOLS/$1-$2
    # Not optimised: compiling one so takes minutes, and what it does here seconds.
    [[ -x $home/bin/$1 ]] || CARGO_PROFILE_DEV_DEBUG=false run cargo install --debug --locked --root "$home" "$1@$2" ||
        skip "no $1: cargo install --locked --root $home $1@$2"
    PATH=$home/bin:$PATH
}

# format OPTION…: the sources of all workspaces.
format() {
    local manifest
    run cargo fmt --all "$@"
    for manifest in {fuzz,benches/without,adapters/*,examples/axum/*}/Cargo.toml; do
        run cargo fmt "$@" --manifest-path "$manifest"
    done
}

# has PROGRAM PACKAGE…: whether it is there; installs the system's packages that have it where it may.
has() {
    command -v "$1" >/dev/null || (source ci/engines/lib.sh && try_apt "${@:2}")
}

need() {
    has "$@" || skip "$1 is missing: apt-get install ${*:2}"
}

# public_api: prints the public items of package idmill, without what is derived or the same for every type.
public_api() {
    need_nightly
    need_tool cargo-public-api 0.52.0
    run cargo "+$NIGHTLY" public-api -p idmill --all-features -sss --color never --target-dir "$TARGET/api"
}
