"""NATS JetStream again, every write synced before the publish is acknowledged.

Where the server knows `sync_interval: always` it is told so. Debian 12's 2.9 does not, so its
directory is marked for synchronous writes (`chattr +S`): the file system syncs each before it returns.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from bench.peers import jetstream
from bench.peers.server import MissingServer, Server

NAME = "NATS JetStream, synced"
SYNCED = True
PROMISE = (
    "sync_interval: always, or where the server does not know it a directory with synchronous writes "
    "(chattr +S): each message is on the disk before its ack, with a sync of its own."
)
ALWAYS = "sync_interval: always"

CLIENT, BATCHING = jetstream.CLIENT, jetstream.BATCHING
SENDERS, RECEIVERS = {1: 64, 100: 4, 1000: 2}, jetstream.RECEIVERS
program, version, set_up, drive = jetstream.program, jetstream.version, jetstream.set_up, jetstream.drive


def start(place: Path) -> Server:
    if jetstream.accepts(place, ALWAYS):
        return jetstream.start_with(place, ALWAYS)
    _write_synchronously(place)
    return jetstream.start_with(place, "")


def _write_synchronously(place: Path) -> None:
    """New files and directories take the mark from the directory they are made in."""
    store = place.resolve() / "store"
    store.mkdir(exist_ok=True)
    if not shutil.which("chattr"):
        raise MissingServer(
            "this nats-server has no sync_interval, and there is no chattr that could sync in its place"
        )
    done = subprocess.run(
        ["chattr", "+S", str(store)], capture_output=True, text=True, timeout=10, check=False
    )
    if done.returncode:
        raise MissingServer(
            "this nats-server has no sync_interval, and the file system has no synchronous directories: "
            + done.stderr.strip()
        )
