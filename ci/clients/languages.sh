# shellcheck shell=bash
# The examples in examples/clients, each in its language: what it needs, and how it runs. Sourced by the step.
# All is built in WORK, and what was downloaded stays in PACKAGES, as Go and Maven keep theirs in places of their own.

PACKAGES=${IDMILL_PACKAGES:-${XDG_CACHE_HOME:-$HOME/.cache}/idmill/clients}
LANGUAGES=(python node java go shell)

# The programs that each needs, and the system's packages that have them.
declare -A PROGRAMS=([python]=python3 [node]=npm [java]='javac mvn jshell' [go]=go [shell]='curl redis-cli')
declare -A SYSTEM=([python]='python3 python3-pip' [node]='nodejs npm' [java]='default-jdk-headless maven'
    [go]=golang-go [shell]='curl redis-tools')

# has LANGUAGE: whether its programs are here; installs them where it may.
has() {
    local program packages
    for program in ${PROGRAMS[$1]}; do
        read -ra packages <<<"${SYSTEM[$1]}"
        command -v "$program" >/dev/null || (source ci/engines/lib.sh && try_apt "${packages[@]}") || return 1
    done
}

# packages LANGUAGE LOCK: where the packages that this lock file names are kept.
packages() {
    printf '%s/%s-%s' "$PACKAGES" "$1" "$(sha256sum <"$2" | cut -c 1-16)"
}

# complete DIRECTORY COMMAND…: makes it by COMMAND, whose last argument is to be a directory, unless it is there.
# Beside its place first, so that half of it is never found.
complete() {
    [[ ! -d $1 ]] || return 0
    mkdir -p "$(dirname "$1")"
    run "${@:2}" "$1.$$" && mv "$1.$$" "$1"
}

prepare_python() {
    local lock=examples/clients/python/requirements.txt
    complete "$(packages python $lock)" python3 -m pip install --quiet --root-user-action ignore --require-hashes \
        --requirement "$lock" --target
    ln -sfn "$(packages python $lock)" "$WORK/python"
    PYTHONPYCACHEPREFIX=$WORK/pycache python3 -m py_compile examples/clients/python/*.py
}

run_python() {
    PYTHONPATH=$WORK/python PYTHONDONTWRITEBYTECODE=1 within 2 python3 examples/clients/python/main.py "$@"
}

# Node looks for packages beside the sources.
prepare_node() {
    local file
    cp -r examples/clients/node "$WORK/"
    complete "$(packages node examples/clients/node/package-lock.json)" install_node
    ln -sfn "$(packages node examples/clients/node/package-lock.json)/node_modules" "$WORK/node/node_modules"
    for file in "$WORK"/node/*.js; do
        node --check "$file"
    done
}

install_node() {
    mkdir "$1"
    cp examples/clients/node/package*.json "$1"
    npm ci --silent --no-audit --no-fund --prefix "$1"
}

run_node() {
    within 2 node "$WORK/node/main.js" "$@"
}

prepare_java() {
    cp -r examples/clients/java "$WORK/"
    run mvn --quiet -Dstyle.color=never --batch-mode --file "$WORK/java/pom.xml" compile dependency:copy-dependencies
}

run_java() {
    local trust=()
    [[ -z ${IDS_TRUST:-} ]] || trust=("-Djavax.net.ssl.trustStore=$IDS_TRUST" -Djavax.net.ssl.trustStorePassword=changeit)
    within 2 java -XX:TieredStopAtLevel=1 "${trust[@]}" -cp "$WORK/java/target/classes:$WORK/java/target/dependency/*" Main "$@"
}

prepare_go() {
    [[ -z $(gofmt -l examples/clients/go) ]] || fail "gofmt would change $(gofmt -l examples/clients/go | xargs)"
    (cd examples/clients/go && run go vet ./... && run go build -mod=readonly -o "$WORK/go" .)
}

run_go() {
    within 2 "$WORK/go" "$@"
}

prepare_shell() {
    bash -n examples/clients/shell/idmill.sh
}

run_shell() {
    within 2 examples/clients/shell/main.sh "$@"
}

# What the README of the project shows for each, where its server listens at another port: as it stands, but for
# what any program in Go has around it.
snippet_python() {
    PYTHONPATH=$WORK/python PYTHONDONTWRITEBYTECODE=1 python3 -
}

snippet_javascript() {
    cat >"$WORK/node/snippet.js"
    node "$WORK/node/snippet.js"
}

snippet_java() {
    jshell --class-path "$(printf '%s:' "$WORK"/java/target/dependency/*.jar)" -
}

snippet_go() {
    local dir=$WORK/snippet
    mkdir -p "$dir"
    cp examples/clients/go/go.{mod,sum} "$dir"
    {
        printf 'package main\nimport ("context"; "fmt"; "github.com/redis/go-redis/v9")\nfunc main() {\nctx := context.Background()\n'
        cat
        printf '}\n'
    } >"$dir/main.go"
    (cd "$dir" && go run -mod=readonly .)
}
