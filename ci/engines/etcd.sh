# shellcheck shell=bash
# Functions that `etcd` and `etcd34` share. Both scripts source this file, and define `fetch` and BINARY. A
# member reads etcd's environment variables, such as ETCD_QUOTA_BACKEND_BYTES. A member uses TLS if
# DIR/server.pem and DIR/key.pem exist.
# shellcheck source=ci/engines/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
MORE=' [N SIZE] | address PORT N'

version() { "$BINARY" --version | sed -n 's/^etcd Version: /etcd /p'; }

# A member needs the addresses of all peers when it starts, so each address is derived from PORT and N. A
# single member listens for peers on a port that the system chooses; nothing connects to it.
serve() {
    local dir=$1 port=$2 n=${3:-1} size=${4:-1} client=127.0.0.1 listen peers member scheme=http tls=()
    [[ ! -f $dir/server.pem ]] || scheme=https tls=(--cert-file "$dir/server.pem" --key-file "$dir/key.pem")
    listen=http://127.0.0.1:0 peers=(x "http://127.0.0.1:$port")
    if ((size > 1)); then
        client=$(address "$port" "$n")
        for ((member = 1; member <= size; member++)); do
            peers[member]=http://$(address "$port" $((100 + member))):$port
        done
        listen=${peers[n]}
    fi
    # Unset the variables that Debian's unit sets: etcd fails if a variable and a flag set the same option.
    # Other variables of the caller are kept.
    unset ETCD_NAME ETCD_DATA_DIR ETCD_LISTEN_CLIENT_URLS
    exec "$BINARY" --name "m$n" --data-dir "$dir/data" --listen-client-urls "$scheme://$client:$port" \
        --advertise-client-urls "$scheme://$client:$port" --listen-peer-urls "$listen" \
        --initial-advertise-peer-urls "${peers[n]}" \
        --initial-cluster "$(for ((member = 1; member <= size; member++)); do printf ',m%d=%s' "$member" "${peers[member]}"; done | cut -c 2-)" \
        "${tls[@]}"
}
