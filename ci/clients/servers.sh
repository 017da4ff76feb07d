# shellcheck shell=bash
# Servers that the step `clients` starts, kills and starts again. Sourced by it.
# They listen at an address that nobody connects from: so no client takes the port of one that was killed.

HOST=127.0.0.2
declare -A PROCESS=() RESP=() HTTP=()

# start NAME OPTION…: a server over the store, at the address that it had before, if it had one.
start() {
    local name=$1 log=$WORK/$1.log before
    before=$(wc -l 2>/dev/null <"$log" || echo 0)
    "$IDMILL" serve --json --store "$STORE" --patience 500ms --resp "${RESP[$1]:-$HOST:0}" \
        --http "${HTTP[$1]:-$HOST:0}" "${@:2}" 2>>"$log" &
    PROCESS[$name]=$!
    # Who waits for all that is under way does not wait for a server.
    disown $!
    RESP[$name]=$(address "$log" "$before" 'Redis protocol is served')
    HTTP[$name]=$(address "$log" "$before" 'HTTP is served')
}

# address FILE LINES WHAT: the one that a line after so many says.
address() {
    local tries found
    for ((tries = 0; tries < 600; tries++)); do
        found=$(tail -n +$(($2 + 1)) "$1" | sed -nE "s/.*\"$3\".*\"address\":\"([^\"]*)\".*/\\1/p")
        [[ -z $found ]] || break
        sleep 0.1
    done
    [[ -n $found ]] || fail "a server does not start: $(tail -n 3 "$1")"
    printf '%s\n' "$found"
}

# killed NAME: as a machine that loses its power.
killed() {
    kill -KILL "${PROCESS[$1]}"
    while kill -0 "${PROCESS[$1]}" 2>/dev/null; do
        sleep 0.05
    done
    unset "PROCESS[$1]"
}

stop_all() {
    local name
    for name in "${!PROCESS[@]}"; do
        kill -KILL "${PROCESS[$name]}" 2>/dev/null || true
    done
}

# store_away SECONDS: nobody else can write to the store for so long.
store_away() {
    python3 -c 'import sqlite3, sys, time
store = sqlite3.connect(sys.argv[1], timeout=10, isolation_level=None)
store.execute("begin exclusive")
time.sleep(float(sys.argv[2]))
store.execute("rollback")' "$WORK/ids.db" "$1"
}

# certificate: one for HOST, and what clients in each language need to trust it.
certificate() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj "/CN=$HOST" \
        -addext "subjectAltName=IP:$HOST" -keyout "$WORK/key.pem" -out "$WORK/cert.pem" 2>/dev/null
    ! among java "${RUN[@]}" ||
        keytool -importcert -noprompt -alias idmill -storepass changeit -file "$WORK/cert.pem" -keystore "$WORK/trust.p12" 2>/dev/null
    export SSL_CERT_FILE=$WORK/cert.pem NODE_EXTRA_CA_CERTS=$WORK/cert.pem CURL_CA_BUNDLE=$WORK/cert.pem
    export IDS_TRUST=$WORK/trust.p12
}

# token NAME SEQUENCE: prints one, and lets the servers know it.
token() {
    "$IDMILL" token "$1" --right draw --sequence "$2" >"$WORK/token"
    sed '1,/^# for the file/d' "$WORK/token" >>"$WORK/tokens.toml"
    sed -n 2p "$WORK/token"
}
