#!/bin/sh
# Install the servers that `python -m bench.peers` compares RelayMesh with, from Debian's packages.
# None of them is left running: the bench starts its own, on free loopback ports.
set -eu

packages="redis-server nats-server rabbitmq-server"
missing=""
for package in $packages; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing="$missing $package"
done
[ -n "$missing" ] || { echo "already installed: $packages"; exit 0; }

if ! command -v apt-get >/dev/null || [ "$(id -u)" -ne 0 ]; then
    echo "not installed:$missing (needs root and apt-get: sudo apt-get install$missing); the bench leaves them out" >&2
    exit 0
fi

# While this file says 101, no package starts its service; one that was there before is left as it is.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
    trap 'rm -f "$policy"' EXIT
fi

apt-get update -qq
for package in $missing; do
    if DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" >/dev/null; then
        echo "installed $package"
    else
        echo "could not install $package; the bench leaves it out" >&2
        continue
    fi
    # Ours were not there before this run, so nobody counts on their services.
    if [ -d /run/systemd/system ]; then
        systemctl disable --now --quiet "$package" || echo "could not disable the service $package" >&2
    elif command -v update-rc.d >/dev/null; then
        update-rc.d "$package" disable >/dev/null 2>&1 || true
    fi
done
