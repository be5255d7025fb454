"""The process of the supervisor: `python -m relaymesh.agents.supervise`, started by the keeper.

It reports events on stdout, one JSON object per line, and stops in order at SIGTERM or at the end of its
stdin.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from relaymesh.agents.places import Places
from relaymesh.agents.supervisor import Supervisor
from relaymesh.errors import MeshError

__all__ = ["main"]

LINE_BYTES_MAX = 4_000
"""A write of at most PIPE_BUF bytes into a pipe is atomic."""


def say(event: str, text: str, **fields: Any) -> None:
    """Send an event to the keeper. If the pipe is full because the keeper does not read, the event is
    lost."""
    line = json.dumps({"event": event, **fields, "text": text}).encode()
    if len(line) > LINE_BYTES_MAX:
        line = json.dumps({"event": event, "text": text[:500]}).encode()
    try:
        os.write(1, line + b"\n")
    except OSError:
        return


async def _run(given: dict[str, Any]) -> int:
    loop = asyncio.get_running_loop()
    supervisor = Supervisor(
        Places(Path(given["directory"])),
        Path(given["file"]),
        grace_s=given["graceful_timeout"] * 0.5,
        tell=say,
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, supervisor.stop, number.name)
    loop.add_signal_handler(signal.SIGHUP, supervisor.look_at_file)

    def wait_for_the_end() -> None:
        while os.read(0, 4096):
            pass
        loop.call_soon_threadsafe(supervisor.stop, "the keeper is gone")

    threading.Thread(target=wait_for_the_end, name="stdin", daemon=True).start()
    await supervisor.run()
    return 0


def main() -> int:
    os.umask(0o077)
    os.set_blocking(1, False)
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s", stream=sys.stderr)
    try:
        return asyncio.run(_run(json.loads(sys.argv[1])))
    except MeshError as error:
        say("supervisor.failed", f"supervisor: {error}", code=error.code)
        return 1


if __name__ == "__main__":
    sys.exit(main())
