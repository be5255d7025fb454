"""Redis Streams: XADD in pipelines, a consumer group, XACK of many; threads, each with its own connection."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import redis

from bench.peers.flow import Flow
from bench.peers.server import Server, find, free_port, version_of

NAME = "Redis Streams"
STREAM, GROUP, FIELD = "work", "workers", b"d"
BLOCK_MS = 100
LENGTH_MAX = 1_000_000
SENDERS = {1: 32, 100: 4, 1000: 3}
RECEIVERS = {1: 16, 100: 3, 1000: 2}

CLIENT = "redis-py, hiredis parser"
SYNCED = True
BATCHING = "XADD pipelined, XREADGROUP COUNT, one XACK for all of a batch; XADD trims at about 1,000,000"
PROMISE = (
    "appendfsync always: written to the append-only file and synced before the reply, once for all the "
    "commands of a turn of its event loop. Acks and deliveries are synced the same way."
)


def program() -> str:
    return find("redis-server", "redis-server")


def version() -> str:
    return version_of(program(), "--version").split("v=")[-1].split()[0]


def start(place: Path) -> Server:
    port = free_port()
    settings = {
        "bind": "127.0.0.1",
        "port": str(port),
        "dir": str(place.resolve()),
        "appendonly": "yes",
        "appendfsync": "always",
        "save": "",
        "auto-aof-rewrite-percentage": "0",
        "daemonize": "no",
    }
    options = [part for name, value in settings.items() for part in (f"--{name}", value)]
    server = Server(NAME, [program(), *options], place, port)
    server.until_it_listens()
    return server


def _connect(port: int) -> Any:
    return redis.Redis(host="127.0.0.1", port=port, socket_timeout=30)


def set_up(port: int) -> None:
    client = _connect(port)
    client.flushall()
    client.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
    client.close()


def drive(port: int, roles: list[str], flow: Flow) -> None:
    threads = []
    if "produce" in roles:
        threads += [threading.Thread(target=_send, args=(port, flow, i)) for i in range(flow.shape.senders)]
    if "consume" in roles:
        threads += [
            threading.Thread(target=_receive, args=(port, flow, i)) for i in range(flow.shape.receivers)
        ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if "consume" in roles:
        left = _connect(port).xpending(STREAM, GROUP)["pending"]
        if left:
            raise RuntimeError(f"Redis still has {left} deliveries without an ack")


def _send(port: int, flow: Flow, index: int) -> None:
    client = _connect(port)
    client.ping()
    flow.until_go()
    for step in flow.sends(index):
        if isinstance(step, float):
            threading.Event().wait(step)
            continue
        with client.pipeline(transaction=False) as pipeline:
            for body in step:
                pipeline.xadd(STREAM, {FIELD: body}, maxlen=LENGTH_MAX, approximate=True)
            pipeline.execute()


def _receive(port: int, flow: Flow, index: int) -> None:
    client = _connect(port)
    name = f"worker-{index}"
    count = flow.shape.batch if flow.shape.rate is None else 1000
    flow.until_go()
    while not flow.finished:
        found = client.xreadgroup(GROUP, name, {STREAM: ">"}, count=count, block=BLOCK_MS)
        if not found:
            continue
        entries = _entries(found)
        flow.look_at(index, [fields[FIELD] for _, fields in entries])
        client.xack(STREAM, GROUP, *(identity for identity, _ in entries))
        flow.count_acked(index, len(entries))


def _entries(found: Any) -> list[tuple[bytes, dict[bytes, bytes]]]:
    """The client answers a list or, since RESP3 is its default, a dictionary of lists."""
    if isinstance(found, dict):
        batches = next(iter(found.values()))
        return batches[0] if batches and isinstance(batches[0], list) else batches
    return found[0][1]  # type: ignore[no-any-return]
