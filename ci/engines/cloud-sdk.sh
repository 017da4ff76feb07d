# shellcheck shell=bash
# Functions for the emulators of the Google Cloud SDK. Sourced by the emulators' scripts, which set:
#   TITLE      the emulator's name, which `version` prints
#   COMPONENT  the end of the package's name, after google-cloud-cli-
#   NAME       its name in `gcloud components install`
#   FILE       the program or jar, relative to the SDK's root
# shellcheck source=ci/engines/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# sdk_file PATH: prints the path of a file of the SDK. The SDK's root is CLOUDSDK_ROOT_DIR, the root of the
# gcloud on PATH, or a default installation directory. Running gcloud to get the root would take a second.
sdk_file() {
    local root
    for root in "${CLOUDSDK_ROOT_DIR:-}" "$(realpath "$(command -v gcloud)" 2>/dev/null | sed 's,/bin/gcloud$,,')" \
        /usr/lib/google-cloud-sdk /usr/lib64/google-cloud-sdk /usr/share/google-cloud-sdk \
        /snap/google-cloud-cli/current /opt/google-cloud-sdk "${HOME:-/root}/google-cloud-sdk"; do
        [[ -z $root || ! -f $root/$1 ]] || { printf '%s\n' "$root/$1" && return; }
    done
    return 1
}

# Installs the package, if run as root and apt has Google's repository.
fetch() {
    local package=google-cloud-cli-$COMPONENT
    sdk_file "$FILE" >/dev/null || try_apt "$package" || true
    sdk_file "$FILE" >/dev/null ||
        missing "the emulator is missing: apt-get install $package, from the repository that" \
            "https://cloud.google.com/sdk/docs/install describes, or gcloud components install $NAME"
    [[ $FILE != *.jar ]] || need java openjdk-17-jre-headless
}

# The emulator does not print its version, so `version` prints the SDK's version.
version() { printf '%s of the Google Cloud SDK %s\n' "$TITLE" "$(cat "$(sdk_file VERSION)" || printf 'unknown')"; }

# serve_jar CLASS PORT OPTION…: runs the jar's main class.
serve_jar() {
    exec java -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xmx512m -cp "$(sdk_file "$FILE")" "$1" start \
        --host=127.0.0.1 --port="$2" "${@:3}"
}
