"""How fast a directory comes back: live messages, settled records, with and without a checkpoint.

One process fills the directory and ends; another, fresh, opens it. What is timed is the whole opening, until
the mesh can be used. The file cache is warm, as after a crash of the process, not of the machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.contents import content
from bench.meshes import CAPACITY, CAPACITY_BYTES, NO_CHECKPOINT, fill, node_of, settings, until_projected
from bench.profiled import Profile
from bench.resident import peak_bytes, settled_rss_bytes
from relaymesh import Mesh


def measure(
    place: Path,
    *,
    what: str,
    count: int,
    checkpoint: bool = False,
    killed: bool = False,
    size: int = 200,
    repeat: int = 1,
    profile: bool = False,
) -> dict[str, Any]:
    """`what`: `live` leaves `count` messages pending, `settled` none of them."""
    data = place / "data"
    _in_process("fill", data, what=what, count=count, checkpoint=checkpoint, killed=killed, size=size)
    found = [_in_process("open", data, killed=killed, profile=profile) for _ in range(repeat)]
    middle = sorted(found, key=lambda each: float(each["open_s"]))[len(found) // 2]
    pending = count if what == "live" else 0
    if middle["pending"] != pending:
        raise AssertionError(f"{middle['pending']} messages came back, not {pending}")
    return {
        "what": what,
        "count": count,
        "checkpoint": checkpoint,
        "killed": killed,
        "size": size,
        "messages_per_s": count / middle["open_s"],
        "records_per_s": middle["replayed"] / middle["open_s"],
        "every_open_s": [each["open_s"] for each in found],
        **middle,
    }


def _in_process(step: str, data: Path, **params: Any) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "bench.recovery", step],
        input=json.dumps({"data": str(data), **params}),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{step} failed: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def fill_directory(
    data: Path, what: str, count: int, checkpoint: bool = False, killed: bool = False, size: int = 200
) -> dict[str, Any]:
    mesh = Mesh(data, settings=settings("batched", checkpoint_bytes=NO_CHECKPOINT))
    consumer = mesh.agent("consumer", capacity=CAPACITY, capacity_bytes=CAPACITY_BYTES)
    message = content("json", size)
    if what == "live":
        fill(mesh, "consumer", count, message)
    else:
        for _ in range(0, count, 1000):
            fill(mesh, "consumer", min(1000, count), message)
            mesh.ack_many(consumer.receive_many(1000))
    if checkpoint:
        until_projected(mesh)
        mesh.checkpoint()
    if killed:
        print(json.dumps({}), flush=True)
        os._exit(0)
    mesh.close()
    return {}


def _open(data: Path, killed: bool, profile: bool) -> dict[str, Any]:
    tracer = Profile(profile)
    began = time.perf_counter()
    with tracer.running():
        mesh = Mesh(data, settings=settings("synced", checkpoint_bytes=NO_CHECKPOINT))
    took = time.perf_counter() - began
    opened = node_of(mesh).opened
    assert opened is not None
    stats = mesh.stats()
    found = {
        "open_s": took,
        "replay_s": opened.took_s,
        "replayed": opened.replayed,
        "pending": stats.mailboxes["default/consumer"].pending,
        "rss_bytes": settled_rss_bytes(),
        "peak_bytes": peak_bytes(),
        "profile": tracer.top(),
    }
    if not killed:
        mesh.close()
    return found


if __name__ == "__main__":
    given = json.loads(sys.stdin.read())
    directory = Path(given.pop("data"))
    print(json.dumps((fill_directory if sys.argv[1] == "fill" else _open)(directory, **given)))
