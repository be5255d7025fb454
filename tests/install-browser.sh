#!/bin/sh
# Install the browser that reports and pages are opened in by the tests, from Debian's packages.
# Never fails: without a browser those tests are skipped, and say so.
set -eu

for browser in chromium chromium-browser google-chrome; do
    command -v "$browser" >/dev/null && exit 0
done

if ! command -v apt-get >/dev/null || [ "$(id -u)" -ne 0 ]; then
    echo "no Chromium here (needs root and apt-get: sudo apt-get install chromium); tests in a browser are skipped" >&2
    exit 0
fi

echo "installing Chromium for the tests in a browser"
if ! { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium; } >/dev/null 2>&1; then
    echo "could not install chromium; tests in a browser are skipped" >&2
fi
