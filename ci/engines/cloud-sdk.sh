# shellcheck shell=bash
# What the emulators of the Google Cloud SDK share. Sourced by their scripts, which set:
#   TITLE      what it is called
#   COMPONENT  what follows google-cloud-cli- in the package's name
#   PLATFORM   as in `gcloud components install`, and the directory below platform/
#   JAR        the name of the jar
#   CLASS      what to run of it
set -euo pipefail

SKIPPED=77

# The SDK's root: the one whose gcloud is on PATH, or where packages and the installer put it.
find_jar() {
    local gcloud root
    gcloud=$(command -v gcloud || true)
    for root in "${CLOUDSDK_ROOT_DIR:-}" "${gcloud:+$(dirname "$(dirname "$(realpath "$gcloud")")")}" \
        /usr/lib/google-cloud-sdk /usr/lib64/google-cloud-sdk "${HOME:-/root}/google-cloud-sdk"; do
        if [[ -n $root && -f $root/platform/$PLATFORM/$JAR ]]; then
            printf '%s\n' "$root/platform/$PLATFORM/$JAR"
            return
        fi
    done
    return 1
}

# Where root may: the emulators come from Google's repository, if the machine knows it.
try_apt() {
    if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
        return 1
    fi
    apt-get -o DPkg::Lock::Timeout=300 update >&2 &&
        apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "$1" >&2
}

missing() {
    printf '%s\n' "$*" >&2
    exit "$SKIPPED"
}

fetch() {
    local package=google-cloud-cli-$COMPONENT
    find_jar >/dev/null || try_apt "$package" || true
    find_jar >/dev/null ||
        missing "the $TITLE is missing: apt-get install $package, from the repository that" \
            "https://cloud.google.com/sdk/docs/install describes, or gcloud components install $PLATFORM"
    command -v java >/dev/null || try_apt openjdk-17-jre-headless || true
    command -v java >/dev/null || missing "the $TITLE needs Java 17: apt-get install openjdk-17-jre-headless"
}

# The emulator does not say; the SDK that it came with does.
version() {
    local jar
    jar=$(find_jar)
    printf '%s of the Google Cloud SDK %s\n' "$TITLE" "$(cat "${jar%/platform/*}/VERSION" 2>/dev/null || printf 'unknown')"
}

# serve PORT OPTION…
serve() {
    local port=$1
    shift
    exec java -XX:+UseSerialGC -Xmx512m -cp "$(find_jar)" "$CLASS" start --host=127.0.0.1 --port="$port" "$@"
}

usage() {
    printf 'usage: %s fetch | version | serve DIR PORT\n' "$0" >&2
    exit 2
}
