# shellcheck shell=bash
# Ids from idmill in scripts, with curl or redis-cli. Source this file, do not run it.
#
#   IDMILL_HTTP     servers, between commas: http://… or https://…
#   IDMILL_SERVERS  the same for redis-cli: redis://… or rediss://…
#   IDMILL_TOKEN    a token, if they require one
#
# Transient errors and lost replies are retried: ids are never handed out twice, so the ids of a lost reply become a
# gap. Each function returns 75 (EX_TEMPFAIL) if all attempts fail, and 1 after a permanent error: a missing or
# exhausted sequence, or a wrong token.

# ids_http NAME [N]: ids, one a line, from the first server that answers. NAME must be percent-encoded.
ids_http() {
    local server url answer retries
    # curl reads the token from standard input: other users can see its command line.
    local config=${IDMILL_TOKEN:+header = \"Authorization: Bearer $IDMILL_TOKEN\"}
    # Longer than the server's --timeout (5 s), after which it returns 503.
    local curl=(curl --silent --show-error --fail-with-body --max-time 7 --request POST --config -)
    curl+=(--retry-max-time 5 --retry-connrefused)
    # First each server once. In the second round curl retries, with growing pauses or after Retry-After.
    for retries in 0 4; do
        for server in ${IDMILL_HTTP//,/ }; do
            url=$server/v1/sequences/$1/ids?n=${2:-1}
            if answer=$("${curl[@]}" --retry "$retries" "$url" <<<"$config"); then
                # Numbers, and strings beyond 2^53: {"sequence":"orders","ids":[1,"9007199254740993"]}
                sed 's/.*"ids":\[//; s/\].*//; s/"//g' <<<"$answer" | tr ',' '\n'
                return
            fi
            # An error of the server (RFC 9457). Its `outcome` decides whether to retry.
            [[ -z $answer ]] || printf '%s\n' "$answer" >&2
            [[ $answer != *'"outcome":"permanent"'* ]] || return 1
        done
    done
    return 75
}

# ids_redis WORD…: the numbers that a command returns, such as `INCR orders`, from the first server that answers.
ids_redis() {
    local server answer timeout=() pause=1 round
    # Transient errors: the store is unreachable, its reply was lost, or the server is shutting down, full, unreachable
    # or too slow.
    local again='TRYAGAIN|UNKNOWN|CLOSED|ERR max number of clients|Could not connect|Error: |no answer'
    # redis-cli reads the token from the environment, for the same reason.
    [[ -z ${IDMILL_TOKEN:-} ]] || local -x REDISCLI_AUTH=$IDMILL_TOKEN
    ! command -v timeout >/dev/null || timeout=(timeout 7)
    for round in 1 2 3 4 5; do
        for server in ${IDMILL_SERVERS//,/ }; do
            answer=$("${timeout[@]}" redis-cli -e -u "$server" "$@" 2>&1) || [[ -n $answer ]] || answer='no answer'
            if [[ $answer != *[!0-9$'\n']* ]]; then
                printf '%s\n' "$answer"
                return
            fi
            printf '%s\n' "$answer" >&2
            [[ $answer =~ $again ]] || return 1
        done
        # Random, so that scripts do not all retry at the same time when a server is reachable again.
        ((round == 5)) || sleep "$pause.$((RANDOM % 10))"
        pause=$((pause * 2))
    done
    return 75
}

# ids_many NAME N: increasing ids, over one connection.
ids_many() {
    ids_redis -r "$2" INCR "$1"
}

# ids_block NAME N: consecutive ids. The reply to INCRBY is the last of them.
ids_block() {
    local last
    last=$(ids_redis INCRBY "$1" "$2") || return
    seq "$((last - $2 + 1))" "$last"
}

# ids_take NAME N: ids in as few ranges as possible. Unlike ids_block, it skips no ids.
ids_take() {
    local ends first last
    ends=$(ids_redis IDMILL.TAKE "$1" "$2") || return
    while read -r first && read -r last; do
        seq "$first" "$last"
    done <<<"$ends"
}
