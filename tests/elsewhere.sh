#!/bin/sh
# Run `make test` on a clean clone in a directory with a space in its path, as a user who is not root.
# Arguments go to make: tests/elsewhere.sh ARGS='-k lane'. Started by root, it takes the user `nobody`, and the
# first Python that this user can run.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
place=$(mktemp -d)/"a place"
trap 'rm -rf "$(dirname "$place")"' EXIT
trap 'exit 1' INT TERM
mkdir -p "$place/home" "$place/tmp"
git clone -q "$root" "$place/relaymesh"

user=
if [ "$(id -u)" -eq 0 ]; then
    chmod 755 "$(dirname "$place")"
    chown -R nobody "$place"
    user="setpriv --reuid nobody --regid nogroup --clear-groups"
fi

for python in "${PYTHON:-}" python3 /usr/local/bin/python3 /usr/bin/python3; do
    # shellcheck disable=SC2086  # several words, or none
    if [ -n "$python" ] && $user "$(command -v "$python")" -c 'import ensurepip, venv' 2>/dev/null; then
        cd "$place/relaymesh"
        # The parts of the environment that belong to the other user stay behind.
        # shellcheck disable=SC2086
        $user env HOME="$place/home" TMPDIR="$place/tmp" XDG_CACHE_HOME="$place/home/.cache" \
            make test PYTHON="$(command -v "$python")" "$@"
        exit
    fi
done
echo "no Python with venv that this user can run: name one with PYTHON=…" >&2
exit 1
