# shellcheck shell=bash
# Ids from idmill in scripts, by curl or by redis-cli as they are. Sourced, never run.
#
#   IDMILL_HTTP     servers, between commas: http://… or https://…
#   IDMILL_SERVERS  the same for redis-cli: redis://… or rediss://…
#   IDMILL_TOKEN    a token, if they ask for one
#
# What is told to try again, or not answered, is simply asked again: ids are never handed out twice, so those of a
# lost answer are a gap. Each function returns 75 (EX_TEMPFAIL) if nobody answered for some time, and 1 for what
# stays until somebody changes something: no such sequence, an exhausted one, a wrong token.

# ids_http NAME [N]: ids, one a line, from the first server that answers. NAME is as a URL has it.
ids_http() {
    local server url answer retries
    # The token from standard input, since anybody may read a command line.
    local config=${IDMILL_TOKEN:+header = \"Authorization: Bearer $IDMILL_TOKEN\"}
    # Beyond the server's --patience (5 s), after which it answers 503.
    local curl=(curl --silent --show-error --fail-with-body --max-time 7 --request POST --config -)
    curl+=(--retry-max-time 5 --retry-connrefused)
    # First each in turn. Then curl waits, longer and longer, or as long as Retry-After says.
    for retries in 0 4; do
        for server in ${IDMILL_HTTP//,/ }; do
            url=$server/v1/sequences/$1/ids?n=${2:-1}
            if answer=$("${curl[@]}" --retry "$retries" "$url" <<<"$config"); then
                # Numbers, and strings beyond 2^53: {"sequence":"orders","ids":[1,"9007199254740993"]}
                sed 's/.*"ids":\[//; s/\].*//; s/"//g' <<<"$answer" | tr ',' '\n'
                return
            fi
            # What the server says, as RFC 9457 has it: `outcome` is whether to try again.
            [[ -z $answer ]] || printf '%s\n' "$answer" >&2
            [[ $answer != *'"outcome":"permanent"'* ]] || return 1
        done
    done
    return 75
}

# ids_redis WORD…: the numbers that a command answers, such as `INCR orders`, from the first server that does.
ids_redis() {
    local server answer patience=() pause=1 round
    # The store is away, its answer was lost, the server ends, or is full, or does not answer.
    local again='TRYAGAIN|UNKNOWN|CLOSED|ERR max number of clients|Could not connect|Error: |no answer'
    # Not on the command line either.
    [[ -z ${IDMILL_TOKEN:-} ]] || local -x REDISCLI_AUTH=$IDMILL_TOKEN
    ! command -v timeout >/dev/null || patience=(timeout 7)
    for round in 1 2 3 4 5; do
        for server in ${IDMILL_SERVERS//,/ }; do
            answer=$("${patience[@]}" redis-cli -e -u "$server" "$@" 2>&1) || [[ -n $answer ]] || answer='no answer'
            if [[ $answer != *[!0-9$'\n']* ]]; then
                printf '%s\n' "$answer"
                return
            fi
            printf '%s\n' "$answer" >&2
            [[ $answer =~ $again ]] || return 1
        done
        # Not all scripts at the same time, when a server is back.
        ((round == 5)) || sleep "$pause.$((RANDOM % 10))"
        pause=$((pause * 2))
    done
    return 75
}

# ids_many NAME N: ids that grow, over one connection.
ids_many() {
    ids_redis -r "$2" INCR "$1"
}

# ids_block NAME N: ids in a row. The answer to INCRBY is the last of them.
ids_block() {
    local last
    last=$(ids_redis INCRBY "$1" "$2") || return
    seq "$((last - $2 + 1))" "$last"
}

# ids_take NAME N: ids in as few ranges as possible. Unlike ids_block, this skips nothing.
ids_take() {
    local ends first last
    ends=$(ids_redis IDMILL.TAKE "$1" "$2") || return
    while read -r first && read -r last; do
        seq "$first" "$last"
    done <<<"$ends"
}
