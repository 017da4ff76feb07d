#!/usr/bin/env bash
# Draws ids from the command line; see ../README.md.
set -euo pipefail
# shellcheck source=examples/clients/shell/idmill.sh
source "$(dirname "${BASH_SOURCE[0]}")/idmill.sh"

export IDMILL_SERVERS=${IDMILL_SERVERS:-redis://localhost:7380} IDMILL_HTTP=${IDMILL_HTTP:-http://localhost:7381}

# record NAME SECONDS: draws in every way until the time is over, and prints each id or range with the way.
record() {
    while ((SECONDS < $2)); do
        ids_many "$1" 10 | sed 's/.*/many & &/'
        ids_http "$1" 10 | sed 's/.*/http & &/'
        ids_take "$1" 10 | sed 's/.*/take & &/'
        ids_block "$1" 10 | sed -n '1 { s/^/block /; h }; $ { H; g; s/\n/ /p }'
    done
}

case ${1:-next} in
    next) ids_redis INCR "${2:-orders}" ;;
    many | block | take | http) "ids_$1" "$2" "${3:-1}" ;;
    record) record "$2" "$3" ;;
    *) printf 'usage: %s next|many|block|take|http|record NAME [N]\n' "$0" >&2 && exit 2 ;;
esac
