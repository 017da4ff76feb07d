# shellcheck shell=bash
# How etcd is run, whichever it is. Sourced by its scripts, which define `fetch`, and `binary`: where it is.
# A member is told what to do differently by etcd's own environment variables: ETCD_QUOTA_BACKEND_BYTES and
# others. With DIR/server.pem and DIR/key.pem it speaks TLS.
# shellcheck disable=SC2034 # for lib.sh
MORE=' [N SIZE] | address PORT N'
# shellcheck source=ci/engines/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# address PORT N: where member N of a cluster listens. A prefix of its own for every PORT.
address() {
    printf '127.%d.%d.%d\n' $(($1 >> 8)) $(($1 & 255)) "$2"
}

# etcd has to know its peers' ports beforehand, so members share PORT and differ in their addresses. One that
# is alone has no peers: it listens for them at a port that the system chooses, and what it says of it is of
# no consequence.
serve() {
    local dir=$1 port=$2 n=${3:-1} size=${4:-1} scheme=http host=127.0.0.1 cluster='' listen member tls=()
    if [[ -f $dir/server.pem ]]; then
        scheme=https
        tls=(--cert-file "$dir/server.pem" --key-file "$dir/key.pem")
    fi
    listen=http://127.0.0.1:0
    cluster=m1=http://127.0.0.1:$port
    if ((size > 1)); then
        host=$(address "$port" "$n")
        listen=http://$(address "$port" $((100 + n))):$port
        cluster=$(for ((member = 1; member <= size; member++)); do
            printf 'm%d=http://%s:%d,' "$member" "$(address "$port" $((100 + member)))" "$port"
        done)
    fi
    # Debian's unit sets more of these; ours are the arguments alone, and those of the caller.
    unset ETCD_NAME ETCD_DATA_DIR ETCD_LISTEN_CLIENT_URLS
    exec "$(binary)" --name "m$n" --data-dir "$dir/data" --listen-client-urls "$scheme://$host:$port" \
        --advertise-client-urls "$scheme://$host:$port" --listen-peer-urls "$listen" \
        --initial-advertise-peer-urls "$(own "$cluster" "$n")" --initial-cluster "${cluster%,}" "${tls[@]}"
}

# own CLUSTER N: the URL of member N.
own() {
    tr ',' '\n' <<<"$1" | sed -n "s/^m$2=//p"
}

etcd() {
    case ${1:-} in
        fetch) fetch ;;
        version) "$(binary)" --version | sed -n 's/^etcd Version: /etcd /p' ;;
        serve) serve "${@:2}" ;;
        address) address "$2" "$3" ;;
        *) usage ;;
    esac
}
