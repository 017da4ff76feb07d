# shellcheck shell=bash
# What the emulators share that are jars of the Google Cloud SDK. Sourced by their scripts, which set
# COMPONENT and:
#   TITLE      what it is called
#   PLATFORM   as in `gcloud components install`, and the directory below platform/
#   JAR        the name of the jar
#   CLASS      what to run of it
# shellcheck source=ci/engines/cloud-sdk.sh
source "$(dirname "${BASH_SOURCE[0]}")/cloud-sdk.sh"

fetch() {
    need_sdk_file "platform/$PLATFORM/$JAR" "$PLATFORM"
    command -v java >/dev/null || try_apt openjdk-17-jre-headless ||
        missing "the $TITLE needs Java 17: apt-get install openjdk-17-jre-headless"
}

# The emulator does not say; the SDK that it came with does.
version() {
    printf '%s of the Google Cloud SDK %s\n' "$TITLE" "$(cat "$(sdk_file VERSION)" || printf 'unknown')"
}

# serve PORT OPTION…
serve() {
    local port=$1
    shift
    exec java -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xmx512m -cp "$(sdk_file "platform/$PLATFORM/$JAR")" "$CLASS" start \
        --host=127.0.0.1 --port="$port" "$@"
}
