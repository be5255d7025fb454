"""Reports the events of a team, one line per event: on stdout, and in `team.log`."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from relaymesh.agents.log_file import LogFile
from relaymesh.printable import printable

__all__ = ["TeamLog"]


class TeamLog:
    """Takes events, each a dict with `event` and `text`."""

    def __init__(self, path: Path, *, json_lines: bool) -> None:
        self._file = LogFile(path)
        self._json = json_lines
        self._is_heard = True

    def put(self, said: dict[str, Any]) -> None:
        now = time.time()
        text = printable(str(said.get("text", "")))
        self._file.write(text)
        if self._json:
            moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))
            # In ASCII: nothing in it that a terminal obeys.
            self._say(json.dumps({"at": f"{moment}.{int(now * 1000) % 1000:03d}Z", **said}))
        else:
            self._say(f"{time.strftime('%H:%M:%S', time.localtime(now))} {text}")

    def _say(self, line: str) -> None:
        if not self._is_heard:
            return
        try:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
        except (OSError, ValueError):  # the terminal or the reader is gone
            self._is_heard = False
