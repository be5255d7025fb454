"""`python -m bench.server`: a node by itself: idle memory, single POSTs, a thousand agents that only wait."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import websockets
from websockets.asyncio.client import ClientConnection

from bench import machine
from bench.peers import relaymesh_ws
from bench.peers.server import Server

PLACE = Path("bench/results/server")
LATEST = Path("bench/results/server.json")
CONNECTIONS = 64
HEARTBEAT_S = 30.0
SUBPROTOCOL = "relaymesh.v1.json"
BODY = json.dumps({"from": "sender", "to": "worker", "content": {"text": "x" * 180}}).encode()


def main() -> int:
    options = arguments()
    shutil.rmtree(PLACE, ignore_errors=True)
    PLACE.mkdir(parents=True)
    server = relaymesh_ws.start(PLACE.resolve())
    try:
        found = asyncio.run(measure(server, options))
    finally:
        server.stop()
    found["machine"] = machine.facts(PLACE)
    LATEST.write_text(json.dumps(found, indent=1), encoding="utf-8")
    for name, value in found.items():
        if name != "machine":
            print(f"{name:32} {value}")
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.server", description=__doc__)
    parser.add_argument("--agents", type=int, default=1000, metavar="N", help="agents that wait (1000)")
    parser.add_argument(
        "--seconds", type=float, default=10.0, metavar="S", help="of POSTs, and of waiting (10)"
    )
    return parser.parse_args()


async def measure(server: Server, options: argparse.Namespace) -> dict[str, Any]:
    await asyncio.sleep(1)
    found: dict[str, Any] = {"idle_rss_mb": rss_mb(server.pid)}
    found |= await posts(server, options.seconds)
    found |= await waiting(server, options.agents, options.seconds)
    return found


# -- single POSTs


async def posts(server: Server, seconds: float) -> dict[str, Any]:
    """Each message a request of its own, synced before it is answered; connections are kept."""
    token = os.environ["RELAYMESH_TOKEN"]
    head = (
        f"Host: 127.0.0.1:{server.port}\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: "
    )
    await _request(server, f"PUT /v1/mailboxes/worker HTTP/1.1\r\n{head}2\r\n\r\n{{}}".encode())
    request = f"POST /v1/messages HTTP/1.1\r\n{head}{len(BODY)}\r\n\r\n".encode() + BODY
    counts: list[int] = []
    before, began = cpu_s(server.pid), time.monotonic()
    await asyncio.gather(*[_post(server, request, began + seconds, counts) for _ in range(CONNECTIONS)])
    took, cpu, sent = time.monotonic() - began, cpu_s(server.pid) - before, sum(counts)
    return {
        "post_connections": CONNECTIONS,
        "posts": sent,
        "posts_per_s": round(sent / took),
        "post_server_cpu_us": round(cpu / sent * 1e6, 1),
    }


async def _request(server: Server, request: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(request)
    await _answer(reader)
    writer.close()


async def _post(server: Server, request: bytes, end: float, counts: list[int]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    sent = 0
    while time.monotonic() < end:
        writer.write(request)
        await _answer(reader)
        sent += 1
    counts.append(sent)
    writer.close()


async def _answer(reader: asyncio.StreamReader) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 20"):
        raise SystemExit(f"the node answered {head.splitlines()[0]!r}")
    fields = dict(line.lower().split(b": ", 1) for line in head.splitlines()[1:] if line)
    await reader.readexactly(int(fields[b"content-length"]))


# -- agents that wait


async def waiting(server: Server, count: int, seconds: float) -> dict[str, Any]:
    """Agents that hold a WebSocket, are granted credit, and send a heartbeat every 30 s."""
    before_mb = rss_mb(server.pid)
    agents = [await _agent(server, number) for number in range(count)]
    await asyncio.sleep(1)
    held_mb = rss_mb(server.pid)
    quiet = await _cpu_over(server, seconds)
    beat = cpu_s(server.pid)
    await asyncio.gather(*[_heartbeat(agent) for agent in agents])
    each = (cpu_s(server.pid) - beat) / count
    for agent in agents:
        await agent.close()
    return {
        "agents": count,
        "agent_kb": round((held_mb - before_mb) * 1000 / count, 1),
        "rss_with_agents_mb": held_mb,
        "agents_quiet_cpu_percent": round(100 * quiet / seconds, 2),
        "heartbeat_cpu_us": round(each * 1e6, 1),
        "heartbeats_cpu_percent": round(100 * each * count / HEARTBEAT_S, 2),
    }


async def _agent(server: Server, number: int) -> ClientConnection:
    name = f"idle-{number}"
    socket = await websockets.connect(
        f"ws://127.0.0.1:{server.port}/v1/ws",
        subprotocols=[websockets.Subprotocol(SUBPROTOCOL)],
        additional_headers={"Authorization": f"Bearer {os.environ['RELAYMESH_TOKEN']}"},
        ping_interval=None,
        compression=None,
    )
    hello = {"op": "hello", "ref": 1, "protocol": "1.1", "agent": name}
    await _ask(socket, hello, "welcome")
    opened = {"op": "call", "ref": 2, "name": "open_mailbox", "arguments": {"mailbox": f"default/{name}"}}
    await _ask(socket, opened, "result")
    await socket.send(json.dumps({"op": "credit", "mailbox": f"default/{name}", "credit": 10}))
    return socket


async def _ask(socket: ClientConnection, frame: dict[str, Any], answer: str) -> None:
    await socket.send(json.dumps(frame))
    said = json.loads(await socket.recv())
    if said["op"] != answer:
        raise SystemExit(f"the node answered {said} to {frame}")


async def _heartbeat(socket: ClientConnection) -> None:
    await socket.send(json.dumps({"op": "heartbeat", "ref": 4}))
    while json.loads(await socket.recv())["op"] != "ack":
        pass


async def _cpu_over(server: Server, seconds: float) -> float:
    before = cpu_s(server.pid)
    await asyncio.sleep(seconds)
    return cpu_s(server.pid) - before


# -- the server's process, from outside


def rss_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 1e6, 1)


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    raise SystemExit(main())
