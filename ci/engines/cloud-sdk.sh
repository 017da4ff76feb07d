# shellcheck shell=bash
# The Google Cloud SDK, whose emulators are engines. Sourced by their scripts, which set:
#   TITLE      what it is called, where it is a jar
#   COMPONENT  what follows google-cloud-cli- in the package's name
#   NAME       as in `gcloud components install`
#   FILE       what to run, below the SDK's root
# shellcheck source=ci/engines/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# sdk_file PATH: the file of the SDK, below the root that was asked for, whose gcloud is on PATH, or where
# packages and the installer put it. From the path of gcloud rather than from gcloud itself, which takes a
# second to say it.
sdk_file() {
    local root
    for root in "${CLOUDSDK_ROOT_DIR:-}" "$(realpath "$(command -v gcloud)" 2>/dev/null | sed 's,/bin/gcloud$,,')" \
        /usr/lib/google-cloud-sdk /usr/lib64/google-cloud-sdk /usr/share/google-cloud-sdk \
        /snap/google-cloud-cli/current /opt/google-cloud-sdk "${HOME:-/root}/google-cloud-sdk"; do
        [[ -z $root || ! -f $root/$1 ]] || { printf '%s\n' "$root/$1" && return; }
    done
    return 1
}

# Installs it where the machine knows Google's repository.
fetch() {
    local package=google-cloud-cli-$COMPONENT
    sdk_file "$FILE" >/dev/null || try_apt "$package" || true
    sdk_file "$FILE" >/dev/null ||
        missing "the emulator is missing: apt-get install $package, from the repository that" \
            "https://cloud.google.com/sdk/docs/install describes, or gcloud components install $NAME"
    [[ $FILE != *.jar ]] || need java openjdk-17-jre-headless
}

# The emulator does not say; the SDK that it came with does.
version() { printf '%s of the Google Cloud SDK %s\n' "$TITLE" "$(cat "$(sdk_file VERSION)" || printf 'unknown')"; }

# serve_jar CLASS PORT OPTION…
serve_jar() {
    exec java -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xmx512m -cp "$(sdk_file "$FILE")" "$1" start \
        --host=127.0.0.1 --port="$2" "${@:3}"
}
