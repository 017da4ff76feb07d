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
    for name in RUSTFLAGS RUSTDOCFLAGS MIRIFLAGS IDMILL_SIM_SEEDS IDMILL_SIM_SEED IDMILL_STRESS_ROUNDS IDMILL_CRASH_ROUNDS CARGO_TARGET_DIR; do
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

# report passed|failed|ignored N, reason|failure TEXT, or slow "SECONDS WHAT": handed to ci/test, dropped when a step runs
# alone. The conformance suite writes to the same file by itself, with a line for each store, its words between tabs:
# engine STORE ENGINE-AND-VERSION SECONDS TRIALS-RUN TRIALS-SKIPPED WHY
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
         /^test result: .* finished in / { sub(/s$/, "", $NF); if ($NF > 1) print "slow " $NF " " name }' "$1" \
        >>"${IDMILL_CI_REPORT:-/dev/null}"
}

# at_once N COMMAND ARGUMENT…: runs `COMMAND ARGUMENT` for each of the arguments, N at a time. Sets FAILURES to how many failed.
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

# within MINUTES COMMAND…: ends it after so long, with all that it started. macOS has no timeout(1): there it is waited for.
within() {
    local child status=0
    command -v timeout >/dev/null || {
        "${@:2}"
        return
    }
    timeout --kill-after=10 "$1m" "${@:2}" &
    child=$!
    # It has a process group of its own, which a signal to ours does not reach.
    # shellcheck disable=SC2064 # the process as it is called now
    trap "kill $child" TERM INT
    wait "$child" || status=$?
    trap - TERM INT
    return "$status"
}

# others "NAME NAME…" NAME…: those that are not among the first.
others() {
    local name
    for name in "${@:2}"; do
        [[ " $1 " == *" $name "* ]] || printf '%s\n' "$name"
    done
}

# report_failures FILE [PATTERN]: the lines of FILE that tell what failed, for the summary: the output of a whole run is
# long, and who looks after it may have been left no more than its end. Without PATTERN, what cargo test says of each
# test that failed.
report_failures() {
    awk -v pattern="${2:-}" '
        /^failures:$/ { on = 1 }
        /^test result:/ { on = 0 }
        /^ +([0-9]+:|at) / { next } # of a backtrace
        (pattern == "" ? on && NF : $0 ~ pattern) && shown++ < 80 { print "failure " substr($0, 1, 400) }' "$1" \
        >>"${IDMILL_CI_REPORT:-/dev/null}"
}

# test_files: every test target of the workspace, by its main file.
test_files() {
    local path
    for path in tests/*.rs */tests/*.rs tests/*/main.rs; do
        [[ ! -f $path ]] || printf '%s\n' "$path"
    done
}

# Whether a test starts real engines; the module that does so gives it away.
starts_engines() {
    grep -qE '^mod engines;|^    mod engines;' "$1"
}

# Tests that compute for minutes where they are not optimised. The step `sim` runs them, with the same assertions.
COMPUTING=(simulation simulation_tiers simulation_cache tails reserves million)

# Our own code optimised, yet with its assertions. The other crates are those of any release build.
ASSERTED=(
    --config 'profile.release.package.idmill.debug-assertions=true'
    --config 'profile.release.package.idmill.overflow-checks=true'
)

# Whether a test is one of those.
computes() {
    [[ " ${COMPUTING[*]} " == *" $(test_name "$1") "* ]]
}

# test_name FILE: what cargo calls it.
test_name() {
    local path=${1%/main.rs}
    basename "$path" .rs
}

# The features of the root package other than `default`, read where they are declared.
root_features() {
    awk '/^\[/ { on = /^\[features\]/ } on && /^[a-z][a-z0-9_-]* *=/ && $1 != "default" { print $1 }' Cargo.toml
}

# The oldest Rust that Cargo.toml promises.
oldest_rust() {
    local version
    version=$(sed -n 's/^rust-version = "\([0-9.]*\)".*/\1/p' Cargo.toml)
    [[ -n $version ]] || fail "Cargo.toml states no rust-version"
    printf '%s\n' "$version"
}

# oldest COMMAND ARGUMENT…: `cargo COMMAND` with the oldest Rust. All steps that only check use it, and so share what they check of
# three hundred other crates; and a new Rust brings no new lints here. Where it cannot be had, this one's lint of newer parts of the
# standard library has to do (clippy::incompatible_msrv); that knows nothing of newer syntax, nor of crates that state a wrong rust-version.
oldest() {
    local version
    version=$(oldest_rust)
    if has_toolchain "$version"; then
        run cargo "+$version" "$@"
    else
        printf 'NOTE: Rust %s cannot be had here; %s is used\n' "$version" "$(rustc --version)" >&2
        run cargo "$@"
    fi
}

# has_toolchain VERSION: with clippy; installs it where it may.
has_toolchain() {
    command -v rustup >/dev/null || return 1
    rustup run "$1" cargo-clippy --version >/dev/null 2>&1 ||
        run rustup toolchain install "$1" --profile minimal --component clippy
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
    rustup run "$NIGHTLY" rustc --version >/dev/null 2>&1 ||
        run rustup toolchain install "$NIGHTLY" --profile minimal ||
        skip "no nightly toolchain: rustup toolchain install $NIGHTLY --profile minimal"
    installed=$(rustup component list --toolchain "$NIGHTLY" --installed)
    for component in "$@"; do
        grep -qE "^$component(-|$)" <<<"$installed" ||
            run rustup component add "$component" --toolchain "$NIGHTLY" ||
            skip "no $component: rustup component add $component --toolchain $NIGHTLY (IDMILL_NIGHTLY names another)"
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
