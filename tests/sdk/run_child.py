"""A program with a handler, as a user writes it: `python run_child.py TWIN END DIRECTORY SECONDS`.

END says how it ends: `run` keeps handlers running until a signal comes; `sleep` never calls `run`; `own` has
a SIGTERM handler of its own. The handler takes SECONDS. What happens is told line by line on stdout.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import time
from typing import Any

from relaymesh import AsyncMesh, Mesh


def say(word: str) -> None:
    print(word, flush=True)


def work(seconds: float) -> Any:
    def handler(delivery: Any) -> None:
        say(f"began {delivery.attempt}")
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            time.sleep(0.02)
        say("done")

    return handler


def awaited_work(seconds: float) -> Any:
    async def handler(delivery: Any) -> None:
        say(f"began {delivery.attempt}")
        await asyncio.sleep(seconds)
        say("done")

    return handler


def threaded(end: str, path: str, seconds: float) -> None:
    with Mesh(path) as mesh:
        planner, coder = mesh.agent("planner"), mesh.agent("coder")
        coder.handle(work(seconds))
        planner.send("coder", 1)
        if end == "sleep":
            time.sleep(60)
        else:
            mesh.run(60)
        say(f"ran, {len(mesh.stats().mailboxes)} mailboxes")


async def on_a_loop(end: str, path: str, seconds: float) -> None:
    async with AsyncMesh(path) as mesh:
        planner, coder = await mesh.agent("planner"), await mesh.agent("coder")
        coder.handle(awaited_work(seconds))
        await planner.send("coder", 1)
        if end == "sleep":
            await asyncio.sleep(60)
        else:
            await mesh.run(60)
        say(f"ran, {len((await mesh.stats()).mailboxes)} mailboxes")


def main(twin: str, end: str, path: str, seconds: float) -> None:
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
    if end == "own":
        signal.signal(signal.SIGTERM, lambda *_: say("my own handler"))
    if twin == "mesh":
        threaded(end, path, seconds)
    else:
        asyncio.run(on_a_loop(end, path, seconds))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4]))
