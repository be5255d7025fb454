"""Hostile calls over the whole public surface: `python -m tests.hostile --calls 100000 --over embedded`.

Exits with 1 if a caller got what no caller may get, another agent could not go on, a restart changed the
state, a public name was never called, or fewer than a third of the calls were refused.
"""

from __future__ import annotations

import argparse
import json
import sys

from tests.hostile import embedded, over_filebus, over_http, over_websocket

RUNS = {
    "embedded": embedded.run,
    "http": over_http.run,
    "websocket-json": over_websocket.run_json,
    "websocket-msgpack": over_websocket.run_msgpack,
    "filebus": over_filebus.run,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--calls", type=int, default=2_000)
    parser.add_argument("--over", choices=list(RUNS), default="embedded")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    report = RUNS[given.over](given.calls, given.seed)
    print(json.dumps(report.as_json()) if given.json else report.text())
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
