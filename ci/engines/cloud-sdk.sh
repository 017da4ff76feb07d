# shellcheck shell=bash
# The Google Cloud SDK, whose emulators are engines. Sourced by their scripts, which set COMPONENT: what
# follows google-cloud-cli- in the package's name.
# shellcheck source=ci/engines/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# sdk_file PATH: the file of the SDK, below the root that was asked for, whose gcloud is on PATH, or where
# packages and the installer put it. From the path of gcloud rather than from gcloud itself, which takes a
# second to say it.
sdk_file() {
    local gcloud root
    gcloud=$(command -v gcloud || true)
    for root in "${CLOUDSDK_ROOT_DIR:-}" "${gcloud:+$(dirname "$(dirname "$(realpath "$gcloud")")")}" \
        /usr/lib/google-cloud-sdk /usr/lib64/google-cloud-sdk /usr/share/google-cloud-sdk \
        /snap/google-cloud-cli/current /opt/google-cloud-sdk "${HOME:-/root}/google-cloud-sdk"; do
        if [[ -n $root && -f $root/$1 ]]; then
            printf '%s\n' "$root/$1"
            return
        fi
    done
    return 1
}

# need_sdk_file PATH NAME: installs the emulator where the machine knows Google's repository. NAME is gcloud's
# for it.
need_sdk_file() {
    local package=google-cloud-cli-$COMPONENT
    sdk_file "$1" >/dev/null || try_apt "$package" || true
    sdk_file "$1" >/dev/null ||
        missing "the emulator is missing: apt-get install $package, from the repository that" \
            "https://cloud.google.com/sdk/docs/install describes, or gcloud components install $2"
}
